#!/usr/bin/env bash
# Measures on a GPU node what the README's figures need, part by part.
#
#   bench/gpu/measure.sh BIN OUT PART...     (profile, repeat, serve, ops, study, gate)
#
# BIN has divvy, divvy-worker and libdivvy_gate.so beside each other, or is a build folder. Results are added to
# files in OUT; profiles that are finished there are not measured again. What fails is told, the rest goes on, and the end is
# not 0. PYTHON names a Python with PyTorch and torchvision (default: python3). ON=cpu rehearses without a GPU: give small
# models (FAMILIES) and options (PROFILE_OPTIONS, SERVE_OPTIONS, OPS_OPTIONS, STUDY_OPTIONS). The part gate wants GATE_JOB, a program of
# two kinds (bench/gpu/pairs.py), and takes GATE_OPTIONS; runs that are in its results are not made again.
set -euo pipefail

if [[ $# -lt 3 ]]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
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
ops=()
study=()
if [[ $on == cpu ]]; then
  type=FP32
  ops=(--device cpu --rounds 1 --blocks 2 --steps 2 --batch 4)
  study=(--device cpu --warmup 1s --limit 3s)
fi
[[ $on == mps ]] || crowded=

say() { printf '\n== %s (%s)\n' "$*" "$(date +%T)"; }

# Runs a command under `set -e`, which `if` and `||` would switch off inside it, and remembers in the caller's `failed` what
# has failed. GPU minutes are scarce: one failure does not cost what would come after it.
failed=()
attempt() { # WHAT COMMAND...
  local what=$1 status
  shift
  set +e
  (
    trap 'exit 130' INT
    set -e
    "$@"
  )
  status=$?
  set -e
  [[ $status != 130 ]] || exit 130
  [[ $status == 0 ]] && return
  echo "measure.sh: $what FAILED (exit $status)" >&2
  failed+=("$what")
}
nothing_failed() { [[ ${#failed[@]} == 0 ]]; }

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
  "$here/../../engines/torch/build.sh" "${TORCH_DIR:-$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')}" \
    "$out/engines/libdivvy_engine_torch.so"
}

export_model() { # FAMILY
  [[ -s $out/$1.json ]] && return
  "$python" "$here/models.py" export "$1" --to "$out/$1.pt" --type $type >"$out/$1.json.new"
  mv "$out/$1.json.new" "$out/$1.json" # Only now: a failed export must not look like a finished one.
}

words() { # FAMILY: what tells `divvy profile` of its inputs and outputs, one word a line
  "$python" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))["options"]))' "$out/$1.json" | sed 's/^--output$/--output-tensor/'
}

profile() { # FAMILY FILE [OPTIONS]
  local family=$1 file=$2
  shift 2
  mapfile -t inputs < <(words "$family")
  "$divvy" profile "$out/$family.pt" --model "$family" "${inputs[@]}" --engines "$out/engines" --on "$on" --save "$file" "$@"
}

profile_family() { # FAMILY
  # Under this name it is whole; divvy goes on with what a broken-off run left beside it.
  [[ -e $out/profile-$1.csv ]] && return
  export_model "$1"
  say "profile of $1"
  local begun=$SECONDS
  profile "$1" "$out/profile-$1.csv" ${PROFILE_OPTIONS:-} >"$out/profile-$1.txt"
  echo "$1 $((SECONDS - begun)) s" | tee -a "$out/profile-seconds.txt"
}

part_profile() {
  local failed=() family
  engine
  for family in ${FAMILIES:-resnet50 efficientnet_v2_s mobilenet_v2 vgg16 encoder decoder-step lstm-lm dlrm}; do
    attempt "profile of $family" profile_family "$family"
  done
  nothing_failed
}

part_repeat() { # the first family once more, every point measured: tables agree, left-out points are right
  local family=${REPEAT:-${FAMILIES:-resnet50}}
  family=${family%% *}
  engine
  profile_family "$family"
  if [[ ! -e $out/again-$family.csv ]]; then
    say "profile of $family again, all points"
    profile "$family" "$out/again-$family.csv" --all-points ${PROFILE_OPTIONS:-} >"$out/again-$family.txt"
  fi
  "$python" "$here/profiles.py" compare "$out/profile-$family.csv" "$out/again-$family.csv" | tee "$out/repeat-$family.md"
}

serve_family() { # FAMILY
  local family=$1
  export_model "$family"
  [[ -e $out/crowded-$family.csv ]] || profile "$family" "$out/crowded-$family.csv" $crowded ${PROFILE_OPTIONS:-} >"$out/crowded-$family.txt"
  say "cuts for $family"
  "$python" "$here/serve_cuts.py" run --divvy "$bin" --out "$out/serve-cuts.jsonl" --model "$family" --artifact "$out/$family.pt" \
    --profile "$out/crowded-$family.csv" --on "$on" --keep "$out" --serve-options "--engines $out/engines" \
    --serve "$("$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); print(json.dumps({k: d[k] for k in ("inputs", "outputs")}))' "$out/$family.json")" \
    ${SERVE_OPTIONS:-}
}

part_serve() {
  local failed=() family
  engine
  keep_awake
  for family in ${FAMILIES:-resnet50 encoder-small}; do
    attempt "cuts for $family" serve_family "$family"
  done
  let_sleep
  "$python" "$here/serve_cuts.py" table "$out/serve-cuts.jsonl" | tee "$out/serve-cuts.md"
  nothing_failed
}

part_ops() {
  local failed=()
  say "cost of the kernel log"
  keep_awake # A job that its CPU slows tells nothing of the log otherwise: runs of the LSTM differed by a quarter.
  attempt "a way of ops_cost.py" "$python" "$here/ops_cost.py" run --divvy "$divvy" --out "$out/ops-cost.jsonl" "${ops[@]}" ${OPS_OPTIONS:-} >/dev/null
  let_sleep
  "$python" "$here/ops_cost.py" table "$out/ops-cost.jsonl" | tee "$out/ops-cost.md"
  nothing_failed
}

collocate() { "$divvy" collocate "$out/study/jobs.yaml" --runs "$out/study/runs.csv" "$@"; }
collocate_told() { collocate --history "$out/collocations.csv" --html "$out/study.html" --prometheus "$out/study.prom" | tee "$out/study.txt"; }

part_study() {
  local failed=()
  say "jobs together"
  [[ -e $out/study/runs.csv ]] || "$python" "$here/study.py" --to "$out/study" --python "$(command -v "$python")" "${study[@]}" ${STUDY_OPTIONS:-}
  attempt "a run of the study" collocate_told
  # Where it told nothing it broke off, and runs are open. The table is finished otherwise, so that this runs nothing;
  # runs that failed make it end with 1 once more.
  [[ ! -s $out/study.txt ]] || collocate --history none -o json >"$out/study.json" || [[ -s $out/study.json ]]
  nothing_failed
}

part_gate() {
  say "pairs under the gate"
  "$python" "$here/pairs.py" run --keep --resume --job "${GATE_JOB:?names the program of the two jobs}" --divvy "$divvy" \
    --out "$out/gate.jsonl" ${GATE_OPTIONS:-}
  "$python" "$here/pairs.py" table --near "$out/gate.jsonl" | tee "$out/gate.md"
}

for part in "$@"; do
  declare -F "part_$part" >/dev/null || { echo "measure.sh: there is no part '$part': profile, repeat, serve, ops, study, gate" >&2; exit 2; }
done
trap 'exit 130' INT
for part in "$@"; do attempt "part $part" "part_$part"; done
nothing_failed || { printf 'measure.sh: failed: %s\n' "${failed[@]}" >&2; exit 1; }
