#!/usr/bin/env bash
# Usage: gpu_script_test.sh LYCEUM SOURCE_DIR. Tests scripts/gpu.sh without a GPU: the list of what it would run, its output,
# and its table of results. It compares meshes on the CPU as it would on a GPU.
. "$(dirname "$0")/lib.sh" "$@"
build=$(dirname "$(dirname "$lyceum")")
gpu=("$source/scripts/gpu.sh" --build "$build" --out "$work/results" --text "$source/docs" --text "$source/lib")

expect 0 "${gpu[@]}" --dry-run
for step in gpu_test mesh-8-all same-bits train_step-2b pytorch-speed racecheck-bf16; do says out "^$step +[0-9]+ s at most: "; done
[[ ! -e $work/results ]] || fail "a dry run leaves files"
if ! nvidia-smi --list-gpus 2>/dev/null | grep -q .; then
  expect 1 "${gpu[@]}"
  says err 'nvidia-smi lists no GPU'
fi

expect 0 "${gpu[@]}" --device cpu --only '^(tokens|cpu|mesh-2-zero3|mesh-1)$'
says out '^mesh-2-zero3 +[0-9]+ s  ok$'
says out '^total [0-9]+ s; logs and results in '
diff <(sed '1,/^$/d' "$work/out") "$work/results/summary.txt" || fail "summary.txt is another table"
# mesh-equality alone has no runs to compare, and must fail. Steps that the budget does not reach are listed as skipped.
expect 1 "${gpu[@]}" --device cpu --only '^mesh-equality$'
says out '^mesh-equality +[0-9]+ s  FAILED: exit code 1$'
expect 1 "${gpu[@]}" --device cpu --only '^cpu$' --budget 5
says out '^cpu +-  skipped: the budget of 5 s is used up$'
expect 2 "${gpu[@]}" --no-such-option
expect 1 "$source/scripts/gpu.sh" --bundle "$work"
says err 'is not a bundle with tests and benchmarks'

# Benchmarks with fake programs that print their arguments: both routings are measured, and the clocks of the GPU are in the
# table and in the JSON.
mkdir -p "$work/fake/apps" "$work/fake/benchmarks" "$work/bin"
ln -s "$lyceum" "$work/fake/apps/lyceum"
cat >"$work/fake/benchmarks/bench_train_step" <<'END'
#!/usr/bin/env bash
echo "asked: $*"
while [[ $1 != --json ]]; do shift; done
[[ $2 == *864* ]] || sleep 1
[[ $2 == *864* ]] && echo '{"routing": "real"}' >"$2" || echo '[{"routing": "real"}, {"routing": "even"}]' >"$2"
END
# The fake GPU is idle at first, then busy; its last line is invalid.
cat >"$work/bin/nvidia-smi" <<'END'
#!/usr/bin/env bash
[[ $* != *--list-gpus* ]] || { echo "GPU 0: a fake"; exit 0; }
[[ $* == *-lms* ]] || { echo "fake"; exit 0; }
echo "now, 345, 2619, 70.10, 31, 0"
for clock in 1980 1755 1830; do echo "now, $clock, 2619, 6${clock:1:2}.50, 6${clock:3:1}, 99"; done
echo "now, [N/A], 2619, 5.0, 6, 99"
echo $$ >"$NVIDIA_SMI_PID"
exec sleep 60
END
chmod +x "$work/fake/benchmarks/bench_train_step" "$work/bin/nvidia-smi"
export NVIDIA_SMI_PID=$work/nvidia-smi.pid
PATH=$work/bin:$PATH expect 0 "$source/scripts/gpu.sh" --build "$work/fake" --out "$work/bench" --only '^train_step-2b$'
says out '^train_step-2b +[0-9]+ s  ok; SM 1755/1830/1980 MHz, 676/684/698 W, 60/60/65 C'
! kill -0 "$(cat "$NVIDIA_SMI_PID")" 2>/dev/null || fail "nvidia-smi still runs after the benchmark"
python3 - "$work/bench/train_step-2b.json" <<'END' || fail "the JSON contains other clocks"
import json, sys
for one, routing in zip(json.load(open(sys.argv[1])), ("real", "even"), strict=True):
    assert one["routing"] == routing
    assert one["clocks"]["samples"] == 4 and one["clocks"]["busy_samples"] == 3, one
    assert one["clocks"]["sm_mhz"] == {"min": 1755, "median": 1830, "max": 1980}, one
END
for name in train_step-2b train_step-2b-864; do
  "${gpu[@]}" --dry-run --only "^$name\$" | grep -q -- '--routing both' || fail "$name contains only one routing"
done
