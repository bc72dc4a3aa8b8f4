#!/usr/bin/env python3
"""Makes fleets for continuous learning from published measurements and traces.

    make_scenarios.py --data DIR --out DIR [--divvy PROGRAM]

DIR of --data is what DIVVY_DATA names elsewhere; it is read, never changed. --divvy is
the program that imports profiles, build/release/apps/divvy/divvy if left out. Written
are profiles.csv, training.csv and one fleet a scenario; the same input gives the same
bytes. On standard output stand the files that were written.
"""

import argparse
import csv
import datetime
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILES = "parvagpu_a100_mig_mps/profiles.csv"
SLOS = "parvagpu_a100_mig_mps/scenarios/slo_latency_ms.csv"
MIGPERF = "migperf_a100_mig/long.csv"
MISO = "miso_a100_40gb_mig_training/train_iter_time_per_mig_slice.csv"
AZURE = "azure_llm_inference_2023/AzureLLMInferenceTrace_{}.csv"

KIND = "A100-80GB"
RUN_S = 600  # Three windows.
IN_TIME = 0.45  # Latency over SLO that a plan may use: safety 0.9, half of it waiting.

# Models of the SLO table, in its order.
SERVED = ["bert", "densenet121", "densenet169", "densenet201", "inceptionv3", "mobilenetv2",
          "resnet101", "resnet152", "resnet50", "vgg16", "vgg19"]

# The batch at which each training was measured on most sizes; of MIGPerf the sequence too.
MISO_BATCHES = {"bert": 4, "mobilenet": 512, "resnet": 256, "transformer": 32}
MIGPERF_BATCHES = {("resnet50", ""): 32, ("bert-base", "128"): 32}

# Whose training a served model has. Most of those served were not trained by anybody
# who published it: another network of about the same weight stands in.
TRAINED_AS = {"bert": "bert-base", "densenet121": "resnet", "densenet169": "resnet50",
              "inceptionv3": "resnet50", "mobilenetv2": "mobilenet", "resnet101": "resnet50",
              "resnet50": "resnet50", "vgg16": "transformer"}

# Ours: how long options of retraining take on a 3g instance, and what comes of them.
OPTIONS = [("quick", 25, 0.80), ("half", 50, 0.86), ("full", 90, 0.90)]

HEAD = """\
# {title}
# Made by bench/scenarios/make_scenarios.py; do not edit.
# Published: latencies and SLOs (ParvaGPU, SC'24), training speeds (MIGPerf, MISO){published}.
# Ours: accuracies, drifts, what retraining brings and how many samples it takes (25, 50 and
# 90 s on a 3g), which training stands in for a model that none was published of, and the
# rates (at their means {percent:.0f} % of what {gpus} could answer in time){ours}.
"""


def rounded(value, digits=3):
    """To so many significant digits, without a needless '.0'."""
    if value == 0:
        return 0
    result = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    return int(result) if result == int(result) else result


def read_csv(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def import_profiles(divvy, data, out):
    """Writes profiles.csv by `divvy profile import` and returns its rows."""
    path = out / "profiles.csv"
    done = subprocess.run([divvy, "profile", "import", "--from", "parvagpu",
                           str(data / PROFILES), "--save", str(path)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{divvy} profile import: {done.stderr.strip()}")
    return read_csv(path)


def read_slos(data):
    """Milliseconds by model: the row that has all of them."""
    with open(data / SLOS, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if "N/A" not in row]
    return dict(zip(SERVED, map(float, rows[0])))


def training_speeds(data):
    """Rows of training.csv: (model, size, samples a second, MiB or '', GPU, source)."""
    rows = []
    for row in read_csv(data / MIGPERF):
        batch = MIGPERF_BATCHES.get((row["model"], row["seq_len"]))
        if (row["gpu"], row["kind"], row["batch"]) != (KIND, "train", str(batch)):
            continue
        speed = batch * 1000 / float(row["latency_ms"])
        rows.append((row["model"], row["mig_profile"].split(".")[0], rounded(speed, 4),
                     rounded(float(row["fb_used_mib_mean"]), 5), KIND, "published: MIGPerf"))
    for row in read_csv(data / MISO):
        batch = MISO_BATCHES.get(row["model"])
        if row["batch"] != str(batch):
            continue
        rows.append((row["model"], row["mig_profile"].split(".")[0],
                     rounded(batch / float(row["mean_s"]), 4), "", "A100-40GB",
                     "published: MISO, SoCC'22"))
    return sorted(rows)


def capacity(profiles, model, slo_ms):
    """Requests a second that one GPU answers in time, cut for this model alone."""
    best = {}
    for row in profiles:
        latency = float(row["latency_ms"])
        if row["model"] != model or latency > IN_TIME * slo_ms:
            continue
        rate = int(row.get("processes") or 1) * int(row["batch"]) * 1000 / latency
        best[row["partition"]] = max(best.get(row["partition"], 0), rate)
    cuts = [{"1g": 7}, {"2g": 3, "1g": 1}, {"3g": 2}, {"4g": 1, "3g": 1}, {"7g": 1}]
    return max(sum(count * best.get(size, 0) for size, count in cut.items()) for cut in cuts)


def bin_counts(data, trace, step_s):
    """Arrivals of an Azure trace in each step since its first."""
    counts = []
    first = None
    for row in read_csv(data / AZURE.format(trace)):
        at = datetime.datetime.strptime(row["TIMESTAMP"][:26], "%Y-%m-%d %H:%M:%S.%f")
        first = first or at
        index = int((at - first).total_seconds() // step_s)
        counts.extend([0] * (index + 1 - len(counts)))
        counts[index] += 1
    return counts


def smoothed(counts):
    """A weighted mean with the two neighbours on either side, as far as there are any."""
    weights = {-2: 1, -1: 2, 0: 3, 1: 2, 2: 1}
    result = []
    for i in range(len(counts)):
        near = {k: w for k, w in weights.items() if 0 <= i + k < len(counts)}
        result.append(sum(counts[i + k] * w for k, w in near.items()) / sum(near.values()))
    return result


def normalised(values):
    mean = sum(values) / len(values)
    return [round(value / mean, 3) for value in values]


def sine(step_s, period_s, amplitude, shift):
    """A day of `period_s`, begun at `shift` of it; each factor is that of its step's middle."""
    steps = period_s // step_s
    return normalised([1 + amplitude * math.sin(2 * math.pi * ((i + 0.5) / steps + shift))
                       for i in range(steps)])


def shape_lines(step_s, factors):
    lines = ["      shape:", f"        step: {step_s}s", "        factors: ["]
    for i in range(0, len(factors), 12):
        lines.append("          " + ", ".join(f"{f:g}" for f in factors[i:i + 12]) + ",")
    lines[-1] = lines[-1].rstrip(",") + "]"
    return lines


class Maker:
    def __init__(self, data, out, divvy):
        self.out = out
        self.profiles = import_profiles(divvy, data, out)
        self.slos = read_slos(data)
        self.on_3g = {}
        rows = training_speeds(data)
        for model, size, speed, *_ in rows:
            if size == "3g":
                self.on_3g[model] = speed
        with open(out / "training.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["model", "size", "samples_per_s", "memory_mib", "gpu", "source"])
            writer.writerows(rows)
        self.written = ["profiles.csv", "training.csv"]

    def tenant(self, index, model, share, drift, load):
        """Lines of a model that needs `share` of a GPU at its mean."""
        slo = self.slos[model]
        rate = rounded(share * capacity(self.profiles, model, slo))
        trained_as = TRAINED_AS[model]
        accuracy = [0.82, 0.78, 0.85, 0.75][index % 4]
        lines = [f"  - name: {model}", "    profile: profiles.csv", f"    slo: {slo:g}ms",
                 "    load:", f"      rate: {rate}", *load, "    learning:",
                 f"      accuracy: {accuracy}", f"      drift: {drift:g}", "      floor: 0.3",
                 f"      speed: {{file: training.csv, model: {trained_as}}}", "      options:"]
        for name, seconds, reached in OPTIONS:
            samples = rounded(seconds * self.on_3g[trained_as], 2)
            reached = round(reached - 0.01 * (index % 3), 2)
            lines.append(f"        - {{name: {name}, samples: {samples}, accuracy: {reached}}}")
        lines.append("      uncertainty: 0.01")
        return lines

    def write(self, name, title, gpus, tenants, published="", ours="", control=()):
        """`tenants`: (model, share of a GPU, drift, lines of the load)."""
        percent = 100 * sum(share for _, share, _, _ in tenants) / gpus
        lines = ["gpus:", f"  kind: {KIND}", f"  count: {gpus}", "models:"]
        for index, tenant in enumerate(tenants):
            lines += self.tenant(index, *tenant)
        lines += ["control:", "  slot: 1s", "  window: 200s", "  every: 5s", *control]
        head = HEAD.format(title=title, published=published, ours=ours, percent=percent,
                           gpus="the GPU" if gpus == 1 else f"the {gpus} GPUs")
        path = self.out / f"{name}.yaml"
        path.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
        self.written.append(path.name)


def steady_2(maker):
    maker.write("steady-2", "Two tenants on one GPU; the load is steady, the world moves slowly.",
                1, [("resnet50", 0.40, 0.03, []), ("mobilenetv2", 0.36, 0.04, [])])


def diurnal_4(maker):
    step_s, period_s = 10, 300
    models = [("resnet50", 0.40), ("densenet121", 0.40), ("inceptionv3", 0.38), ("bert", 0.36)]
    tenants = [(model, share, 0.05,
                shape_lines(step_s, sine(step_s, period_s, 0.7, index / len(models))))
               for index, (model, share) in enumerate(models)]
    maker.write("diurnal-4", "Four tenants on two GPUs; days of 300 s, a quarter of a day apart.",
                2, tenants, ours=", and how they swing", control=[f"  season: {period_s}s"])


def bursty_8(maker, data):
    step_s = 10
    counts = {trace: bin_counts(data, trace, step_s) for trace in ("code", "conv")}
    models = [("resnet50", 0.42), ("resnet101", 0.40), ("densenet121", 0.40),
              ("densenet169", 0.36), ("inceptionv3", 0.40), ("mobilenetv2", 0.36),
              ("vgg16", 0.40), ("bert", 0.34)]
    steps = RUN_S // step_s
    tenants = []
    for index, (model, share) in enumerate(models):
        trace = ("code", "conv")[index % 2]
        first = 6 + index // 2 * steps  # A minute in: the traces begin in the midst of things.
        factors = normalised(smoothed(counts[trace])[first:first + steps])
        load = ["      arrivals: {gamma: {cv: 2}}", *shape_lines(step_s, factors)]
        tenants.append((model, share, (0.03, 0.05, 0.08)[index % 3], load))
    maker.write("bursty-8", "Eight tenants on four GPUs; stretches of two traces, in bursts.",
                4, tenants, published=",\n# shapes of the load (Azure's LLM traces of 2023)")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--divvy", type=pathlib.Path, metavar="PROGRAM",
                        default=ROOT / "build/release/apps/divvy/divvy")
    options = parser.parse_args()
    for needed in (options.divvy, options.data / PROFILES, options.data / SLOS,
                   options.data / MIGPERF, options.data / MISO,
                   *(options.data / AZURE.format(trace) for trace in ("code", "conv"))):
        if not needed.is_file():
            sys.exit(f"make_scenarios.py: there is no {needed}")
    options.out.mkdir(parents=True, exist_ok=True)
    maker = Maker(options.data, options.out, options.divvy)
    steady_2(maker)
    diurnal_4(maker)
    bursty_8(maker, options.data)
    for name in maker.written:
        print(options.out / name)


if __name__ == "__main__":
    main()
