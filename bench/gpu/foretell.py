#!/usr/bin/env python3
"""What the requests' own times, measured by `pairs.py run --gpu-times`, say of the latency that clients would see.

    bench/gpu/foretell.py RESULTS... [--secs 10] [--rate 40]

Requests come when the job's generator lets them come, wait for the one before, and take as long as one that was measured,
drawn at random: those that come right behind another from such ones, the others from the others. So p99 is foretold for windows
that were not run, and for what would be if requests in a row took no longer than alone (column `held`). How far to trust it
shows in the two columns before: p99 as measured, and foretold for the same window. Ratios are to the inference alone in the
same file, foretold likewise.
"""

import argparse
import json
import random
import statistics

# A request that begins so soon after the end of the one before was there already.
IN_A_ROW_MS = 0.1
DRAWS = 200


def arrivals_ms(rate, secs):
    """As the job has them: from a generator of its own, always the same."""
    generator, now, found = random.Random(1), 0.0, []
    while (now := now + generator.expovariate(rate)) <= secs:
        found.append(now * 1e3)
    return found


def times_of(result):
    """What requests took that came to an idle job, and those in a row."""
    requests = result["infer"]["requests_ms"]
    return ([took for since, _, took, _ in requests if since >= IN_A_ROW_MS],
            [took for since, _, took, _ in requests if since < IN_A_ROW_MS])


def latencies_ms(arrivals, first, in_a_row, draw):
    """Without what lies between two requests on the client's side."""
    free, found = 0.0, []
    for arrival in arrivals:
        free = arrival + draw(first) if arrival > free else free + draw(in_a_row)
        found.append(free - arrival)
    return found


def quantile(values, part):
    """As the job has it."""
    return sorted(values)[int(len(values) * part)]


def replayed(result, rate, secs, part, in_a_row):
    first, _ = times_of(result)
    arrivals = arrivals_ms(rate, secs)
    return statistics.median(quantile(latencies_ms(arrivals, first, in_a_row, random.Random(seed).choice), part) for seed in range(DRAWS))


def foretold(result, rate, secs, in_a_row=None):
    """p99. What lies between two requests on the client's side is the same for all: p50 as measured, less p50 of the draws."""
    first, own = times_of(result)
    own = own or first
    between = result["infer"]["p50"] - replayed(result, rate, result["secs"], 0.5, own)
    return between + replayed(result, rate, secs, 0.99, in_a_row or own)


def results_in(path):
    with open(path) as file:
        found = [json.loads(line) for line in file if line.endswith("\n")]
    return [one for one in found if (one.get("infer") or {}).get("requests_ms")]


def table(path, rate, secs):
    rows = []
    alone = None
    for result in results_in(path):
        p99 = foretold(result, rate, secs)
        if result["way"] == "alone":
            alone = alone or (p99, times_of(result)[1])
        cells = [result["name"], result["way"], f"{result['secs']:g}", f"{result['infer']['p99']:.2f}",
                 f"{foretold(result, rate, result['secs']):.2f}", f"{p99:.2f}"]
        if alone:
            held = foretold(result, rate, secs, alone[1])
            cells += [f"{p99 / alone[0]:.3f}", f"{held:.2f}", f"{held / alone[0]:.3f}"]
        rows.append(cells + [""] * (9 - len(cells)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--secs", type=float, default=10.0, help="of the window that is foretold")
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second, that of the job")
    args = parser.parse_args()
    print(f"| inference + training | way | s | p99 ms, measured | foretold for it | for {args.secs:g} s | / alone | held | / alone |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in args.results:
        for row in table(path, args.rate, args.secs):
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
