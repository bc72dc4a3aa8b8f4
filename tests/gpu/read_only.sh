#!/usr/bin/env bash
# Opt-in test on a node with a real, MIG-capable GPU: changes nothing.
#
#   tests/gpu/read_only.sh PATH_TO_DIVVY [FOLDER_FOR_RESULTS]
#
# Compares what `divvy gpus` says about GPU 0 with `nvidia-smi mig -lgip` and
# `-lgipp`, runs `divvy apply --dry-run`, times `divvy gpus`, and checks that the MIG
# mode is what it was.
set -euo pipefail

divvy=$1
results=${2:-$(mktemp -d)}
root=$(cd "$(dirname "$0")/../.." && pwd)

mode() { nvidia-smi -i 0 --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader; }
before=$(mode)

"$divvy" gpus | tee "$results/gpus.txt"
"$divvy" gpus -o json >"$results/gpus.json"
nvidia-smi mig -i 0 -lgip >"$results/lgip.txt"
nvidia-smi mig -i 0 -lgipp >"$results/lgipp.txt"

python3 - "$results" <<'PY'
import json, re, sys
results = sys.argv[1]
gpu = json.load(open(f"{results}/gpus.json"))["gpus"][0]
# "|   0  MIG 1g.18gb          19     7/7        16.00      No     16     1     0   |"
lgip = {}
for line in open(f"{results}/lgip.txt"):
    m = re.match(r"\|\s+\d+\s+MIG (\S+)\s+(\d+)\s+\d+/(\d+)\s+([\d.]+)\s+\w+\s+(\d+)", line)
    if m:
        lgip[int(m[2])] = (m[1], int(m[3]), float(m[4]), int(m[5]))
# "GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1"
lgipp = {}
for line in open(f"{results}/lgipp.txt"):
    m = re.search(r"Profile ID\s+(\d+) Placements?\s*:\s*\{([\d,]+)\}:(\d+)", line)
    if m:
        lgipp[int(m[1])] = ([int(s) for s in m[2].split(",")], int(m[3]))
ours = {p["id"]: p for p in gpu["profiles"]}
assert lgip and lgipp, "nvidia-smi's tables were not understood"
assert set(ours) == set(lgip) == set(lgipp), (sorted(ours), sorted(lgip), sorted(lgipp))
for i, p in ours.items():
    name, most, gib, sms = lgip[i]
    assert p["name"] == name, (p["name"], name)
    assert p["max_instances"] == most, (name, p["max_instances"], most)
    assert abs(p["memory_mib"] / 1024 - gib) < 0.01, (name, p["memory_mib"], gib)
    assert p["sms"] == sms, (name, p["sms"], sms)
    assert (p["starts"], p["memory_slices"]) == lgipp[i], (name, p["starts"], lgipp[i])
print(f"{len(ours)} profiles: names, ids, counts, memory, SMs and placements as nvidia-smi lists them")
PY

"$divvy" apply "$root/examples/plans/h200-one.yaml" --dry-run | tee "$results/dry-run.txt"
"$divvy" apply "$root/examples/plans/h200-one.yaml" --dry-run -o json >"$results/dry-run.json"

python3 - "$divvy" <<'PY'
import subprocess, sys, time
times = []
for _ in range(20):
    begin = time.perf_counter()
    subprocess.run([sys.argv[1], "gpus"], stdout=subprocess.DEVNULL, check=True)
    times.append(1e3 * (time.perf_counter() - begin))
times.sort()
print(f"divvy gpus: median {times[10]:.1f} ms, largest {times[-1]:.1f} ms of 20 runs")
PY

[[ "$(mode)" == "$before" ]] || { echo "the MIG mode changed" >&2; exit 1; }
echo "read-only test passed; MIG mode before and after: $before"
