#!/usr/bin/env python3
"""Runs an inference job and a training job together on one GPU, under several ways of sharing it.

    bench/gpu/pairs.py run   --job JOB.py --divvy build/release/apps/divvy/divvy --out results.jsonl [--suite gate]
    bench/gpu/pairs.py table results.jsonl

JOB.py is a program of two kinds, `infer` and `train`, that prints `RESULT {json}` with latency percentiles from the
scheduled arrival, or milliseconds per step. Its line that waits for --start is replaced by a barrier, so that both
halves begin as soon as both are ready. Python and PyTorch are loaded once for each way and kind of job; each job is a
fork of that process, which has not touched the GPU.

Ways: alone; slice (time slicing), mps, priority (MPS with client priority), percent (MPS, training at 40 % of the
SMs); tight, balanced, off and slo=20ms (through `divvy run`; `+mps` with inference as a client of MPS, `+no-mps` without
MPS for both, `+sm=92` with training at 92 % of the SMs, so that a few are free at once, `+connections=1` with training
that has CUDA_DEVICE_MAX_CONNECTIONS of 1).

With --keep one process trains through all runs in a row that want the same training in the same way; and one process answers
the requests of all runs in a row that want the same inference in the same way. That spares the GPU the many seconds in which a
job starts. Time per step, `ms`, is then counted as the job does: to the end of the step that it launches last, one or two after
the requests have ended. `ms_in_window` has the steps that ended before.

Eager inference waits for its CPU, and a virtual machine's cores that sleep wake late: its runs keep them awake by idle loops.
Two of those that the machine shows may be one: with --inference-cores 0,2 inference has these for itself in all runs, alone too,
and only they are kept awake.
Results tell what inference's CPU took to launch a request (`launching_p50`, ms), and for a loop in which there is no GPU (`loop_p50`).
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Imports once what every job imports, then forks a child for each job it is told to run: the child has the environment
# of its way (under `divvy run`, the gate too), and neither has touched CUDA before the fork.
SERVER = r"""
import argparse, json, os, random, select, sys, time
import torch, torchvision
path = sys.argv[1]
source = open(path).read()
def barrier():
    print("READY", flush=True)
    begin = float(sys.stdin.readline())
    while time.time() < begin: time.sleep(0.001)
class Steps:  # of a training job that goes on until it is told to stop, and tells when each was over
    def __init__(self): self.ends = []
    def over(self, event): event.synchronize(); self.ends.append(time.time())
    def go_on(self):
        if not select.select([sys.stdin], [], [], 0)[0]: return True
        if sys.stdin.readline() != "ends\n": return False
        print("ENDS", json.dumps(self.ends), flush=True)
        self.ends = []
        return True
class Windows:  # of an inference job that has another as long as it is told so; each is told of as if it were the only one
    def __init__(self): self.had = 0
    def go_on(self, out):
        self.had += 1
        if self.had == 1: return True
        print("RESULT", json.dumps(out), flush=True)
        return sys.stdin.readline() == "again\n"
class GpuTimes:  # of each request, by the GPU's own clock, from the event before its graph: of its CPU's time only submitting the graph is in it
    def __init__(self): self.found, self.events, self.ended = [], None, 0.0
    def around(self, stream, work):
        if self.events is None: self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        began = time.perf_counter()
        self.events[0].record(stream); work(); self.events[1].record(stream)
        launched = time.perf_counter()
        stream.synchronize()
        before, self.ended = self.ended, time.perf_counter()
        self.found.append((began - before, launched - began, self.ended - began, self.events[0].elapsed_time(self.events[1]) / 1e3))
    def told(self, n):
        times = sorted(seconds for *_, seconds in self.found[-n:])
        told = {"gpu_" + name: times[min(n - 1, int(n * part))] * 1e3 for name, part in (("p50", .5), ("p90", .9), ("p99", .99))}
        # Milliseconds since the one before ended, of launching, of all of it, and of the GPU's part.
        return {**told, "requests_ms": [[round(part * 1e3, 3) for part in request] for request in self.found[-n:]]}
class Waits:  # of inference: what its CPU takes to launch is told from what it waits for the GPU
    def __init__(self):
        self.found, wait = [], torch.cuda.Stream.synchronize
        def timed(stream):
            began = time.time(); wait(stream); self.found.append((began, time.time()))
        torch.cuda.Stream.synchronize = timed
    def told(self, lat):  # of requests that found none before them, and what the CPU takes for a loop, which no GPU slows
        own = self.found[-len(lat):]
        launching = [ms - (end - began) * 1e3 for ms, (began, end), (_, before) in zip(lat[1:], own[1:], own) if end - ms / 1e3 >= before]
        loops = []
        for _ in range(9):
            began = time.perf_counter()
            for _ in range(20000): pass
            loops.append((time.perf_counter() - began) * 1e3)
        return {name: round(sorted(values)[len(values) // 2], 3) for name, values in (("launching_p50", launching), ("loop_p50", loops)) if values}
def part_of(begin, end):  # of the job: the lines from the first with the one to the next with the other
    assert begin in source and end in source.partition(begin)[2], "the job is not as expected: " + begin
    first = source.rfind("\n", 0, source.index(begin)) + 1
    return source[first:source.index("\n", source.index(end, first)) + 1]
changes = {"while time.time()<a.start: time.sleep(0.001)": "barrier()"}
if "keep" in sys.argv[2:]:
    changes["while time.time()-t0<a.secs:"] = "while steps.go_on():"
    changes["if ev is not None: ev.synchronize()"] = "if ev is not None: steps.over(ev)"
    window = part_of("wait(); t0", "out.update(n=n,p50=")
    indent = window[:len(window) - len(window.lstrip())]
    changes[window] = indent + "while windows.go_on(out):\n" + "".join(" " + line for line in window.splitlines(True))
# In the order of their arrivals, so that what each waited for the one before it can be told.
changes["lat.sort();"] = "out.update(latencies_ms=[round(ms, 3) for ms in lat], **waits.told(lat)); lat.sort();"
if "gpu-times" in sys.argv[2:]:
    changes["g.replay(); s.synchronize()"] = "gpu_times.around(s, g.replay)"
    changes["out.update(n=n,p50="] = "out.update(**(gpu_times.told(n) if a.graph else {}),n=n,p50="
for old, new in changes.items():
    assert source.count(old) == 1, "the job is not as expected: " + old
    source = source.replace(old, new)
code = compile(source, path, "exec")
print("LOADED", flush=True)
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        sys.argv = [path, *json.loads(line)]
        exec(code, {"__name__": "__main__", "barrier": barrier, "gpu_times": GpuTimes(), "steps": Steps(), "windows": Windows(), "waits": Waits()})
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    print("DONE", os.waitstatus_to_exitcode(status), flush=True)
"""

GATED = ("tight", "balanced", "off", "slo=")
TRANSFORMER = ["--model", "transformer", "--batch", "8", "--rate", "40"]
LATENCY = {"graph": TRANSFORMER, "eager": [*TRANSFORMER, "--graph", "0"]}
TRAINING = {"vgg16": ["--model", "vgg16", "--batch", "128"], "resnet50": ["--model", "resnet50", "--batch", "256"],
            "rnnlm": ["--model", "rnnlm", "--batch", "128"]}
# p99 and training time, as ratios to alone, that a preset is to keep: (latency job, preset) -> training job -> bars.
BARS = {
    ("graph", "tight"): {"vgg16": (1.15, 1.25), "resnet50": (1.15, 1.22), "rnnlm": (1.15, 1.25)},
    ("graph", "balanced"): {"vgg16": (1.30, 1.12), "resnet50": (1.30, 1.12), "rnnlm": (1.30, 1.15)},
    ("eager", "tight"): dict.fromkeys(TRAINING, (1.20, 1.30)),
    ("eager", "balanced"): dict.fromkeys(TRAINING, (1.35, 1.20)),
}


# A training step takes the same whatever the window.
ALONE_SECS = 6.0


def run_of(infer, train, way, secs=10.0):
    name = "+".join(part for part in (infer, train) if part)
    return {"name": name, "infer": infer and LATENCY[infer], "train": train and TRAINING[train], "way": way, "secs": secs}


def suite(name, repeats):
    """The runs, those worth most first: a lease of a GPU may end before the list does."""
    if name == "quick":
        return [run_of("graph", None, "alone", 4.0), run_of("graph", "vgg16", "tight", 4.0)]

    def presets(infer, train):
        return [run_of(infer, train, way) for way in ("tight", "balanced") for _ in range(repeats)]

    def others(infer, train):
        return [run_of(infer, train, way) for way in ("priority", "mps", "slice", "percent")]

    # What is the same in a row can be one process (--keep). Machines change in minutes, GPUs get hot and CPUs slow: all is
    # measured alone before and after.
    runs = []
    for infer in ("graph", "eager"):
        runs.append(run_of(infer, None, "alone"))
        for train in TRAINING:
            alone = run_of(None, train, "alone", ALONE_SECS)
            # Under the gate too, once.
            runs += [alone, run_of(None, train, "tight", ALONE_SECS)] if infer == "graph" else [alone]
            runs += [*presets(infer, train), alone, run_of(infer, None, "alone")]
    runs += [run for train in TRAINING for run in others("graph", train)]
    # A loose SLO: three times the p99 alone.
    runs += [run_of("graph", "vgg16", "slo=16ms")] * repeats
    return runs + [run for train in TRAINING for run in others("eager", train)]


def results_in(path):
    """Of the runs; without a last line that was cut off, where a lease ended."""
    with open(path) as file:
        return [found for found in (json.loads(line) for line in file if line.endswith("\n")) if "name" in found]


def end_last_line(path):
    """What is added must not go on with a line that was cut off."""
    with open(path, "rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def left_of(runs, path):
    """Without those whose results stand in the file already."""
    made = []
    if os.path.exists(path):
        made = [(one["name"], one["way"], one["secs"]) for one in results_in(path)
                if not any("error" in (part or {}) for part in (one, one.get("infer"), one.get("train")))]
    left = []
    for run in runs:
        key = (run["name"], run["way"], run["secs"])
        if key in made:
            made.remove(key)
        else:
            left.append(run)
    return left


def parse_run(text):
    """A run as NAME:WAY[:SECONDS], e.g. graph+vgg16:tight or rnnlm:alone:6."""
    name, way, *secs = text.split(":")
    parts = name.split("+")
    infer = next((part for part in parts if part in LATENCY), None)
    train = next((part for part in parts if part in TRAINING), None)
    if len(parts) != (infer is not None) + (train is not None):
        sys.exit(f"--runs {text}: the name is one of {', '.join(LATENCY)}, one of {', '.join(TRAINING)}, or both joined by +")
    return run_of(infer, train, way, float(secs[0]) if secs else 10.0)


class Mps:
    """An MPS daemon of its own, started when first asked for."""

    def __init__(self, scratch):
        self.directory = os.path.join(scratch, f"divvy-bench-mps-{os.getpid()}")
        self.running = False

    def environment(self):
        env = {"CUDA_MPS_PIPE_DIRECTORY": self.directory + "/pipe", "CUDA_MPS_LOG_DIRECTORY": self.directory + "/log"}
        if not self.running:
            for path in env.values():
                os.makedirs(path, mode=0o700, exist_ok=True)
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **env}, check=True)
            self.running = True
        return env

    def stop(self):
        if self.running:
            env = self.environment()
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env={**os.environ, **env}, timeout=20, check=False)
            self.running = False
        shutil.rmtree(self.directory, ignore_errors=True)


def command_and_environment(kind, way, divvy, mps, report, job):
    """How one half of a run is started."""
    name, *options = way.split("+")
    env = dict(os.environ)
    if kind == "train":
        env.update(("CUDA_DEVICE_MAX_CONNECTIONS", option[12:]) for option in options if option.startswith("connections="))
    if name.startswith(GATED):
        command = [divvy, "run", "--report", report, "--class", "latency" if kind == "infer" else "batch"]
        if kind == "infer":
            command += ["--slo", name[4:]] if name.startswith("slo=") else ["--protect", name]
        command += ["--no-mps"] if "no-mps" in options else []
        command += ["--mps"] if "mps" in options and kind == "infer" else []
        if kind == "train":
            command += [word for option in options if option.startswith("sm=") for word in ("--sm-percent", option[3:])]
        return [*command, "--", *job], env
    if name in ("mps", "priority", "percent"):
        env.update(mps.environment())
    if name == "priority" and kind == "train":
        env["CUDA_MPS_CLIENT_PRIORITY"] = "1"
    if name == "percent" and kind == "train":
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "40"
    return job, env


def on_cores(cores):
    """What a command begins with that keeps to them."""
    return ["taskset", "-c", ",".join(map(str, sorted(cores)))]


class Clocks:
    """The GPU's SM clock and power while it lives, by nvidia-smi."""

    QUERY = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "50"]

    def __init__(self):
        self.process = subprocess.Popen(self.QUERY, stdout=subprocess.PIPE, text=True)

    def stop(self):
        self.process.terminate()
        # The last line may be cut off, and what the driver does not tell is no number.
        lines = self.process.communicate()[0].split("\n")[:-1]
        samples = [[float(word) for word in line.split(",")] for line in lines if re.fullmatch(r"[0-9.]+, [0-9.]+", line)]
        if not samples:
            return {}
        clocks, watts = (sorted(column) for column in zip(*samples))
        return {"sm_mhz": {"least": clocks[0], "median": median(clocks), "most": clocks[-1]}, "power_w": median(watts)}


class Awake:
    """A loop on every core that runs when nobody else wants it. Where nothing beside a job that launches kernel by kernel
    keeps the cores awake, it is slower alone than in company."""

    LOOP = ["chrt", "-i", "0", "sh", "-c", "while :; do :; done"]

    def __init__(self, cores):
        self.loops = [subprocess.Popen([*on_cores([core]), *self.LOOP]) for core in cores]

    def stop(self):
        for loop in self.loops:
            loop.kill()
            loop.wait()


class Server:
    """A process with PyTorch loaded that runs one job after the other, in the environment of its way."""

    def __init__(self, kind, way, args, mps):
        self.report = os.path.join(args.scratch, f"divvy-report-{os.getpid()}-{kind}.txt")
        self.errors = tempfile.TemporaryFile("w+")
        command, env = command_and_environment(kind, way, args.divvy, mps, self.report,
                                               [sys.executable, "-c", SERVER, args.job, *["gpu-times"] * args.gpu_times,
                                                *["keep"] * args.keep])
        if args.inference_cores:
            others = os.sched_getaffinity(0) - set(args.inference_cores)
            command = [*on_cores(args.inference_cores if kind == "infer" else others), *command]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, start_new_session=True)
        self.loaded = False
        self.words = None  # with --keep: of the job that goes on

    def await_loaded(self):
        if not self.loaded:
            self.expect("LOADED")
            self.loaded = True

    def tell(self, line):
        self.await_loaded()
        print(line, file=self.process.stdin, flush=True)

    def expect(self, word):
        line = self.process.stdout.readline()
        if line.strip() != word:
            raise RuntimeError(f"{word} expected, not {line!r}: {self.said()[-2000:]}")

    def start(self, kind, words):
        if os.path.exists(self.report):
            os.unlink(self.report)
        self.tell(json.dumps([kind, *words]))
        self.expect("READY")

    def end(self):
        """With --keep, the job that goes on. What the gate said of it at its end."""
        self.words = None
        self.tell("stop")
        self.result()
        return self.reported()

    def reported(self):
        if not os.path.exists(self.report):
            return []
        with open(self.report) as file:
            return file.read().splitlines()

    def steps_in(self, window):
        """With --keep, of training that goes on."""
        ends = []
        while sum(end > window[1] for end in ends) < 2:
            self.tell("ends")
            line = self.process.stdout.readline()
            if not line.startswith("ENDS "):
                return self.failed(line)
            ends += json.loads(line[5:])
        ends = [end for end in ends if end >= window[0]]
        steps = sum(end <= window[1] for end in ends) - 1
        if steps < 1:
            return {"error": "no steps in the window"}
        # The job waits for the step before the one that it has just launched, looks at the time, and at last waits for that too.
        last = steps + 2

        def ms_to(step):
            return round((ends[step] - ends[0]) / step * 1e3, 3)

        return {"kind": "train", "n": last, "ms": ms_to(last), "ms_in_window": ms_to(steps)}

    def failed(self, line):
        """Of a job that ended where it should have gone on."""
        self.words = None
        return {"error": f"{line.strip()}: {self.said()[-1500:]}"}

    def window(self):
        """With --keep, what inference told of a window; it goes on."""
        line = self.process.stdout.readline()
        return json.loads(line[7:]) if line.startswith("RESULT ") else self.failed(line)

    def result(self):
        found = {"error": "no result"}
        for line in iter(self.process.stdout.readline, ""):
            if line.startswith("RESULT "):
                found = json.loads(line[7:])
            elif line.startswith("DONE "):
                if line.strip() != "DONE 0" or "error" in found:
                    found = {"error": f"exit {line.strip()[5:]}: {self.said()[-1500:]}"}
                return found
        return {"error": self.said()[-1500:]}

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self):
        """With the job that it has forked, which may outlive it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Servers:
    """The servers that runs have asked for so far, one for each way and kind."""

    def __init__(self, args):
        self.args = args
        self.mps = Mps(args.scratch)
        self.running = {}

    def get(self, kind, way):
        name, *options = way.split("+")
        if name.startswith(GATED):
            # Neither knows how the other is started: one batch job serves all presets.
            others = ("mps",) if kind == "train" else ("connections=", "sm=")
            way = "+".join(["tight" if kind == "train" else name, *(word for word in options if not word.startswith(others))])
        if (kind, way) not in self.running:
            self.running[kind, way] = Server(kind, way, self.args, self.mps)
        return self.running[kind, way]

    def load(self, runs):
        """Starts what the runs need: all of it loads PyTorch at once."""
        for spec in runs:
            for kind in ("infer", "train"):
                if spec.get(kind):
                    try:
                        self.get(kind, spec["way"])
                    except (OSError, subprocess.SubprocessError):
                        pass  # It is tried again, and told, by the run that needs it.
        # Nothing is to be measured beside that.
        for server in self.running.values():
            try:
                server.await_loaded()
            except RuntimeError:
                pass

    def end(self, kind, tell_report):
        """With --keep, what goes on of that kind."""
        for (its_kind, way), server in self.running.items():
            if its_kind == kind and server.words:
                words = server.words
                tell_report({"job": [kind, *words], "way": way, "report": server.end()})

    def start(self, kind, server, spec, tell_report):
        """Whether the job is to be told when to begin: not training that goes on."""
        words = [*spec[kind], "--secs", str(spec["secs"])]
        if not self.args.keep:
            server.start(kind, words)
            return True
        words = spec[kind] if kind == "train" else words
        if server.words == words and kind == "train":
            return False
        if server.words == words:
            server.tell("again")
            server.expect("READY")
            return True
        self.end(kind, tell_report)
        server.start(kind, words)
        server.words = words
        if kind == "train":
            server.tell(time.time())
        return kind != "train"

    def results(self, servers, window):
        if not self.args.keep:
            return {kind: server.result() for kind, server in servers.items()}
        found = {}
        if "infer" in servers:
            found["infer"] = servers["infer"].window()
        time.sleep(max(0, window[1] - time.time()))
        if "train" in servers:
            found["train"] = servers["train"].steps_in(window)
        return found

    def run(self, spec, tell):
        clocks, awake, stolen, servers = None, None, stolen_ms(), {}
        try:
            if self.args.awake or spec["infer"] == LATENCY["eager"]:
                awake = Awake(self.args.inference_cores or os.sched_getaffinity(0))
            servers = {kind: self.get(kind, spec["way"]) for kind in ("infer", "train") if spec.get(kind)}
            for kind in {"infer", "train"} - set(servers):
                self.end(kind, tell)
            # What trains goes on while inference is started, as it would on a GPU that is shared.
            begins = [kind for kind in ("train", "infer") if kind in servers and self.start(kind, servers[kind], spec, tell)]
            begin = time.time() + 0.3
            for kind in begins:
                servers[kind].tell(begin)
            if self.args.clocks:
                clocks = Clocks()
            results = self.results(servers, (begin, begin + spec["secs"]))
        except Exception as error:  # one bad run must not cost the others
            for key in [key for key, server in self.running.items() if server in servers.values()]:
                self.running.pop(key).kill()
            results = {"error": str(error)}
        if clocks:
            results.update(clocks.stop())
        if awake:
            awake.stop()
        results.update(stolen_ms=stolen_ms() - stolen, awake=awake is not None, cores=self.args.inference_cores)
        if "error" not in results:
            for kind, server in servers.items():
                self.add_words(results, kind, server)
        tell({**spec, **results})

    def add_words(self, results, kind, server):
        lines = [line for line in server.said().splitlines() if line.startswith("divvy:")]
        if lines:
            results.setdefault(kind, {})["said"] = lines
        if not self.args.keep:
            results.setdefault("report", []).extend(server.reported())

    def stop(self):
        for server in self.running.values():
            server.stop()
        self.mps.stop()


def stolen_ms():
    """What the host has taken from this machine's CPUs so far: a figure with much of it says little."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) * 1000 // os.sysconf("SC_CLK_TCK")


def line_of(results):
    if "job" in results:
        return "\n".join([f"{results['way']}, {' '.join(results['job'])}:", *("  " + line for line in results["report"])])
    parts = [f"{results['way']:<18} {results['name']:<28}"]
    if "error" in results:
        return " ".join([*parts, results["error"][-500:]])
    infer, train = results["infer"], results["train"]
    if infer:
        parts.append("infer " + (infer["error"][-300:] if "error" in infer else
                                 f"n {infer['n']} p50 {infer['p50']:.2f} p95 {infer['p95']:.2f} p99 {infer['p99']:.2f}"
                                 + (f" launching {infer['launching_p50']:.2f} loop {infer['loop_p50']:.2f}" if "launching_p50" in infer else "")
                                 + (f" gpu p50 {infer['gpu_p50']:.2f} p99 {infer['gpu_p99']:.2f}" if "gpu_p50" in infer else "")))
    if train:
        parts.append("train " + (train["error"][-300:] if "error" in train else f"{train['ms']:.3f} ms"))
    return " ".join([*parts, f"(stolen {results['stolen_ms']} ms)"])


def cores(text):
    found, there = [int(word) for word in text.split(",")], os.sched_getaffinity(0)
    if not set(found) < there:
        raise argparse.ArgumentTypeError(f"these are some of {min(there)} to {max(there)}, and not all")
    return found


def run_all(args):
    args.divvy = args.divvy and os.path.abspath(args.divvy)
    runs = [parse_run(text) for text in args.runs] if args.runs else suite(args.suite, args.repeats)
    runs = left_of(runs, args.out) if args.resume else runs
    servers = Servers(args)
    began = time.time()
    try:
        servers.load(runs)
        if os.path.exists(args.out):
            end_last_line(args.out)
        with open(args.out, "a") as out:
            def tell(found):
                print(line_of(found), flush=True)
                print(json.dumps(found), file=out, flush=True)

            for i, spec in enumerate(runs):
                if time.time() - began > args.limit:
                    print(f"out of time, {len(runs) - i} of {len(runs)} runs left: go on with --resume", flush=True)
                    break

                servers.run(spec, tell)
            for kind in ("infer", "train"):
                servers.end(kind, tell)
    finally:
        servers.stop()


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def judged(ratios, bars):
    """One that is broken is enough; one that was not measured leaves it open."""
    known = [ratio <= bar for ratio, bar in zip(ratios, bars) if ratio is not None]
    if not all(known):
        return "missed"
    return "met" if len(known) == len(bars) else "open"


FIGURES = {"infer": "p99", "train": "ms"}


def job_of(result, kind):
    return next((part for part in result["name"].split("+") if part in (LATENCY if kind == "infer" else TRAINING)), None)


def alone_figures(results, result, kind):
    """Of the same job alone, by where they stand in the file. Inference's are of windows of the same length: these have the same
    arrivals, and p99 depends on them."""
    return {i: other[kind][FIGURES[kind]] for i, other in enumerate(results)
            if other["way"] == "alone" and FIGURES[kind] in (other.get(kind) or {}) and job_of(other, kind) == job_of(result, kind)
            and (kind == "train" or other["secs"] == result["secs"])}


def near(alone, at):
    """The mean of the last before and the first after."""
    before = [value for i, value in alone.items() if i <= at]
    after = [value for i, value in alone.items() if i >= at]
    ends = before[-1:] + after[:1]
    return sum(ends) / len(ends)


def ratios_near(results):
    """Each run's to the runs alone that are nearest to it in time."""
    found = {}
    for at, result in enumerate(results):
        for kind, figure in FIGURES.items():
            alone = alone_figures(results, result, kind) if figure in (result.get(kind) or {}) else {}
            if alone:
                key = (result["name"], result["way"], result["secs"], kind)
                found.setdefault(key, []).append(result[kind][figure] / near(alone, at))
    return found


def print_table(args):
    found, nearest = {}, {}
    for path in args.results:
        results = results_in(path)
        for key, ratios in ratios_near(results).items():
            nearest.setdefault(key, []).extend(ratios)
        for result in results:
            for kind, figure in FIGURES.items():
                if figure in (result.get(kind) or {}):
                    key = (result["name"], result["way"], result["secs"], kind)
                    found.setdefault(key, []).append(result[kind][figure])
    middle = {key: median(values) for key, values in found.items()}
    trained = {}
    for (name, way, _, kind), values in found.items():
        if (way, kind) == ("alone", "train"):
            trained.setdefault(name, []).extend(values)
    print("| inference + training | way | s | runs | p99 ms | / alone | training ms | / alone | bars |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, way, secs in sorted({key[:3] for key in found}, key=lambda key: (key[0].count("+"), *key)):
        parts = name.split("+")
        infer = next((part for part in parts if part in LATENCY), None)
        train = next((part for part in parts if part in TRAINING), None)
        runs = max(len(found.get((name, way, secs, kind), [])) for kind in ("infer", "train"))
        cells = [name, way, f"{secs:g}", str(runs)]
        ratios = []
        for kind, part in (("infer", infer), ("train", train)):
            value = middle.get((name, way, secs, kind))
            alone = middle.get((part, "alone", secs, kind)) if kind == "infer" else part in trained and median(trained[part])
            ratio = value / alone if value and alone else None
            ratios.append(median(nearest[name, way, secs, kind]) if args.near and ratio else ratio)
            cells += [f"{value:.2f}" if value else "", f"{ratios[-1]:.3f}" if ratios[-1] else ""]
        bars = BARS.get((infer, way.partition("+")[0]), {}).get(train)
        cells.append(f"{bars[0]:.2f}, {bars[1]:.2f}: {judged(ratios, bars)}" if bars else "")
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="measure")
    run.add_argument("--job", required=True)
    run.add_argument("--divvy", help="the divvy program, for the gate's ways")
    run.add_argument("--out", required=True, help="results are appended, one JSON object a line")
    run.add_argument("--suite", choices=("gate", "quick"), default="gate")
    run.add_argument("--repeats", type=int, default=3, help="of each preset in the suite")
    run.add_argument("--runs", nargs="+", metavar="NAME:WAY[:SECONDS]", help="these instead of a suite")
    run.add_argument("--resume", action="store_true", help="not those again whose results are in the file")
    run.add_argument("--scratch", default="/tmp")
    run.add_argument("--clocks", action="store_true", help="record the SM clock and power of each run")
    run.add_argument("--inference-cores", type=cores, default=[], metavar="0,2", help="these are for inference, the others for training")
    run.add_argument("--awake", action="store_true", help="keep the cores awake by idle loops in all runs")
    run.add_argument("--gpu-times", action="store_true",
                     help="of requests that replay a graph also the time by the GPU's clock (gpu_p50, gpu_p90, gpu_p99 in the results)")
    run.add_argument("--keep", action="store_true", help="one training process for all runs in a row that want the same")
    run.add_argument("--limit", type=float, default=1e9, help="start no run after so many seconds")
    run.set_defaults(call=run_all)
    table = commands.add_parser("table", help="medians and ratios of what was measured")
    table.add_argument("results", nargs="+")
    table.add_argument("--near", action="store_true", help="ratios to the runs alone just before and after, not to the median of all")
    table.set_defaults(call=print_table)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
