#!/usr/bin/env python3
"""What logging kernels costs a training job: alone, under `divvy profile --ops`, under torch.profiler.

    bench/gpu/ops_cost.py run   --divvy build/release/apps/divvy/divvy --out ops.jsonl [--rounds 3] [--models resnet50 lstm-lm]
    bench/gpu/ops_cost.py table ops.jsonl
    bench/gpu/ops_cost.py train resnet50 [--profiler]       one job: a block for each line it reads, then RESULT {json}

Each way is a process of its own, started anew each round. All are there at once and take turns, a block of steps each,
in another order each time; who is not at it waits for a line on its standard input. So what the machine does meanwhile
meets all of them alike: runs one after the other differed by a fifth on their own. A block is held against the plain one
of its turn, and a round counts by the median of that. torch.profiler records CPU and CUDA activities around the same
steps; what it takes to end is told apart and not counted. Models are those of models.py, with random weights and data. A
file that is there gets more rounds, numbered onwards.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = ("plain", "ops", "profiler")
# Batch, steps to warm up, steps a block.
SIZES = {"resnet50": (64, 20, 10), "lstm-lm": (128, 30, 20)}
MOST_SLOWDOWN = 0.02  # of `divvy profile --ops`
MOST_OF_PROFILER = 0.1  # its slowdown by that of torch.profiler


def profiler_or_nothing(wanted, device):
    if not wanted:
        return contextlib.nullcontext()
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda"))


def train(args):
    import models
    import torch

    batch, warm_up, block = SIZES[args.model]
    batch, block = args.batch or batch, args.steps or block
    if device_is_cuda := args.device == "cuda":
        torch.backends.cudnn.benchmark = True
    wait = torch.cuda.synchronize if device_is_cuda else lambda: None
    step = models.training_step(args.model, batch, args.device)
    for _ in range(min(warm_up, 2 * block)):
        step()
    wait()
    blocks = []
    with profiler_or_nothing(args.profiler, args.device):
        print("READY", flush=True)
        for _ in iter(sys.stdin.readline, ""):
            step()  # The GPU and its caches were another's.
            wait()
            begin = time.perf_counter()
            for _ in range(block):
                step()
            wait()
            blocks.append((time.perf_counter() - begin) / block * 1e3)
            print("BLOCK", flush=True)
        ending = time.perf_counter()
    end_s = time.perf_counter() - ending
    if not blocks:
        sys.exit("ops_cost.py train: no line came on standard input, and so no block was trained")
    result = {"model": args.model, "batch": batch, "steps": block * len(blocks), "ms_per_step": statistics.fmean(blocks),
              "median_ms": statistics.median(blocks), "blocks_ms": [round(ms, 4) for ms in blocks],
              "profiler_end_s": round(end_s, 3) if args.profiler else None, "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if device_is_cuda else "cpu"}
    print("RESULT " + json.dumps(result), flush=True)


class Job:
    """One way of training a model, in a process that trains a block when it is told to."""

    def __init__(self, args, model, way, scratch):
        self.model, self.way = model, way
        self.summary = os.path.join(scratch, "summary.json")
        command = [sys.executable, os.path.abspath(__file__), "train", model, "--device", args.device]
        command += ["--steps", str(args.steps)] if args.steps else []
        command += ["--batch", str(args.batch)] if args.batch else []
        if way == "profiler":
            command.append("--profiler")
        if way == "ops":
            command = [args.divvy, "profile", "--ops", "-o", "json", "--summary", self.summary, "--", *command]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)

    def read(self, word):
        """The next line that begins so; what the libraries print is passed over. Nothing: the job has ended."""
        return next((line for line in iter(self.process.stdout.readline, "") if line.startswith(word)), None)

    def train_block(self):
        """False if it has ended instead."""
        try:
            print("go", file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return False
        return self.read("BLOCK") is not None

    def result(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        line = self.read("RESULT ")
        if self.process.wait() != 0 or line is None:
            self.errors.seek(0)
            return {"model": self.model, "error": f"exit {self.process.returncode}: {self.errors.read()[-1500:]}"}
        result = json.loads(line[7:])
        return {**result, "log": self.log()} if self.way == "ops" else result

    def log(self):
        with open(self.summary) as file:
            document = json.load(file)
        itself = {key: sum(process[key] for process in document["processes"]) for key in ("timing_seconds", "streams_let_go")}
        return {**document["totals"], **itself, "kinds": len(document["kernels"]), "notes": document["notes"],
                "gpu_busy": [round(phase["gpu_busy"], 3) for phase in document["phases"]], "first": document["kernels"][:5]}


def run_round(args, model, number):
    """What each way found."""
    with tempfile.TemporaryDirectory() as scratch:
        jobs = [Job(args, model, way, scratch) for way in args.ways]
        going = [job.read("READY") is not None for job in jobs]
        for block in range(args.blocks if all(going) else 0):
            turn = (number + block) % len(jobs)
            if not all([job.train_block() for job in jobs[turn:] + jobs[:turn]]):
                break  # What comes after is held against nothing.
        return [(job.way, job.result()) for job in jobs]


def results_in(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def run(args):
    first = 1 + max((r["round"] for r in results_in(args.out)), default=-1) if os.path.exists(args.out) else 0
    wanting = {(model, way) for model in args.models for way in args.ways}
    with open(args.out, "a") as out:
        for number in range(first, first + args.rounds):
            for model in args.models:
                for way, found in run_round(args, model, number):
                    # A log that saw nothing costs nothing.
                    if args.device != "cpu" and "log" in found and not found["log"]["launches"]:
                        found = {"model": model, "error": f"no kernel was logged: {'; '.join(found['log']['notes'])}"}
                    result = {"round": number, "way": way, "in_turns": True, **found}
                    print(json.dumps(result), file=out, flush=True)
                    if "error" not in result:
                        wanting.discard((model, way))
                    told = result.get("error") or f"{result['median_ms']:.3f} ms a step"
                    print(f"round {number} {model} {way}: {told}", file=sys.stderr, flush=True)
    table(args)
    if wanting:
        names = ", ".join(f"{model} {way}" for model, way in sorted(wanting))
        raise SystemExit(f"ops_cost.py: nothing was measured of {names}")


def slowdown(result, plain):
    """The median over a round's turns. Results from before there were any are of runs one after the other: their blocks do not
    belong to each other, and the medians are compared."""
    if not (result.get("in_turns") and plain.get("in_turns")):
        return result["median_ms"] / plain["median_ms"] - 1
    return statistics.median(ms / alone for ms, alone in zip(result["blocks_ms"], plain["blocks_ms"])) - 1


def slowdowns(results, model, way):
    """Of each round that has both."""
    found = {(r["round"], r["way"]): r for r in results if r["model"] == model and "error" not in r}
    return [slowdown(found[n, way], found[n, "plain"]) for n, w in sorted(found) if w == way and (n, "plain") in found]


def verdict(ops, profiler):
    parts = [f"{'met' if ops <= MOST_SLOWDOWN else 'MISSED'}: {ops:+.2%}, at most {MOST_SLOWDOWN:.0%}"]
    if profiler is not None:
        good = ops <= MOST_OF_PROFILER * profiler
        share = f"{ops / profiler:.2f}" if profiler > 0 else "no"
        parts.append(f"{'met' if good else 'MISSED'}: {share} of torch.profiler's, at most {MOST_OF_PROFILER:g}")
    return "; ".join(parts)


def table(args):
    results = results_in(args.out)
    print("| model | way | rounds | ms a step (median) | slowdown (median) | least to most |\n|---|---|---|---|---|---|")
    bars = []
    for model in dict.fromkeys(r["model"] for r in results):
        medians = {}
        for way in WAYS:
            times = [r["median_ms"] for r in results if (r["model"], r["way"]) == (model, way) and "error" not in r]
            ratios = slowdowns(results, model, way)
            if not times or not ratios:
                continue
            medians[way] = statistics.median(ratios)
            print(f"| {model} | {way} | {len(times)} | {statistics.median(times):.3f} | {medians[way]:+.2%} "
                  f"| {min(ratios):+.2%} to {max(ratios):+.2%} |")
        if "ops" in medians:
            bars.append(f"- {model}: {verdict(medians['ops'], medians.get('profiler'))}")
    print("\n" + "\n".join(bars))
    for r in results:
        if "error" in r:
            print(f"- round {r['round']} {r['model']} {r['way']} failed: {r['error']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train", help="one job")
    command.add_argument("model", choices=list(SIZES))
    command.add_argument("--profiler", action="store_true")
    command.set_defaults(do=train)
    runs = commands.add_parser("run", help="all ways, in turns")
    runs.add_argument("--divvy", required=True)
    runs.add_argument("--out", required=True)
    runs.add_argument("--rounds", type=int, default=3)
    runs.add_argument("--blocks", type=int, default=20, help="of each way in a round")
    runs.add_argument("--models", nargs="+", choices=list(SIZES), default=list(SIZES))
    runs.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    runs.set_defaults(do=run)
    for each in (command, runs):
        each.add_argument("--device", default="cuda", help="cpu to rehearse")
        each.add_argument("--steps", type=int, help="a block, other than usual")
        each.add_argument("--batch", type=int, help="other than usual")
    shown = commands.add_parser("table", help="of the results of runs")
    shown.add_argument("out", metavar="FILE.jsonl")
    shown.set_defaults(do=table)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
