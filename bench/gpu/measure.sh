#!/usr/bin/env bash
# Measures on a GPU node what the README's figures need, part by part.
#
#   bench/gpu/measure.sh BIN OUT PART...     (profile, repeat, serve, ops, study)
#
# BIN has divvy, divvy-worker and libdivvy_gate.so beside each other, or is a build folder. Results are added to
# files in OUT. PYTHON names a Python with PyTorch and torchvision (default: python3). ON=cpu rehearses without a GPU, with
# small models (FAMILIES, default as below) and short probes.
set -euo pipefail

if [[ $# -lt 3 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
on=${ON:-mps}
[[ -x $bin/apps/divvy/divvy ]] && bin=$bin/apps/divvy
divvy=$bin/divvy
type=FP16
crowded=--crowded # What a planner should know of shares: others work beside them.
[[ $on == cpu ]] && type=FP32
[[ $on == mps ]] || crowded=

say() { printf '\n== %s (%s)\n' "$*" "$(date +%T)"; }

# A virtual machine's cores that sleep wake late, and a request wakes five of them. Loops that run when nobody else wants
# the core keep them awake.
keep_awake() {
  [[ $on == cpu ]] && return
  for _ in $(seq "$(nproc)"); do
    chrt -i 0 sh -c 'while :; do :; done' &
  done
  trap let_sleep EXIT
}
let_sleep() { jobs -p | xargs -r kill 2>/dev/null || true; }

engine() { # the torch engine, built against the PyTorch that is here
  [[ -e $out/engines/libdivvy_engine_torch.so ]] && return
  mkdir -p "$out/engines"
  "$here/../../engines/torch/build.sh" "${TORCH_DIR:-$($python -c 'import os, torch; print(os.path.dirname(torch.__file__))')}" \
    "$out/engines/libdivvy_engine_torch.so"
}

export_model() { # FAMILY
  [[ -e $out/$1.json ]] || $python "$here/models.py" export "$1" --to "$out/$1.pt" --type $type >"$out/$1.json"
}

words() { # FAMILY: what tells `divvy profile` of its inputs and outputs, one word a line
  $python -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))["options"]))' "$out/$1.json" | sed 's/^--output$/--output-tensor/'
}

profile() { # FAMILY FILE [OPTIONS]
  local family=$1 file=$2
  shift 2
  mapfile -t inputs < <(words "$family")
  "$divvy" profile "$out/$family.pt" --model "$family" "${inputs[@]}" --engines "$out/engines" --on "$on" --save "$file" "$@"
}

part_profile() {
  engine
  for family in ${FAMILIES:-resnet50 efficientnet_v2_s mobilenet_v2 vgg16 encoder decoder-step lstm-lm dlrm}; do
    export_model "$family"
    say "profile of $family"
    local begun=$SECONDS
    profile "$family" "$out/profile-$family.csv" ${PROFILE_OPTIONS:-} >"$out/profile-$family.txt"
    echo "$family $((SECONDS - begun)) s" | tee -a "$out/profile-seconds.txt"
  done
}

part_repeat() { # the first family once more, every point measured: tables agree, left-out points are right
  local family=${REPEAT:-resnet50}
  engine
  export_model "$family"
  say "profile of $family again, all points"
  profile "$family" "$out/again-$family.csv" --all-points ${PROFILE_OPTIONS:-} >"$out/again-$family.txt"
}

part_serve() {
  engine
  keep_awake
  for family in ${FAMILIES:-resnet50 encoder-small}; do
    export_model "$family"
    [[ -e $out/crowded-$family.csv ]] || profile "$family" "$out/crowded-$family.csv" $crowded ${PROFILE_OPTIONS:-} >"$out/crowded-$family.txt"
    say "cuts for $family"
    "$here/serve_cuts.py" run --divvy "$bin" --out "$out/serve-cuts.jsonl" --model "$family" --artifact "$out/$family.pt" \
      --profile "$out/crowded-$family.csv" --on "$on" --keep "$out" --serve-options "--engines $out/engines" \
      --serve "$($python -c 'import json, sys; d = json.load(open(sys.argv[1])); print(json.dumps({k: d[k] for k in ("inputs", "outputs")}))' "$out/$family.json")" \
      ${SERVE_OPTIONS:-}
  done
  let_sleep
  "$here/serve_cuts.py" table "$out/serve-cuts.jsonl" | tee "$out/serve-cuts.md"
}

part_ops() {
  say "cost of the kernel log"
  "$here/ops_cost.py" run --divvy "$divvy" --out "$out/ops-cost.jsonl" ${OPS_OPTIONS:-}
  "$here/ops_cost.py" table "$out/ops-cost.jsonl" | tee "$out/ops-cost.md"
}

part_study() {
  say "jobs together"
  [[ -e $out/study/runs.csv ]] || "$here/study.py" --to "$out/study" --python "$(command -v "$python")" ${STUDY_OPTIONS:-}
  "$divvy" collocate "$out/study/jobs.yaml" --runs "$out/study/runs.csv" --history "$out/collocations.csv" --html "$out/study.html" \
    | tee "$out/study.txt"
}

for part in "$@"; do
  declare -F "part_$part" >/dev/null || { echo "measure.sh: there is no part '$part': profile, repeat, serve, ops, study" >&2; exit 2; }
done
for part in "$@"; do "part_$part"; done
