#!/usr/bin/env bash
# Plans a fleet, simulates its load and shares a GPU out anew while it serves; then
# cuts a node of three simulated H200s without touching what runs there, crashes on
# purpose and recovers; then runs two jobs on one simulated GPU, and serves two models
# under load. Called by `make demo` with the build folder; needs no GPU and
# no root, and leaves nothing behind.
set -euo pipefail

build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
node=$(mktemp -d)
trap 'rm -rf "$node"' EXIT

export DIVVY_NVML="$build/sim/libnvidia-ml.so.1" # the simulator in place of the driver's library
export DIVVY_NVML_SIM_STATE="$node/gpus.json"
export DIVVY_STATE_DIR="$node/state"
PATH="$build/apps/divvy:$build/apps/divvy-nvml-sim:$PATH"
plan=examples/plans/h200-demo.yaml

say() { printf '\n=== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@" 2>&1; }
sim() { divvy-nvml-sim "$@" >/dev/null; }

say "Three models with latency targets: the fewest A100s that carry them, and how they are cut."
run divvy plan examples/fleets/small.yaml

say "Does it hold? A load is played against two cuts and two ways to route."
run divvy simulate examples/fleets/small.yaml --plan exact --plan best-homogeneous \
  --route divvy --route elsa+merge+shed --bounded --html "$node/report.html"
printf 'The page with plots has %s bytes; keep one with: divvy simulate FLEET --html report.html\n' \
  "$(wc -c <"$node/report.html")"

say "Loads swing, models age: cut anew and retrain while serving, and compare with those who do not."
# Under sanitizers, where this is a test, the whole of it takes minutes.
run divvy simulate examples/fleets/continuous-learning.yaml --control migrator,ekya,static \
  --duration "${DIVVY_DEMO_DURATION:-400s}" --html "$node/control.html"
printf 'Its page, with who had which part of the GPU when, has %s bytes.\n' \
  "$(wc -c <"$node/control.html")"

say "A node with three simulated H200s. Training holds 3g.71gb of GPU 0; GPU 1 is fragmented."
sim init "$DIVVY_NVML_SIM_STATE" --gpus "H200-141GB+mig:2,H200-141GB"
sim create "$DIVVY_NVML_SIM_STATE" --gpu 0 --profile 3g.71gb --start 4
sim start "$DIVVY_NVML_SIM_STATE" --gpu 0 --start 4 --pid 4242 --name train.py --memory 60GiB
for start in 0 1 2 3; do
  sim create "$DIVVY_NVML_SIM_STATE" --gpu 0 --profile 1g.18gb --start $start
done
sim create "$DIVVY_NVML_SIM_STATE" --gpu 1 --profile 1g.18gb --start 1
sim create "$DIVVY_NVML_SIM_STATE" --gpu 1 --profile 1g.18gb --start 5
run divvy gpus

say "What we want: how many instances of which size, and what runs on them."
run divvy plan show $plan

say "The way there: Divvy chooses the places that disturb least, and shows each step."
run divvy apply $plan --dry-run

say "Apply it."
printf '$ divvy apply %s --yes\n' $plan
divvy apply $plan --yes 2>&1 >/dev/null # the steps were shown above; here is the progress
run divvy gpus | sed '/^MIG profiles/,$d'

say "Undo it, but crash halfway (kill -9 at the third instance to be destroyed), and recover."
printf '$ divvy apply --rollback --yes   # killed\n'
DIVVY_NVML_SIM_FAULTS="nvmlGpuInstanceDestroy@3=kill-after" \
  bash -c 'divvy apply --rollback --yes; true' >/dev/null 2>&1
run divvy layouts H200 --maximal | tail -n 1
run divvy apply --recover
run divvy gpus | sed '/^MIG profiles/,$d'

say "One GPU for a service and a training job: alone, together, and together behind the gate."
# The CUDA driver is simulated too: kernels take as long as the jobs say, and processes have 16 SMs in turns, which cost
# 0.15 ms each. What is preloaded plays the kernel module, which sets how long turns are.
job="$build/apps/divvy-sim-job/divvy-sim-job"
infer=(infer --stream own --graph 1 --kernels 10 --us 300 --blocks 64 --rate 30 --requests 60)
train=(train --kernels 20 --us 1000 --blocks 256 --secs 4)
on_gpu() { # in an environment where CUDA is the simulator's
  env LD_LIBRARY_PATH="$build/cuda-sim" LD_PRELOAD="$build/cuda-sim/libdivvy_rm_control.so" DIVVY_CUDA_SIM="$node/gpu" \
    DIVVY_BOARD_DIR="$node" DIVVY_CUDA_SIM_SPEC="gpus=1 sms=16 memory=8GiB mode=timeslice switch_us=150" "$@" 2>>"$node/gate.log"
}
figure() { grep -o "\"$1\": [0-9.]*" "$2" | cut -d" " -f2; }
printf '$ divvy run --class batch -- train &\n$ divvy run --class latency -- infer\n'
printf '  %-34s %18s %16s\n' '' 'inference p99, ms' 'training, ms'
on_gpu "$job" "${infer[@]}" >"$node/i" && on_gpu "$job" "${train[@]}" --secs 1 >"$node/t"
printf '  %-34s %18s %16s\n' 'each alone' "$(figure p99_ms "$node/i")" "$(figure ms_per_step "$node/t")"
for way in 'together, in the driver'\''s turns' 'together, divvy run'; do
  behind=(env)
  guarded=(env)
  if [[ $way == *run ]]; then
    behind=(divvy run --class batch --)
    guarded=(divvy run --class latency --)
  fi
  on_gpu "${behind[@]}" "$job" "${train[@]}" >"$node/t" & training=$!
  on_gpu "${guarded[@]}" "$job" "${infer[@]}" >"$node/i"
  wait $training
  printf '  %-34s %18s %16s\n' "$way" "$(figure p99_ms "$node/i")" "$(figure ms_per_step "$node/t")"
done

say "May two jobs share a GPU? Foretold from what each does alone; and the kernels of the training job above."
run divvy advise examples/jobs/serve-and-train.yaml
printf '$ divvy profile --ops --summary ops -- train\n'
on_gpu divvy profile --ops --summary "$node/ops" -- "$job" "${train[@]}" --secs 1 >/dev/null
head -n 5 "$node/ops"

say "Serve two models over HTTP and gRPC: one worker a partition, each request by its deadline."
cp examples/fleets/serve.yaml examples/fleets/serve-profiles.csv "$node"
if [[ -e "$build/engines/torch/libdivvy_engine_torch.so" ]]; then
  "$build/engines/torch/divvy-make-torchscript" "$node/classify.pt" conv
  "$build/engines/torch/divvy-make-torchscript" "$node/score.pt" mlp
  sed -i 's/# artifact:/artifact:/' "$node/serve.yaml"
  echo 'Both are TorchScript, run by libtorch on this machine'"'"'s cores.'
else
  echo 'libtorch is not installed (apt install libtorch-dev, then build again), so both are synthetic:'
  echo 'workers take the time that the profile says and compute nothing.'
fi
printf '$ divvy serve serve.yaml &\n'
divvy serve "$node/serve.yaml" --http 127.0.0.1:0 --grpc 127.0.0.1:0 --metrics 127.0.0.1:0 2>"$node/serve.log" & server=$!
for _ in $(seq 600); do grep -q ' ready$' "$node/serve.log" && break || sleep 0.1; done
grep -E 'listening| ready$' "$node/serve.log"
address=$(grep -o 'http=[0-9.:]*' "$node/serve.log" | cut -d= -f2)
run divvy bench "http://$address" --fleet "$node/serve.yaml" --duration "${DIVVY_DEMO_LOAD:-15s}"
kill -TERM $server
wait $server

say "Done. GPUs, driver and NVML were simulated: no GPU was used."
