#!/usr/bin/env python3
"""Holds two profiles of one model on one GPU against each other.

    bench/gpu/profiles.py compare A.csv B.csv

B was measured with --all-points. Points of both: do two runs say the same? Points that A left out: how far is the
straight line between A's neighbours of them, with which a profile answers, from what B measured? Partition and number
of processes are the same each time. A missed bar is told and is no failure; files without a common point are one.
"""

import argparse
import csv
import statistics
import sys

MOST_APART = 0.03  # two runs, by the median of their points
MOST_OFF = 0.05  # of a line from what was measured, at each point


def curves(path):
    """Latency by batch, by model, partition and processes."""
    found = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            key = row["model"], row["partition"], int(row.get("processes") or 1)
            found.setdefault(key, {})[int(row["batch"])] = float(row["latency_ms"])
    return found


def on_line(curve, batch):
    """None where a neighbour is missing: A may have ended earlier, which is no guess of its."""
    below, above = [b for b in curve if b < batch], [b for b in curve if b > batch]
    if not below or not above:
        return None
    left, right = max(below), min(above)
    return curve[left] + (curve[right] - curve[left]) * (batch - left) / (right - left)


def name_of(key, batch):
    _, partition, processes = key
    return f"{partition}, {f'{processes} processes, ' if processes > 1 else ''}batch {batch}"


def row_of(title, differences):
    if not differences:
        return f"| {title} | 0 | | | |"
    largest = max(differences, key=lambda one: one[0])
    return f"| {title} | {len(differences)} | {statistics.median(d for d, _ in differences):.2%} | {largest[0]:.2%} | {largest[1]} |"


def judged(title, value, most):
    return f"- {title}: {'met' if value <= most else 'MISSED'}: {value:.2%}, at most {most:.0%}"


def compare(args):
    first, second = curves(args.a), curves(args.b)
    both, left_out, beyond, gone = [], [], [], []
    for key, points in second.items():
        curve = first.get(key, {})
        for batch, latency in sorted(points.items()):
            name = name_of(key, batch)
            if batch in curve:
                both.append((abs(latency / curve[batch] - 1), name))
            elif (line := on_line(curve, batch)) is not None:
                left_out.append((abs(line / latency - 1), name))
            else:
                beyond.append(name)
    for key, points in first.items():
        gone += [name_of(key, batch) for batch in sorted(points) if batch not in second.get(key, {})]
    if not both:
        raise SystemExit(f"profiles.py: {args.a} and {args.b} have no point in common")
    print("| points | how many | median difference | largest | at |\n|---|---|---|---|---|")
    print(row_of("in both", both))
    print(row_of("left out, on the line between their neighbours", left_out))
    print()
    print(judged("two runs agree, by the median", statistics.median(d for d, _ in both), MOST_APART))
    title = "each point that was left out is near the line"
    print(judged(title, max(left_out)[0], MOST_OFF) if left_out else f"- {title}: not judged: nothing was left out")
    if beyond:
        print(f"- Only in {args.b}, without two neighbours in the other: {'; '.join(beyond)}")
    if gone:
        print(f"- Only in {args.a}: {'; '.join(gone)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("compare")
    verb.add_argument("a", metavar="A.csv")
    verb.add_argument("b", metavar="B.csv")
    verb.set_defaults(do=compare)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    sys.exit(main())
