#!/usr/bin/env python3
"""What logging kernels costs a training job: alone, under `divvy profile --ops`, under torch.profiler.

    bench/gpu/ops_cost.py run   --divvy build/release/apps/divvy/divvy --out ops.jsonl [--rounds 5] [--models resnet50 lstm-lm]
    bench/gpu/ops_cost.py table ops.jsonl
    bench/gpu/ops_cost.py train resnet50 [--profiler]       one job, which prints RESULT {json}

Each run is a process of its own; the ways take turns, in another order each round, and a way is held against the plain
run of the same round. Steps are timed after a warm-up, between two synchronisations, in blocks. A run counts by the
median of its blocks, which a hiccup of the machine does not move; the mean (ms_per_step) stands in the file too.
torch.profiler records CPU and CUDA activities around the same steps; what it takes to end is told apart and not counted.
Models are those of models.py, with random weights and data. A file that is there gets more rounds, numbered onwards.
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
# Batch, steps to warm up, steps to time, steps a block.
SIZES = {"resnet50": (64, 20, 150, 10), "lstm-lm": (128, 30, 300, 20)}
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

    batch, warm_up, steps, block = SIZES[args.model]
    batch, steps = args.batch or batch, args.steps or steps
    if device_is_cuda := args.device == "cuda":
        torch.backends.cudnn.benchmark = True
    wait = torch.cuda.synchronize if device_is_cuda else lambda: None
    step = models.training_step(args.model, batch, args.device)
    for _ in range(min(warm_up, steps)):
        step()
    wait()
    blocks = []
    with profiler_or_nothing(args.profiler, args.device):
        # The first step under a profiler sets it up.
        step()
        wait()
        for first in range(0, steps, block):
            count = min(block, steps - first)
            begin = time.perf_counter()
            for _ in range(count):
                step()
            wait()
            blocks.append((time.perf_counter() - begin) / count * 1e3)
        ending = time.perf_counter()
    end_s = time.perf_counter() - ending
    result = {"model": args.model, "batch": batch, "steps": steps, "ms_per_step": statistics.fmean(blocks),
              "median_ms": statistics.median(blocks), "blocks_ms": [round(ms, 4) for ms in blocks],
              "profiler_end_s": round(end_s, 3) if args.profiler else None, "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if device_is_cuda else "cpu"}
    print("RESULT " + json.dumps(result), flush=True)


def run_once(args, model, way, summary):
    job = [sys.executable, os.path.abspath(__file__), "train", model, "--device", args.device]
    job += ["--steps", str(args.steps)] if args.steps else []
    job += ["--batch", str(args.batch)] if args.batch else []
    if way == "profiler":
        job.append("--profiler")
    if way == "ops":
        job = [args.divvy, "profile", "--ops", "-o", "json", "--summary", summary, "--", *job]
    done = subprocess.run(job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode != 0 or not lines:
        return {"model": model, "error": f"exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"}
    result = json.loads(lines[-1][7:])
    if way == "ops":
        with open(summary) as file:
            document = json.load(file)
        result["log"] = {**document["totals"], "kinds": len(document["kernels"]), "notes": document["notes"],
                         "gpu_busy": [round(phase["gpu_busy"], 3) for phase in document["phases"]],
                         "first": document["kernels"][:5]}
        # A log that saw nothing costs nothing.
        if args.device != "cpu" and not document["totals"]["launches"]:
            return {"model": model, "error": f"no kernel was logged: {'; '.join(document['notes'])}"}
    return result


def results_in(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def run(args):
    first = 1 + max((r["round"] for r in results_in(args.out)), default=-1) if os.path.exists(args.out) else 0
    wanting = {(model, way) for model in args.models for way in args.ways}
    with tempfile.TemporaryDirectory() as scratch, open(args.out, "a") as out:
        for number in range(first, first + args.rounds):
            for model in args.models:
                turn = number % len(args.ways)
                for way in args.ways[turn:] + args.ways[:turn]:
                    result = {"round": number, "way": way, **run_once(args, model, way, scratch + "/summary.json")}
                    print(json.dumps(result), file=out, flush=True)
                    if "error" not in result:
                        wanting.discard((model, way))
                    told = result.get("error") or f"{result['median_ms']:.3f} ms a step"
                    print(f"round {number} {model} {way}: {told}", file=sys.stderr, flush=True)
    table(args)
    if wanting:
        names = ", ".join(f"{model} {way}" for model, way in sorted(wanting))
        raise SystemExit(f"ops_cost.py: nothing was measured of {names}")


def slowdowns(results, model, way):
    """Of each round that has both."""
    times = {(r["round"], r["way"]): r["median_ms"] for r in results if r["model"] == model and "error" not in r}
    return [times[n, way] / times[n, "plain"] - 1 for n, w in sorted(times) if w == way and (n, "plain") in times]


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
    runs.add_argument("--rounds", type=int, default=5)
    runs.add_argument("--models", nargs="+", choices=list(SIZES), default=list(SIZES))
    runs.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    runs.set_defaults(do=run)
    for each in (command, runs):
        each.add_argument("--device", default="cuda", help="cpu to rehearse")
        each.add_argument("--steps", type=int, help="other than usual")
        each.add_argument("--batch", type=int, help="other than usual")
    shown = commands.add_parser("table", help="of the results of runs")
    shown.add_argument("out", metavar="FILE.jsonl")
    shown.set_defaults(do=table)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
