#!/usr/bin/env python3
"""Runs an inference job and a training job together on one GPU, under several ways of sharing it.

    bench/gpu/pairs.py run   --job JOB.py --divvy build/release/apps/divvy/divvy --out results.jsonl [--suite gate]
    bench/gpu/pairs.py table results.jsonl

JOB.py is a program of two kinds, `infer` and `train`, that prints `RESULT {json}` with latency percentiles from the
scheduled arrival, or milliseconds per step. Its line that waits for --start is replaced by a barrier, so that both
halves begin as soon as both are ready. The programs of the next run load and build their models while this one sets up,
and hold before they touch the GPU; no window begins before they do.

Ways: alone; slice (time slicing), mps, priority (MPS with client priority), percent (MPS, training at 40 % of the
SMs); tight, balanced, off and slo=20ms (through `divvy run`, `+no-mps` without MPS).
"""

import argparse
import json
import os
import subprocess
import sys
import time

CHILD = r"""
import sys, time
import torch, torchvision, json, random, argparse
path = sys.argv[1]
source = open(path).read()
def hold():
    print("LOADED", flush=True)
    if sys.stdin.readline().strip() != "go": sys.exit(0)
def barrier():
    print("READY", flush=True)
    begin = float(sys.stdin.readline())
    while time.time() < begin: time.sleep(0.001)
for old, new in (("m=m.to(dev)", "hold(); m=m.to(dev)"), ("while time.time()<a.start: time.sleep(0.001)", "barrier()")):
    assert source.count(old) == 1, "the job is not as expected: " + old
    source = source.replace(old, new)
sys.argv = sys.argv[1:]
exec(compile(source, path, "exec"), {"__name__": "__main__", "hold": hold, "barrier": barrier})
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


def run_of(infer, train, way, secs=10.0):
    name = "+".join(part for part in (infer, train) if part)
    return {"name": name, "infer": infer and LATENCY[infer], "train": train and TRAINING[train], "way": way, "secs": secs}


def suite(name):
    """The runs, those worth most first: a lease of a GPU may end before the list does."""
    if name == "quick":
        return [run_of("graph", None, "alone", 4.0), run_of("graph", "vgg16", "tight", 4.0)]

    def turn(infer, with_training):
        runs = [run_of(infer, None, "alone")]
        for train in TRAINING:
            runs += [run_of(None, train, "alone")] if with_training else []
            runs += [run_of(infer, train, way) for way in ("tight", "balanced")]
        return runs

    def others(train):
        return [run_of("graph", train, way, 6.0) for way in ("slice", "mps", "priority", "percent")]

    runs = turn("graph", True) + turn("eager", False)
    runs += [run_of("graph", None, "alone", 6.0), run_of(None, "vgg16", "alone", 6.0), *others("vgg16")]
    # What the gate costs a job that has the GPU to itself, and a loose SLO: three times the p99 alone.
    runs += [run_of(None, "rnnlm", "tight+no-mps"), run_of("graph", "vgg16", "slo=18ms")]
    runs += turn("graph", False) + turn("eager", False) + turn("graph", False)
    for train in ("rnnlm", "resnet50"):
        runs += [run_of(None, train, "alone", 6.0), *others(train)]
    runs += turn("eager", False)
    return runs + [run_of(None, train, "tight+no-mps") for train in ("vgg16", "resnet50")]


class Mps:
    """An MPS daemon of its own, started when first asked for."""

    def __init__(self):
        self.directory = f"/tmp/divvy-bench-mps-{os.getpid()}"
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


def command_and_environment(kind, way, divvy, mps, report, job):
    """How one half of a run is started."""
    name, *options = way.split("+")
    env = dict(os.environ)
    if name.startswith(GATED):
        command = [divvy, "run", "--report", report, "--class", "latency" if kind == "infer" else "batch"]
        if kind == "infer":
            command += ["--slo", name[4:]] if name.startswith("slo=") else ["--protect", name]
        if "no-mps" in options:
            command += ["--no-mps"]
        return [*command, "--", *job], env
    if name in ("mps", "priority", "percent"):
        env.update(mps.environment())
    if name == "priority" and kind == "train":
        env["CUDA_MPS_CLIENT_PRIORITY"] = "1"
    if name == "percent" and kind == "train":
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "40"
    return job, env


class Run:
    """The processes of one run, their models built, holding before the GPU."""

    def __init__(self, spec, args, mps):
        self.spec = spec
        self.report = os.path.join(args.scratch, f"divvy-report-{os.getpid()}.txt")
        self.jobs = {}
        for kind in ("infer", "train"):
            if spec.get(kind):
                job = [sys.executable, "-c", CHILD, args.job, kind, *spec[kind], "--secs", str(spec["secs"])]
                command, env = command_and_environment(kind, spec["way"], args.divvy, mps, self.report, job)
                self.jobs[kind] = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                   stderr=subprocess.PIPE, text=True)

    def expect(self, word):
        for kind, job in self.jobs.items():
            line = job.stdout.readline()
            if line.strip() != word:
                raise RuntimeError(f"{self.spec['name']} {kind}: {line}{job.stderr.read()[-2000:]}")

    def go(self, prepare_next):
        """Runs it; returns the results and the next run, prepared."""
        if os.path.exists(self.report):
            os.unlink(self.report)
        for job in self.jobs.values():
            print("go", file=job.stdin, flush=True)
        upcoming = prepare_next()
        self.expect("READY")
        if upcoming:
            upcoming.expect("LOADED")
        begin = time.time() + 0.3
        for job in self.jobs.values():
            print(begin, file=job.stdin, flush=True)
        results = {}
        for kind, job in self.jobs.items():
            out, err = job.communicate(timeout=self.spec["secs"] * 6 + 60)
            found = [line for line in out.splitlines() if line.startswith("RESULT ")]
            results[kind] = json.loads(found[0][7:]) if found else {"error": (out + err)[-1500:]}
            lines = [line for line in err.splitlines() if line.startswith("divvy:")]
            if lines:
                results[kind]["said"] = lines
        if os.path.exists(self.report):
            results["report"] = open(self.report).read().splitlines()
        return results, upcoming

    def kill(self):
        for job in self.jobs.values():
            job.kill()


def line_of(spec, results):
    parts = [f"{spec['way']:<18} {spec['name']:<28}"]
    infer, train = results.get("infer"), results.get("train")
    if infer:
        parts.append("infer " + (infer["error"][-300:] if "error" in infer else
                                 f"n {infer['n']} p50 {infer['p50']:.2f} p95 {infer['p95']:.2f} p99 {infer['p99']:.2f}"))
    if train:
        parts.append("train " + (train["error"][-300:] if "error" in train else f"{train['ms']:.3f} ms"))
    return " ".join(parts)


def run_all(args):
    args.divvy = args.divvy and os.path.abspath(args.divvy)
    runs = suite(args.suite)[args.skip:]
    mps = Mps()
    began = time.time()
    upcoming = Run(runs[0], args, mps)
    upcoming.expect("LOADED")
    with open(args.out, "a") as out:
        for i, spec in enumerate(runs):
            if time.time() - began > args.limit:
                print(f"out of time: go on with --skip {args.skip + i}", flush=True)
                break
            current, upcoming = upcoming, None
            following = runs[i + 1] if i + 1 < len(runs) else None
            try:
                results, upcoming = current.go(lambda: Run(following, args, mps) if following else None)
            except Exception as error:  # one bad run must not cost the others
                current.kill()
                results = {"error": str(error)}
                print(f"{spec['name']} {spec['way']}: {error}", flush=True)
            if upcoming is None and following:
                upcoming = Run(following, args, mps)
                upcoming.expect("LOADED")
            print(line_of(spec, results), flush=True)
            print(json.dumps({**spec, **results}), file=out, flush=True)
    if upcoming:
        upcoming.kill()
    mps.stop()


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def print_table(args):
    found = {}
    for path in args.results:
        with open(path) as file:
            for result in map(json.loads, file):
                for kind, figure in (("infer", "p99"), ("train", "ms")):
                    if figure in (result.get(kind) or {}):
                        key = (result["name"], result["way"], result["secs"], kind)
                        found.setdefault(key, []).append(result[kind][figure])
    middle = {key: median(values) for key, values in found.items()}
    # Ratios are to windows of the same length: these have the same arrivals, and p99 depends on them.
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
            value, alone = middle.get((name, way, secs, kind)), middle.get((part, "alone", secs, kind))
            ratios.append(value / alone if value and alone else None)
            cells += [f"{value:.2f}" if value else "", f"{ratios[-1]:.3f}" if ratios[-1] else ""]
        bars = BARS.get((infer, way), {}).get(train)
        met = bars and all(ratio is not None and ratio <= bar for ratio, bar in zip(ratios, bars))
        cells.append(f"{bars[0]:.2f}, {bars[1]:.2f}: {'met' if met else 'missed'}" if bars else "")
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="measure")
    run.add_argument("--job", required=True)
    run.add_argument("--divvy", help="the divvy program, for the gate's ways")
    run.add_argument("--out", required=True, help="results are appended, one JSON object a line")
    run.add_argument("--suite", choices=("gate", "quick"), default="gate")
    run.add_argument("--skip", type=int, default=0, help="runs of the suite made before")
    run.add_argument("--scratch", default="/tmp")
    run.add_argument("--limit", type=float, default=1e9, help="start no run after so many seconds")
    run.set_defaults(call=run_all)
    table = commands.add_parser("table", help="medians and ratios of what was measured")
    table.add_argument("results", nargs="+")
    table.set_defaults(call=print_table)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
