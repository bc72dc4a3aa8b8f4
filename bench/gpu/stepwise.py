#!/usr/bin/env python3
"""What a request that is launched kernel by kernel takes, and training beside it, by the slice of training's turns: a model.

    bench/gpu/stepwise.py [--request-ms 5.3 10.5] [--launches 300] [--gpu-ms 2.28] [--rate 40] [--slice-us 800 1200]

The request's CPU launches one kernel after the other, each a little sooner or later than the mean; the GPU does what is there, gives
itself away when nothing is, and comes back a slice and a switch after the next launch. Requests come as pairs.py's job lets them come
(foretell.py), and training has what they leave. Rows are for the slices of `tight` and `balanced` (src/gate/slices.cc) and for those that
are named. Means of many requests; ratios are to the same request, and to training, alone.
"""

import argparse
import random
import statistics

import foretell

# As src/gate/slices.cc has them, in microseconds.
LEAST, MOST = 300, 4000
PARTS = {"tight": 1 / 10, "balanced": 1 / 5}
REQUESTS = 300


def slice_of(preset, request_us):
    return min(MOST, max(LEAST, request_us * PARTS[preset]))


def launches(request_us, count, kernel_us, generator):
    """When each is launched: the gaps are half of them the same, half of them at random."""
    half = (request_us - kernel_us) / count / 2
    now, found = 0.0, []
    for _ in range(count):
        now += half + generator.expovariate(1 / half)
        found.append(now)
    return found


def beside(launched, kernel_us, slice_us, switch_us):
    """When the request is over, and how much of that time training had the GPU. It has it at the beginning."""
    now, training, done = launched[0], launched[0], 0
    while True:
        now, training = now + slice_us + switch_us, training + slice_us
        while done < len(launched) and launched[done] <= now:
            now, done = now + kernel_us, done + 1
        if done == len(launched):
            return now, training
        now += switch_us
        if launched[done] > now:
            training += launched[done] - now
            now = launched[done]


def p99_ms(took_ms, rate):
    arrivals = foretell.arrivals_ms(rate, 10.0)
    return statistics.median(foretell.quantile(foretell.latencies_ms(arrivals, took_ms, took_ms, random.Random(seed).choice), 0.99)
                             for seed in range(20))


def row(request_ms, slice_us, args):
    """Request, p99 and training, over alone. A request's last switch back is training's loss too."""
    generator = random.Random(1)
    kernel_us = args.gpu_ms * 1e3 / args.launches
    alone, together, lost = [], [], []
    for _ in range(REQUESTS):
        launched = launches(request_ms * 1e3, args.launches, kernel_us, generator)
        end, training = beside(launched, kernel_us, slice_us, args.switch_us)
        alone.append((launched[-1] + kernel_us) / 1e3)
        together.append(end / 1e3)
        lost.append((end - training + args.switch_us) / 1e6)
    return (statistics.mean(together) / statistics.mean(alone), p99_ms(together, args.rate) / p99_ms(alone, args.rate),
            1 / (1 - args.rate * statistics.mean(lost)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--request-ms", type=float, nargs="+", default=[5.3, 10.5], help="alone; its CPU decides")
    parser.add_argument("--launches", type=int, default=300)
    parser.add_argument("--gpu-ms", type=float, default=2.28, help="all its kernels together")
    parser.add_argument("--switch-us", type=float, default=165, help="of the GPU from one to the other")
    parser.add_argument("--rate", type=float, default=40, help="requests a second")
    parser.add_argument("--slice-us", type=float, nargs="*", default=[800, 1200])
    args = parser.parse_args()
    print("| request ms | slice us | request | p99 | training |")
    print("|---|---|---|---|---|")
    for request_ms in args.request_ms:
        slices = [(f"{slice_of(preset, request_ms * 1e3):.0f}, {preset}", slice_of(preset, request_ms * 1e3)) for preset in PARTS]
        for name, slice_us in slices + [(f"{us:g}", us) for us in args.slice_us]:
            print(f"| {request_ms:g} | {name} | " + " | ".join(f"{ratio:.2f}" for ratio in row(request_ms, slice_us, args)) + " |")


if __name__ == "__main__":
    main()
