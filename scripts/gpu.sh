#!/usr/bin/env bash
# Runs everything that needs a GPU, and prints one table: tests, compute-sanitizer, meshes of 1 to 8 ranks that share
# the GPU, repeatability, benchmarks with the GPU's clocks and power, a comparison with PyTorch. Runs from a bundle
# (scripts/bundle.sh --build build/cuda --tests --benchmarks), which has a copy of this file, or from a build:
#
#   scripts/gpu.sh [--bundle PATH | --build DIR] [options]
#     --bundle PATH    an unpacked bundle, or its archive (default: the bundle that contains this file)
#     --build DIR      a build folder (default build/cuda)
#     --out DIR        logs and results (default benchmarks/results/DATE; from a bundle gpu-DATE)
#     --text PATH      a folder of text to train on, may be repeated (default: this source tree and the system's C headers)
#     --python FILE    a Python with PyTorch and h5py (default .venv/bin/python, else python3)
#     --budget N       seconds for all steps (1500); steps that do not fit are skipped and reported
#     --only REGEX     only steps whose name matches
#     --device cpu     run on the CPU, to test this script without a GPU, with --only
#     --dry-run        list the steps, and run none
#
# Exit code 1 if a step failed or was skipped.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(dirname "$here")

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
fail() { echo "gpu.sh: $1" >&2; exit "${2:-1}"; }

bundle='' build=$source/build/cuda budget=1500 only=. device=cuda dry=0 out='' text=() python=
[[ ! -f $here/env.sh ]] || bundle=$here
while (($#)); do
  case $1 in
    --bundle) bundle=${2:?--bundle needs a path}; shift ;;
    --build) bundle='' build=$(realpath "${2:?--build needs a folder}"); shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --text) text+=("$(realpath "${2:?--text needs a folder}")"); shift ;;
    --python) python=${2:?--python needs a file}; shift ;;
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    --only) only=${2:?--only needs a regular expression}; shift ;;
    --device) device=${2:?--device needs a name}; shift ;;
    --dry-run) dry=1 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; fail "no such option: $1" 2 ;;
  esac
  shift
done

work=$(mktemp -d)
watcher=
trap '[[ -z $watcher ]] || kill "$watcher" 2>/dev/null; rm -rf "$work"' EXIT
if [[ -f $bundle ]]; then
  mkdir "$work/bundle" && tar -C "$work/bundle" -xf "$bundle" || fail "cannot unpack $bundle"
  bundle=$(echo "$work"/bundle/*)
fi
libraries=${LD_LIBRARY_PATH:-}  # for PyTorch, which has its own CUDA libraries: those of a bundle may be another version
if [[ -n $bundle ]]; then
  bundle=$(realpath "$bundle")
  [[ -f $bundle/env.sh && -d $bundle/tests && -d $bundle/benchmarks ]] ||
    fail "$bundle is not a bundle with tests and benchmarks: create one with scripts/bundle.sh --build build/cuda --tests --benchmarks"
  . "$bundle/env.sh"
  lyceum=$bundle/bin/lyceum tests=$bundle/tests benchmarks=$bundle/benchmarks configs=$bundle/share/lyceum/configs
  . "$bundle/share/lyceum/mpi-env.sh"
else
  lyceum=$build/apps/lyceum tests=$build/tests benchmarks=$build/benchmarks configs=$source/configs
  . "$source/scripts/mpi-env.sh"
fi
[[ -x $lyceum ]] || fail "no program $lyceum: cmake --build $build"
if [[ -z $out ]]; then
  if [[ $bundle == "$here" ]]; then out=$PWD/gpu-; else out=$source/benchmarks/results/; fi
  out+=$(date -u +%Y%m%d-%H%M%S)
fi
if [[ -z $python ]]; then
  python=$source/.venv/bin/python
  [[ -x $python ]] || python=python3
fi
((${#text[@]})) || for folder in "$source/lib" "$source/tests" "$source/docs" /usr/include; do
  [[ ! -d $folder ]] || text+=("$folder")
done

table=()
row() { printf -v line '%-26s %7s  %s' "$@"; table+=("$line"); }
failed=0

# step NAME LIMIT COMMAND …: runs a command, at most LIMIT seconds, and adds a line to the table. A test that finds no device
# returns 77, which counts as a failure.
step() {
  local name=$1 limit=$2 left=$((budget - SECONDS)) started=$SECONDS code=0
  shift 2
  [[ $name =~ $only ]] || return 0
  if ((dry)); then
    printf '%-26s %4d s at most: %s\n' "$name" "$limit" "$*"
    return 0
  fi
  if ((left < 10)); then
    row "$name" - "skipped: the budget of $budget s is used up"
    failed=1
    return 0
  fi
  printf '== %s (at %d s)\n' "$name" "$SECONDS"
  (cd "$work" && timeout --kill-after=5 $((limit < left ? limit : left)) "$@") >"$out/$name.log" 2>&1 || code=$?
  case $code in
    0) row "$name" "$((SECONDS - started)) s" "ok" ;;
    77) row "$name" "$((SECONDS - started)) s" "NOT RUN: no device" ;;
    124 | 137) row "$name" "$((SECONDS - started)) s" "FAILED: exceeded its time limit" ;;
    *) row "$name" "$((SECONDS - started)) s" "FAILED: exit code $code" ;;
  esac
  if ((code)); then
    failed=1
    tail -n 12 "$out/$name.log" | sed 's/^/    /'
  fi
}

# bench …: runs a step while nvidia-smi logs clocks, power and temperature five times a second. Their values while
# the GPU was busy are added to the table and to the JSON of the step.
bench() {
  [[ $1 =~ $only ]] || return 0
  local clocks
  if ((!dry)) && command -v nvidia-smi >/dev/null; then
    nvidia-smi -i "${gpu%%,*}" --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu \
      --format=csv,noheader,nounits -lms 200 >"$out/$1.clocks.csv" 2>/dev/null &
    watcher=$!
  fi
  step "$@"
  [[ -n $watcher ]] || return 0
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  watcher=
  clocks=$(python3 "$work/clocks.py" "$out/$1") && table[-1]+=$clocks
}
gpu=${CUDA_VISIBLE_DEVICES:-0}

cat >"$work/clocks.py" <<'PY'
import csv, json, os, statistics, sys
path, names = sys.argv[1], {"sm_mhz": 1, "memory_mhz": 2, "power_watts": 3, "celsius": 4}
rows = []
for row in csv.reader(open(path + ".clocks.csv")):
    try:
        rows.append([0.0] + [float(word) for word in row[1:6]])
    except ValueError:  # a number that this GPU does not report, or an incomplete line
        pass
busy = [row for row in rows if len(row) == 6 and row[5] >= 50]
clocks = {"samples": len(rows), "busy_samples": len(busy)}
for name, column in names.items() if busy else ():
    values = [row[column] for row in busy]
    clocks[name] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
results = path + ".json"
if os.path.exists(results):
    content = json.load(open(results))
    for one in content if isinstance(content, list) else [content]:
        one["clocks"] = clocks
    with open(results, "w") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
if busy:
    say = lambda name: "/".join(f"{clocks[name][key]:.0f}" for key in ("min", "median", "max"))
    print(f"; SM {say('sm_mhz')} MHz, {say('power_watts')} W, {say('celsius')} C (min/median/max)")
PY

export LYCEUM_PROGRAM=$lyceum LYCEUM_WORK=$work  # for the scripts below: functions do not pass through `timeout`

cat >"$work/tiny.ini" <<INI
[run]
steps = 6
threads = 1
[data]
train = $work/data/train
tokenizer = $work/data/tokenizer.model
[batch]
global = 8
seq_len = 64
[model]
vocab = 8192
layers = 4
hidden = 64
heads = 4
kv_heads = 2
first_dense_layers = 1
init_std = 0.02
[moe]
experts = 8
shared_experts = 1
top_k = 2
expert_hidden = 44
[balance]
expert = 0.01
[optim]
lr = 3e-3
warmup_steps = 2
[eval]
every = 0
[checkpoint]
every = 6
INI

# mesh RANKS DEVICE PRECISION NAME OPTION …: makes a short run in $work/NAME.
cat >"$work/mesh.sh" <<'SH'
set -euo pipefail
ranks=$1 device=$2 precision=$3 name=$4
mpirun -n "$ranks" "$LYCEUM_PROGRAM" train --config "$LYCEUM_WORK/tiny.ini" --run.device="$device" --run.precision="$precision" \
  --run.dir="$LYCEUM_WORK/$name" "${@:5}"
SH
# same.sh NAME TOLERANCE NAME …: fails unless the losses and gradient norms of the other runs agree with those of the first.
cat >"$work/same.sh" <<'SH'
set -euo pipefail
python3 - "$LYCEUM_WORK" "$@" <<'PY'
import json, sys
work, first, tolerance, *others = sys.argv[1:]
def read(name):
    rows = [json.loads(line) for line in open(f"{work}/{name}/metrics.jsonl")]
    return [(r["loss"], r["grad_norm"]) for r in rows if "loss" in r and "grad_norm" in r]
expected, bad = read(first), 0
assert expected, f"{first} has no steps"
for name in others:
    got = read(name)
    worst = max((abs(a - b) / abs(b) for g, e in zip(got, expected) for a, b in zip(g, e)), default=float("nan"))
    good = len(got) == len(expected) and worst <= float(tolerance)
    bad += not good
    print(f"{name:<24} {len(got)} steps, worst relative difference to {first} {worst:.1e}: {'ok' if good else 'FAILED'}")
sys.exit(bad > 0)
PY
SH
mesh=(bash "$work/mesh.sh") same=(bash "$work/same.sh")

if ((!dry)); then
  mkdir -p "$out" && out=$(realpath "$out") || fail "cannot create $out"
  [[ $device == cpu ]] || nvidia-smi --list-gpus 2>/dev/null | grep -q . || fail "nvidia-smi lists no GPU"
fi

step device 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit --format=csv
step tokens 120 "$lyceum" tokenize "${text[@]/#/--input=}" --vocab 8192 --model "$work/data/tokenizer.model" \
  --output "$work/data/train" --sample-mb 4

step gpu_test 300 "$tests/gpu_test"
step gpu_training_test 240 "$tests/gpu_training_test"

# The same training runs on the CPU, on the GPU, and on meshes of ranks that share the GPU.
step cpu 60 "${mesh[@]}" 1 cpu f32 cpu
step mesh-1 60 "${mesh[@]}" 1 "$device" f32 mesh-1
step mesh-2-expert 60 "${mesh[@]}" 2 "$device" f32 mesh-2-expert --parallel.expert=2
step mesh-2-zero3 60 "${mesh[@]}" 2 "$device" f32 mesh-2-zero3 --parallel.zero=3
step mesh-4-tensor 60 "${mesh[@]}" 4 "$device" f32 mesh-4-tensor --parallel.tensor=2 --parallel.sequence=true --parallel.expert=2
step mesh-8-all 90 "${mesh[@]}" 8 "$device" f32 mesh-8-all --parallel.pipeline=2 --parallel.tensor=2 --parallel.expert=4 \
  --parallel.zero=1 --batch.micro=2
step mesh-equality 20 "${same[@]}" cpu 1e-3 mesh-1 mesh-2-expert mesh-2-zero3 mesh-4-tensor mesh-8-all
step again 60 "${mesh[@]}" 1 "$device" bf16 again-a
step again-b 60 "${mesh[@]}" 1 "$device" bf16 again-b
step same-bits 30 "$lyceum" checkpoint diff "$work/again-a/checkpoints" "$work/again-b/checkpoints"

step timed 60 "${mesh[@]}" 1 "$device" bf16 timed-a --run.gemm_choice=timed
step timed-b 60 "${mesh[@]}" 1 "$device" bf16 timed-b --run.gemm_choice=timed "--run.gemm_file=$work/timed-a/gemm.json"
step same-bits-timed 30 "$lyceum" checkpoint diff "$work/timed-a/checkpoints" "$work/timed-b/checkpoints"

paper=("--config=$configs/papers/deepseekmoe-2b.ini" --batch.global=16 --batch.micro=16)
step plan-2b 20 bash -c '"$@" --json >"$0"' "$out/plan-2b.json" "$lyceum" plan "${paper[@]}"
bench train_step-2b 240 "$benchmarks/bench_train_step" --device "$device" "${paper[@]}" --tokens "$work/data/train" --steps 20 \
  --routing both --json "$out/train_step-2b.json"
bench train_step-2b-864 240 "$benchmarks/bench_train_step" --device "$device" "${paper[@]}" --moe.expert_hidden=864 \
  --tokens "$work/data/train" --steps 20 --routing both --json "$out/train_step-2b-864.json"
bench grouped_gemm 120 "$benchmarks/bench_grouped_gemm_cuda"

scripts=$source/benchmarks
[[ -z $bundle ]] || scripts=$benchmarks
compare=(env "LD_LIBRARY_PATH=$libraries" "$python" "$scripts/compare_pytorch.py" --device "$device" --program "$lyceum"
  --precision bf16 --run.gemm_choice=timed)
step pytorch-equality 150 "${compare[@]}" --config "$configs/deepseekmoe-small.ini" --equality-only --equality-steps 8 \
  --json "$out/pytorch-equality.json"
bench pytorch-speed 420 "${compare[@]}" "${paper[@]}" --speed-only --rounds 3 --steps 10 --tokens "$work/data/train" \
  --json "$out/pytorch-speed.json"

small=("$lyceum" train --config "$work/tiny.ini" "--run.device=$device" --run.steps=2 --checkpoint.every=0)
check=(compute-sanitizer --target-processes all --error-exitcode 9 --tool)
for tool in memcheck racecheck; do
  step $tool-f32 150 "${check[@]}" $tool "${small[@]}" "--run.dir=$work/$tool-f32"
  step $tool-bf16 150 "${check[@]}" $tool "${small[@]}" "--run.dir=$work/$tool-bf16" --run.precision=bf16
done

if ((!dry)); then
  echo
  { printf '%-26s %7s  %s\n' step time result; printf '%s\n' "${table[@]}"; echo "total $SECONDS s; logs and results in $out"; } |
    tee "$out/summary.txt"
fi
exit $failed
