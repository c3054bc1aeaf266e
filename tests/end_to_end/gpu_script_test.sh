#!/usr/bin/env bash
# Usage: gpu_script_test.sh LYCEUM SOURCE_DIR. scripts/gpu.sh without a GPU: what it would run, what it says, and that its
# table tells the truth. On the CPU it compares meshes as it would on a GPU.
. "$(dirname "$0")/lib.sh" "$@"
build=$(dirname "$(dirname "$lyceum")")
gpu=("$source/scripts/gpu.sh" --build "$build" --out "$work/results" --text "$source/docs" --text "$source/lib")

expect 0 "${gpu[@]}" --dry-run
for step in gpu_test mesh-8-all same-bits train_step-2b pytorch-speed racecheck-bf16; do says out "^$step +[0-9]+ s at most: "; done
[[ ! -e $work/results ]] || fail "a dry run leaves something behind"
if ! nvidia-smi --list-gpus 2>/dev/null | grep -q .; then
  expect 1 "${gpu[@]}"
  says err 'nvidia-smi lists no GPU here'
fi

expect 0 "${gpu[@]}" --device cpu --only '^(tokens|cpu|mesh-2-zero3|mesh-1)$'
says out '^mesh-2-zero3 +[0-9]+ s  ok$'
says out '^in all [0-9]+ s; logs and results in '
diff <(sed '1,/^$/d' "$work/out") "$work/results/summary.txt" || fail "summary.txt is another table"
# mesh-equality finds no runs of the others, and must say so; what the budget does not reach is told, not passed over.
expect 1 "${gpu[@]}" --device cpu --only '^mesh-equality$'
says out '^mesh-equality +[0-9]+ s  FAILED: exit code 1$'
expect 1 "${gpu[@]}" --device cpu --only '^cpu$' --budget 5
says out '^cpu +-  left out: 5 s are over$'
expect 2 "${gpu[@]}" --no-such-option
expect 1 "$source/scripts/gpu.sh" --bundle "$work"
says err 'is no bundle with tests and benchmarks'
