#!/usr/bin/env bash
# Runs everything that needs a GPU, in three parts of at most nine minutes each, and prints a table:
#   1  the device, libraries, a training step, the tests of label gpu
#   2  the program's test (from a source tree), meshes of 1 to 8 ranks that share the GPU, losses of PyTorch, compute-sanitizer
#   3  benchmarks, while clocks and power are logged: steps of DeepSeekMoE-2B, speed of PyTorch, grouped products
# Runs from a bundle (scripts/bundle.sh --gpu), which contains this file, or from a source tree with a build or a bundle:
#
#   scripts/gpu.sh [--bundle PATH | --build DIR] [options]
#     --bundle PATH    an unpacked bundle, or its archive (default: the bundle that contains this file)
#     --build DIR      a build folder (default build/cuda)
#     --part N         only this part
#     --out DIR        logs, results.json, summary.txt (default gpu-DATE); results of earlier calls with this folder are kept
#     --python FILE    a Python with PyTorch and h5py (default .venv/bin/python, else python3)
#     --budget N       seconds for a part (540); steps that do not fit are skipped and reported
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

bundle='' build=$source/build/cuda parts='1 2 3' budget=540 only=. device=cuda dry=0 out=$PWD/gpu-$(date -u +%Y%m%d-%H%M%S) python=
[[ ! -f $here/env.sh ]] || bundle=$here
while (($#)); do
  case $1 in
    --bundle) bundle=${2:?--bundle needs a path}; shift ;;
    --build) bundle='' build=$(realpath "${2:?--build needs a folder}"); shift ;;
    --part) parts=${2:?--part needs a number}; [[ $parts == [123] ]] || fail "--part $parts: must be 1, 2 or 3" 2; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
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
trap 'rm -rf "$work"' EXIT
if [[ -f $bundle ]]; then
  mkdir "$work/bundle" && tar -C "$work/bundle" -xf "$bundle" || fail "cannot unpack $bundle"
  bundle=$(echo "$work"/bundle/*)
fi
libraries=${LD_LIBRARY_PATH:-}  # for PyTorch, which has its own CUDA libraries: those of a bundle may be another version
if [[ -n $bundle ]]; then
  bundle=$(realpath "$bundle")
  [[ -f $bundle/env.sh && -d $bundle/tests && -d $bundle/benchmarks ]] ||
    fail "$bundle is not a bundle with tests and benchmarks: create one with scripts/bundle.sh --gpu"
  . "$bundle/env.sh"
  lyceum=$bundle/bin/lyceum program=$bundle/libexec/lyceum tests=$bundle/tests benchmarks=$bundle/benchmarks
  comparison=$benchmarks configs=$bundle/share/lyceum/configs text=$bundle/share/doc/lyceum commit=$LYCEUM_COMMIT
  . "$bundle/share/lyceum/mpi-env.sh"
else
  lyceum=$build/apps/lyceum program=$lyceum tests=$build/tests benchmarks=$build/benchmarks
  comparison=$source/benchmarks configs=$source/configs text=$source/docs commit=$(git -C "$source" describe --always --dirty --abbrev=12)
  . "$source/scripts/mpi-env.sh"
fi
[[ -x $lyceum ]] || fail "no program $lyceum: cmake --build $build"
if [[ -z $python ]]; then
  python=$source/.venv/bin/python
  [[ -x $python ]] || python=python3
fi
[[ $python != */* ]] || python=$(realpath -s "$python")
compare=(env "LD_LIBRARY_PATH=$libraries" "$python" "$comparison/compare_pytorch.py" --device "$device" --program "$lyceum")
cores=$(env -u OMP_NUM_THREADS nproc)
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
gpu=${CUDA_VISIBLE_DEVICES:-0}
deadline=$budget  # of the part, in seconds of this script
failed=0

# record NAME SECONDS RESULT
record() {
  printf '%s\t%s\t%s\t%s\n' "$part" "$@" >>"$out/steps.tsv"
  [[ $3 == ok ]] || failed=1
}

# step NAME LIMIT COMMAND …: runs a command for at most LIMIT seconds and records the result. A test that finds no device
# returns 77, which counts as a failure.
step() {
  local name=$1 limit=$2 left=$((deadline - SECONDS - 5)) started=$SECONDS code=0 result=ok
  shift 2
  [[ $name =~ $only ]] || return 0
  if ((dry)); then
    printf '%d %-20s %4d s at most: %s\n' "$part" "$name" "$limit" "$*"
    return 0
  fi
  rm -f "$out/$name".{log,json}  # of an earlier call
  if ((left < 5)); then
    record "$name" 0 "skipped: the budget of $budget s is used up"
    return 0
  fi
  printf '== %s (at %d s)\n' "$name" "$SECONDS"
  (cd "$work" && exec timeout --kill-after=5 $((limit < left ? limit : left)) "$@") >"$out/$name.log" 2>&1 &
  wait $! || code=$?  # unlike a command in the foreground, this ends at once when this script receives a signal
  case $code in
    0) ;;
    77) result="NOT RUN: no device" ;;
    124 | 137)
      result="FAILED: exceeded its time limit"
      ((left >= limit)) || result="incomplete: the budget of $budget s is used up"
      ;;
    *) result="FAILED: exit code $code" ;;
  esac
  record "$name" $((SECONDS - started)) "$result"
  ((!code)) || tail -n 12 "$out/$name.log" | sed 's/^/    /'
}

# bench …: runs a step with a thread per core while nvidia-smi logs clocks, power and temperature five times a second. A line
# of output is written at once, so that none is lost if the time ends.
bench() {
  [[ $1 =~ $only ]] || return 0
  local watcher=
  if ((!dry)) && command -v nvidia-smi >/dev/null; then
    nvidia-smi -i "${gpu%%,*}" --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu \
      --format=csv,noheader,nounits -lms 200 >"$out/$1.clocks.csv" 2>/dev/null &
    watcher=$!
  fi
  OMP_NUM_THREADS=$cores step "$1" "$2" stdbuf -oL "${@:3}"
  [[ -z $watcher ]] || { kill "$watcher" && wait "$watcher"; } 2>/dev/null
}

# mesh NAME RANKS OPTION …: makes a short run in $work/NAME.
mesh() {
  step "$1" 60 mpirun -n "$2" "$lyceum" train --config "$work/tiny.ini" "--run.device=$device" "--run.dir=$work/$1" "${@:3}"
}

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
vocab = 1024
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
every = 0
INI

# same.py TOLERANCE NAME NAME …: fails unless the losses and gradient norms of the other runs agree with those of the first.
cat >"$work/same.py" <<'PY'
import json, sys
tolerance, first, *others = sys.argv[1:]
def read(name):
    rows = [json.loads(line) for line in open(f"{name}/metrics.jsonl")]
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

part_1() {
  step device 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit --format=csv
  step libraries 20 bash -c '! ldd "$@" | grep "not found"' ldd "$program" "$tests/gpu_mpi_test" "$benchmarks/bench_train_step"
  step python 60 env "LD_LIBRARY_PATH=$libraries" "$python" -c 'import h5py, numpy, torch; print(torch.__version__)'
  bench train-small 60 "$benchmarks/bench_train_step" --device "$device" --config "$configs/deepseekmoe-small.ini" \
    --run.precision=bf16 --steps 5 --json "$out/train-small.json"
  step tests 300 python3 "$here/gpu_tests.py" --seconds 290 "$tests/gpu_test" "$tests/gpu_training_test"
  local ranks
  for ranks in 1 2 4; do
    step tests-mpi-$ranks 60 env LYCEUM_TEST_TRANSPORT=staged mpirun -n $ranks "$tests/gpu_mpi_test"
  done
  step tests-nccl 60 "$tests/nccl_carrier_test"
}

part_2() {
  local test=$source/tests/gpu/train_test.sh tool precision
  if [[ -f $test ]]; then step program 180 bash "$test" "$lyceum" "$source"; fi

  # The same training run on the CPU, on the GPU, and on meshes of ranks that share the GPU.
  step tokens 60 "$lyceum" tokenize --input "$text" --vocab 1024 --model "$work/data/tokenizer.model" --output "$work/data/train"
  mesh cpu 1 --run.device=cpu
  mesh mesh-1 1
  mesh mesh-2-expert 2 --parallel.expert=2
  mesh mesh-2-zero3 2 --parallel.zero=3
  mesh mesh-4-tensor 4 --parallel.tensor=2 --parallel.sequence=true --parallel.expert=2
  mesh mesh-8-all 8 --parallel.pipeline=2 --parallel.tensor=2 --parallel.expert=4 --parallel.zero=1 --batch.micro=2
  step meshes-agree 20 python3 same.py 1e-3 cpu mesh-1 mesh-2-expert mesh-2-zero3 mesh-4-tensor mesh-8-all

  for precision in f32 bf16; do
    step pytorch-$precision 90 "${compare[@]}" --config "$configs/deepseekmoe-small.ini" --precision $precision --no-compile \
      --equality-only --json "$out/pytorch-$precision.json"
  done

  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)
  local check=("${sanitizer:-compute-sanitizer}" --target-processes all --error-exitcode 9 --tool)
  local hopper='Cases/HopperGrouped.*Reference/0:Cases/HopperGrouped.*Reference/2:Cases/HopperPicked.*Copies/0'
  for tool in memcheck synccheck; do
    step $tool-kernels 60 "${check[@]}" $tool "$tests/gpu_test" "--gtest_filter=$hopper:Cases/HopperPicked.*Copies/2:TensorCoreAttention*"
  done
  for tool in memcheck racecheck; do
    for precision in f32 bf16; do
      step $tool-step-$precision 150 "${check[@]}" $tool "$lyceum" train --config "$work/tiny.ini" "--run.device=$device" \
        --run.steps=2 --run.precision=$precision "--run.dir=$work/$tool-$precision"
    done
  done
}

part_3() {
  local paper=(--config "$configs/papers/deepseekmoe-2b.ini" --batch.global=16 --batch.micro=16)
  local train=("$benchmarks/bench_train_step" --device "$device" "${paper[@]}")
  bench train-2b 120 "${train[@]}" --steps 20 --routing both --json "$out/train-2b.json"
  bench pytorch-speed 200 "${compare[@]}" "${paper[@]}" --precision bf16 --run.gemm_choice=timed --speed-only --rounds 3 \
    --steps 10 --json "$out/pytorch-speed.json"
  bench grouped 60 "$benchmarks/bench_grouped_gemm_cuda" --rounds 10
  bench train-2b-muon 90 "${train[@]}" --steps 10 --optim.rule=muon --json "$out/train-2b-muon.json"
}

# On exit, also after SIGTERM: writes results.json and prints the table.
finish() {
  local running
  running=$(jobs -p)
  [[ -z $running ]] || kill $running 2>/dev/null
  python3 "$here/gpu_collect.py" "$out" "$commit" >"$out/summary.txt" && echo && cat "$out/summary.txt"
  echo "total $SECONDS s; logs and results in $out"
  rm -rf "$work"
}
if ((!dry)); then
  mkdir -p "$out" && out=$(realpath "$out") && touch "$out/steps.tsv" || fail "cannot create $out"
  [[ $device == cpu ]] || nvidia-smi --list-gpus 2>/dev/null | grep -q . || fail "nvidia-smi lists no GPU"
  trap finish EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
fi
for part in $parts; do
  part_$part
  deadline=$((SECONDS + budget))
done
exit $failed
