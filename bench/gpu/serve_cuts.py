#!/usr/bin/env python3
"""Serves one model on one GPU under several cuts, and finds for each the highest rate whose p95 is within the SLO.

    bench/gpu/serve_cuts.py run --divvy BIN --out results.jsonl --model resnet50 --artifact resnet50.pt --profile p.csv \\
        --serve '{"inputs": [...], "outputs": [...]}' [--on mps]
    bench/gpu/serve_cuts.py sweep --divvy BIN --model resnet50 --profile p.csv [--factors 1.5 2 3 4]
    bench/gpu/serve_cuts.py table results.jsonl

`sweep` asks the simulator alone, for several SLOs.
Cuts: PARIS' (with our routing, and with ELSA), one worker on the whole GPU, seven equal ones (with first-idle routing as
usual, and with ours). What `divvy simulate` foretells from the same profile, with the whole SLO, stands beside what was
measured through `divvy serve` and `divvy bench`. The SLO is --slo-factor times what the largest batch takes on the
partition --slo-on (PARIS was evaluated with that of a whole GPU, on eight of them; on one GPU nothing but the whole could
keep it). Planner and ELSA aim at --margin of it: a profile knows neither the way from the client nor what the host does
in between. Sizes of requests are log-normal. Without --artifact workers are synthetic: that rehearses the script, no more.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
from served import Served  # noqa: E402

CUTS = ["paris/divvy", "paris/elsa", "homogeneous-7g/divvy", "homogeneous-1g/divvy", "homogeneous-7g/fifs", "homogeneous-1g/fifs"]

METRIC = re.compile(r'(?P<name>divvy_(?:partition|estimate)\w+)\{[^}]*partition="(?P<partition>[^"]+)"[^}]*\} (?P<value>\S+)')


def sizes(a):
    return {"median": a.median, "sigma": 0.9, "max": a.largest}


def slo_ms(a):
    """A multiple of the largest batch on the partition named."""
    with open(a.profile) as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == a.model and row["partition"] == a.slo_on]
    if not rows:
        raise SystemExit(f"serve_cuts.py: {a.profile} has nothing of {a.model} on {a.slo_on}")
    return round(a.slo_factor * float(min(rows, key=lambda row: abs(int(row["batch"]) - a.largest))["latency_ms"]), 3)


def fleet(a, slo):
    model = {"name": a.model, "profile": os.path.abspath(a.profile), "slo": f"{slo}ms",
             "load": {"rate": 1, "batch": {"lognormal": sizes(a)}}}
    serve = json.loads(a.serve)
    if a.artifact:
        serve["artifact"] = os.path.abspath(a.artifact)
    if serve:
        model["serve"] = serve
    return json.dumps({"gpus": {"kind": a.kind, "count": 1}, "models": [model]})  # JSON is YAML.


def planned(a, path, slo, policy):
    """The file of a plan that aims at a part of the SLO."""
    with open(path, "w") as file:
        file.write(fleet(a, round(a.margin * slo, 3)))
    plan = f"{path}.{policy}.plan"
    words = [f"{a.divvy}/divvy", "plan", path, "--policy", policy, "--no-compare", "--save", plan]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    # 1: the plan has no room for the largest requests, and is written all the same.
    if done.returncode not in (0, 1) or not os.path.exists(plan):
        raise SystemExit(f"serve_cuts.py: {' '.join(words)}: {done.stderr}")
    return plan


def foretold(a, slo, plan, route):
    """With the whole SLO, whatever the served router is told: the measurement is held against that."""
    words = [f"{a.divvy}/divvy", "simulate", "-", "--plan", plan, "--route", route, "--bounded", "--requests", "50000", "-o", "json"]
    answer = json.loads(subprocess.run(words, input=fleet(a, slo), check=True, capture_output=True, text=True).stdout)
    partitions = [one["profile"] for one in answer["partitions"]]
    return answer["rows"][0]["latency_bounded_rps"], partitions


def shortly(partitions):
    """4 x 1g, 3g."""
    names = [name.split(".")[0] for name in partitions]
    kinds = sorted(set(names), key=lambda name: int(re.match("[0-9]*", name)[0] or 0))
    return ", ".join(f"{names.count(kind)} x {kind}" if names.count(kind) > 1 else kind for kind in kinds)


def partitions_done(metrics):
    """What each has done, by the server's own metrics: batches, items in them, wait, time, and how far that was from what was foretold."""
    with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
        lines = [METRIC.fullmatch(line) for line in answer.read().decode().splitlines()]
    values = {(line["partition"], line["name"]): float(line["value"]) for line in lines if line}
    return {name: {"batches": values[name, "divvy_partition_batches_total"],
                   "items": values[name, "divvy_partition_items_total"],
                   "queue_ms": values[name, "divvy_partition_queue_ms_sum"] / max(1, values[name, "divvy_partition_queue_ms_count"]),
                   "compute_ms": values[name, "divvy_partition_compute_ms_sum"] / max(1, values[name, "divvy_partition_compute_ms_count"]),
                   "estimate_error": values.get((name, "divvy_estimate_error_ratio"))}
            for name in sorted({name for name, _ in values})}


def measured(a, http, slo, begin):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as clients:  # A fleet's SLO is judged, and not sent along.
        clients.write(fleet(a, slo).replace('"rate": 1,', f'"rate": {begin:.0f},'))
        clients.flush()
        words = [f"{a.divvy}/divvy", "bench", f"http://{http}", "--fleet", clients.name, "--search", "--percentile", "95",
                 "--resolution", str(a.resolution), "--duration", f"{a.seconds}s", "--warmup", "500ms", "--connections", "256", "-o", "json"]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def prepared(a, path, slo, policy, route):
    """Leaves the server's fleet in `path`. The deadline that the router is told, and the plan."""
    plan = planned(a, path, slo, policy)
    # ELSA takes the smallest partition that is just in time; ours keeps room as it has learned, and refuses.
    aim = slo if route == "divvy" else round(a.margin * slo, 3)
    with open(path, "w") as file:
        file.write(fleet(a, aim))
    return aim, plan


def sweep(a):
    print(f"| factor | SLO | {' | '.join(a.cuts)} | cut of the first |\n|---|---|{'---|' * len(a.cuts)}---|")
    with tempfile.TemporaryDirectory(prefix="divvy-cuts-") as folder:
        for a.slo_factor in a.factors:
            slo, rates, first = slo_ms(a), [], None
            for policy, route in (cut.split("/") for cut in a.cuts):
                plan = planned(a, f"{folder}/fleet.yaml", slo, policy)
                rate, partitions = foretold(a, slo, plan, route)
                rates.append(f"{rate:.0f}")
                first = first or shortly(partitions)
            print(f"| {a.slo_factor} | {slo:.1f} ms | {' | '.join(rates)} | {first} |", flush=True)


def run(a):
    slo = slo_ms(a)
    with tempfile.TemporaryDirectory(prefix="divvy-cuts-") as folder, open(a.out, "a") as out:
        path = os.path.join(a.keep or folder, f"{a.model}.yaml")
        for policy, route in (cut.split("/") for cut in a.cuts):
            aim, plan = prepared(a, path, slo, policy, route)
            rate, partitions = foretold(a, slo, plan, route)
            words = [path, "--plan", plan, "--route", route, "--on", a.on, *a.serve_options.split()]
            with Served(f"{a.divvy}/divvy", words, f"{plan}.{route}.log") as served:
                found = measured(a, served.http, slo, max(1, 0.6 * rate))
                done = partitions_done(served.metrics)
            line = {"model": a.model, "slo_ms": slo, "aim_ms": aim, "margin": a.margin, "plan": policy, "route": route,
                    "partitions": partitions, "on": a.on, "synthetic": not a.artifact, "foretold_rps": rate,
                    "measured_rps": found["highest_rate_per_s"], "missed_rps": found["missed_rate_per_s"], "note": a.note, "done": done,
                    "probes": [{key: probe.get(key) for key in ("rate_per_s", "held", "sent", "in_time", "refused", "late")} for probe in found["probes"]]}
            print(json.dumps(line), file=out, flush=True)
            print(f"{a.model} {policy} {route} {shortly(partitions)}: foretold {rate:.0f}/s, measured {line['measured_rps'] or 0:.0f}/s", flush=True)


def table(a):
    with open(a.results) as file:
        rows = [json.loads(line) for line in file]
    best = {}
    for row in rows:
        key = row["model"], row["slo_ms"]
        best[key] = max(best.get(key, 0), row["measured_rps"] or 0)
    print("| model | SLO | cut | route | partitions | foretold /s | measured /s | of the best |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        rate = row["measured_rps"] or 0
        print(f"| {row['model']} | {row['slo_ms']:.1f} ms | {row['plan']} | {row['route']} | {shortly(row['partitions'])} "
              f"| {row['foretold_rps']:.0f} | {rate:.0f} | {rate / (best[row['model'], row['slo_ms']] or 1):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run")
    one.add_argument("--out", required=True, help="file to add lines to")
    one.add_argument("--artifact", default="", help="TorchScript file")
    one.add_argument("--serve", default="{}", help="the model's `serve` section, as JSON")
    one.add_argument("--serve-options", default="", help="more for divvy serve")
    one.add_argument("--on", default="mps", choices=["mps", "cpu", "mig"])
    one.add_argument("--slo-factor", type=float, default=2.4, help="the SLO by the time of --slo-on")
    one.add_argument("--seconds", type=float, default=3, help="of a probe")
    one.add_argument("--resolution", type=float, default=4, help="of the search, in percent")
    one.add_argument("--keep", help="folder for fleet and logs")
    one.add_argument("--note", default="")
    three = verbs.add_parser("sweep")
    three.add_argument("--factors", type=float, nargs="+", default=[1.5, 2, 2.5, 3, 4, 6, 8], help="SLOs by the time of --slo-on")
    three.set_defaults(artifact="", serve="{}")
    for verb in (one, three):
        verb.add_argument("--divvy", required=True, help="folder of divvy")
        verb.add_argument("--model", required=True)
        verb.add_argument("--profile", required=True)
        verb.add_argument("--kind", default="H200-141GB")
        verb.add_argument("--slo-on", default="64sm", help="partition whose time for the largest request makes the SLO")
        verb.add_argument("--margin", type=float, default=0.75, help="of the SLO: what planner and ELSA aim at")
        verb.add_argument("--cuts", nargs="+", default=CUTS, metavar="PLAN/ROUTE")
        verb.add_argument("--median", type=float, default=6)
        verb.add_argument("--largest", type=int, default=32)
    two = verbs.add_parser("table")
    two.add_argument("results")
    a = parser.parse_args()
    {"run": run, "sweep": sweep, "table": table}[a.verb](a)


if __name__ == "__main__":
    sys.exit(main())
