#!/usr/bin/env python3
"""Writes the jobs and the table of runs of the collocation study, for `divvy collocate` to run.

    bench/gpu/study.py --to FOLDER
    divvy collocate FOLDER/jobs.yaml --runs FOLDER/runs.csv

Small, medium and large training jobs alone; two, three and seven copies of each; mixes; and a recommender with large
tables beside a large vision model: each by time slicing, MPS and Divvy's gate. At the end each job alone once more: speeds
are told against the first run, and the second says how steady that is. Seven of each size must fit an H200's
141 GB: batches are chosen for that. Models have random weights and made-up data (bench/gpu/models.py).
"""

import argparse
import json
import os
import sys

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.py")
# Name, family, batch.
JOBS = [("small", "resnet18-32", 128), ("medium", "efficientnet_v2_s", 64), ("large", "resnet152", 64), ("dlrm", "dlrm", 2048)]
SETS = [[(size, count)] for size in ("small", "medium", "large") for count in (2, 3, 7)] + [
    [("small", 1), ("medium", 1)], [("small", 1), ("large", 1)], [("medium", 1), ("large", 1)],
    [("small", 1), ("medium", 1), ("large", 1)], [("dlrm", 1), ("large", 1)]]
MODES = ["time-slicing", "mps", "gate"]
# Without a GPU: what two cores can do, to rehearse.
CPU_JOBS = [("small", "resnet18-32", 4), ("dlrm", "dlrm-small", 64)]
CPU_SETS = [[("small", 2)], [("small", 1), ("dlrm", 1)]]
CPU_MODES = ["time-slicing"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, help="folder to write to")
    parser.add_argument("--kind", default="H200-141GB")
    parser.add_argument("--power", type=float, default=700, help="limit of the board, in watts")
    parser.add_argument("--warmup", default="2s")
    parser.add_argument("--limit", default="8s", help="of a run, the warm-up included")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--device", default="cuda", help="cpu: a few small jobs, to rehearse")
    a = parser.parse_args()
    all_jobs, sets, modes = (CPU_JOBS, CPU_SETS, CPU_MODES) if a.device == "cpu" else (JOBS, SETS, MODES)
    os.makedirs(a.to, exist_ok=True)
    jobs = [{"name": name, "command": [a.python, MODELS, "train", family, "--batch", str(batch), "--seconds", "100000",
                                       "--device", a.device, "--barrier"],
             "ready": "^READY", "waits": True, "progress": "^step ([0-9]+)"} for name, family, batch in all_jobs]
    with open(os.path.join(a.to, "jobs.yaml"), "w") as file:
        json.dump({"gpu": {"kind": a.kind, "power": a.power}, "jobs": jobs, "run": {"warmup": a.warmup, "limit": a.limit}}, file, indent=1)
    with open(os.path.join(a.to, "runs.csv"), "w") as file:
        print("workload,mode,job", file=file)
        for name, _, _ in all_jobs:
            print(f"{name} alone,alone,{name}", file=file)
        for members in sets:
            title = " + ".join(f"{count} {name}" for name, count in members)
            for mode in modes:
                for name, count in members:
                    for _ in range(count):
                        print(f"\"{title}, {mode}\",{mode},{name}", file=file)
        for name, _, _ in all_jobs:
            print(f"{name} alone again,alone,{name}", file=file)


if __name__ == "__main__":
    main()
