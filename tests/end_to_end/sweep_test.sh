#!/usr/bin/env bash
# Usage: sweep_test.sh LYCEUM SOURCE_DIR. scripts/sweep.py with real runs: a grid, an interruption, a run that fails, a continuation.
. "$(dirname "$0")/lib.sh" "$@"
make_data
export LYCEUM=$lyceum
cd "$work"
sweep=("$python3" -B "$source/scripts/sweep.py" sweep.ini)
describe() {
  cat >sweep.ini <<END
[sweep]
config = tiny.ini
dir = sweep
ranks = 2
[set]
run.steps = $1
parallel.expert = 2
[grid]
optim.lr = 3e-3, 1e-3
END
}

# --- a sweep that is interrupted, and continued
describe 100000
"${sweep[@]}" --jobs 2 >"$work/out" 2>"$work/err" &
job=$!
running() { grep -qs '"step":3,' "sweep/lr=3e-3/metrics.jsonl" && grep -qs '"step":3,' "sweep/lr=1e-3/metrics.jsonl"; }
wait_for 120 running || fail "two runs did not start"
kill -INT "$job"
finish
equal "exit code of an interrupted sweep" "$code" 75
for run in "sweep/lr=3e-3" "sweep/lr=1e-3"; do
  grep -q "stopped on request" "$run/train.log" || fail "$run was not asked to stop"
done
last=$(tail -n 1 "sweep/lr=1e-3/metrics.jsonl" | grep -o '"step":[0-9]*' | cut -d: -f2)
describe $((last > 400 ? last + 5 : 400))
expect 0 "${sweep[@]}" --list
says out '^started +sweep/lr=1e-3$'
expect 0 "${sweep[@]}" --jobs 2
says out '^sweep: lr=1e-3: complete'
says out '^optim.lr +0.003 +0.001$'
grep -q "resumed" "sweep/lr=1e-3/train.log" || fail "the run was not resumed"
[[ -s sweep/compare.html ]] || fail "no page"
expect 0 "${sweep[@]}"
says out '2 of them complete'

# --- an edited configuration: complete runs refuse it, and are complete when it is restored
sed -i 's/^top_k = 2/top_k = 1/' tiny.ini
expect 4 "${sweep[@]}" --jobs 2
says out 'lr=1e-3: failed with code 2, .* is the end of a run with another configuration; use another dir in \[sweep\]'
says out 'not compared, complete with other settings: lr=3e-3 lr=1e-3$'
sed -i 's/^top_k = 1/top_k = 2  # restored/' tiny.ini
expect 0 "${sweep[@]}"
says out '2 of them complete'

# --- a run that fails while running
sed -i 's/^dir.*/dir = broken/; s/^run.steps.*/run.steps = 3/; s/3e-3, 1e-3/3e-3, 2e-3/; s/^ranks.*/ranks = 1/; s/^parallel.*//' sweep.ini
mkdir -p "broken/lr=3e-3"
touch "broken/lr=3e-3/checkpoints"  # a file where a folder must be
expect 4 "${sweep[@]}"
says out '^sweep: lr=3e-3: failed with code [34], see .*train.log: lyceum train: .*checkpoints'
says out '^sweep: lr=2e-3: complete'
says out '^sweep: failed: lr=3e-3$'
rm "broken/lr=3e-3/checkpoints"
expect 0 "${sweep[@]}"

sed -i 's/^optim.lr/optim.lrr/' sweep.ini
expect 2 "${sweep[@]}"
says err 'optim.lrr'
