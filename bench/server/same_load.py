#!/usr/bin/env python3
"""One trace through `divvy simulate` and through `divvy serve` with synthetic workers: p50, p95 and what is in time, side by side.

    bench/server/same_load.py BUILD [--seconds 40]

Two models on one cut GPU, Poisson arrivals, requests of several sizes for one of them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from served import Served

MODELS = {"a": {"slo": 60, "rate": 118, "sizes": (1, 1, 2, 2, 2, 4, 4, 8), "first": 4, "item": 1.2},
          "b": {"slo": 150, "rate": 25, "sizes": (1,), "first": 12, "item": 9}}
PLAN = """version: 1
gpus:
  - gpu: 0
    kind: A100-80GB
    instances:
      - {profile: 2g.20gb, count: 2, runs: [{model: a, batch: 16}]}
      - {profile: 3g.40gb, runs: [{model: b, batch: 16}]}
"""
BARS = {"p50_ms": 0.05, "p95_ms": 0.05, "in time": 0.01}


def write_inputs(folder, seconds):
    profiles = ["model,partition,processes,batch,latency_ms,p95_ms,memory_mib,gpu,source"]
    fleet = ["gpus: {kind: A100-80GB, count: 1}", "models:"]
    requests = []
    chance = random.Random(1)
    for name, model in MODELS.items():
        for partition, speed in (("2g", 1.0), ("3g", 0.7)):
            for batch in (1, 2, 4, 8, 16):
                ms = speed * (model["first"] + model["item"] * batch)
                profiles.append(f"{name},{partition},1,{batch},{ms:.3f},,1000,A100-80GB,made up")
        fleet.append(f"  - {{name: {name}, profile: profiles.csv, slo: {model['slo']}ms, load: {{trace: trace.csv}}}}")
        at = chance.expovariate(model["rate"])
        while at < seconds:
            requests.append((at, name, chance.choice(model["sizes"])))
            at += chance.expovariate(model["rate"])
    trace = ["arrival_s,model,batch", *(f"{at:.6f},{name},{batch}" for at, name, batch in sorted(requests))]
    for file_name, lines in (("profiles.csv", profiles), ("fleet.yaml", fleet), ("trace.csv", trace), ("plan.yaml", [PLAN])):
        with open(os.path.join(folder, file_name), "w") as file:
            file.write("\n".join(lines) + "\n")


def simulated(divvy, folder):
    words = [divvy, "simulate", "fleet.yaml", "--plan", "plan.yaml", "-o", "json"]
    rows = json.loads(subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout)["rows"]
    return {row["model"]: {"p50_ms": row["p50_ms"], "p95_ms": row["p95_ms"], "in time": row["slo_attainment"]} for row in rows}


def measured(divvy, folder):
    with Served(divvy, ["fleet.yaml", "--plan", "plan.yaml"], cwd=folder) as served:
        words = [divvy, "bench", f"http://{served.http}", "--fleet", "fleet.yaml", "--precise", "--warmup", "0s", "-o", "json"]
        answer = json.loads(subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout)
    return {one["model"]: {"p50_ms": one["latency"]["p50"]["ms"], "p95_ms": one["latency"]["p95"]["ms"], "in time": one["attainment"]}
            for one in answer["models"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=40)
    args = parser.parse_args()
    divvy = os.path.abspath(os.path.join(args.build, "apps/divvy/divvy"))
    with tempfile.TemporaryDirectory(prefix="divvy-bench-") as folder:
        write_inputs(folder, args.seconds)
        said, found = simulated(divvy, folder), measured(divvy, folder)
    print(f"{'model':>5} {'':>8} {'simulated':>10} {'served':>10} {'apart':>8}")
    for model in MODELS:
        for figure, bar in BARS.items():
            one, other = said[model][figure], found[model][figure]
            apart = other - one if figure == "in time" else other / one - 1
            print(f"{model:>5} {figure:>8} {one:10.3f} {other:10.3f} {apart:+8.1%}  (bar {bar:.0%}): {'met' if abs(apart) <= bar else 'MISSED'}")


if __name__ == "__main__":
    sys.exit(main())
