#!/usr/bin/env bash
# Usage: sweep_test.sh LYCEUM SOURCE_DIR. scripts/sweep.py --slurm: an array of runs of which one fails, the comparison after them, a
# task that is asked to stop and requeued, and a continuation.
. "$(dirname "$0")/lib.sh" "$@"
make_data
start_lab
cd "$work"
cat >sweep.ini <<END
[sweep]
config = $config
dir = $work/sweep
[set]
run.steps = 6
[grid]
optim.lr = 3e-3, 1e-3
END
sweep=("$python3" -B "$source/scripts/sweep.py" sweep.ini)
mkdir -p "sweep/lr=3e-3"
touch "sweep/lr=3e-3/checkpoints"  # a file where a folder must be: this run fails

# submitted: submits the sweep and sets $array and $comparison to its jobs.
submitted() {
  expect 0 "${sweep[@]}" --slurm "$@"
  array=$(sed -n 's/^sweep: job \([0-9]*\), tasks .*/\1/p' "$work/out")
  comparison=$(sed -n 's/^sweep: job \([0-9]*\) compares .*/\1/p' "$work/out")
  : >"$work/$comparison.log"
}
submitted --jobs 2 -- --nodes=2 --ntasks-per-node=1 --export=ALL,LYCEUM_MAX_CRASHES=0
complete 180 "$comparison"
expect 0 "${sweep[@]}" --list
says out "^complete +$work/sweep/lr=1e-3$"
says out "^failed \([34]\) +$work/sweep/lr=3e-3$"
grep -Eq '^steps +6$' sweep/compare.log || fail "the comparison has not the complete run"
[[ -s sweep/compare.html ]] || fail "no page"

# --- submitted again: only the run that failed. It is asked to stop, requeued, and completes.
rm "sweep/lr=3e-3/checkpoints"
sed -i 's/^run.steps.*/run.steps = 3000/' sweep.ini
sed -i 's/^optim.lr.*/optim.lr = 3e-3/' sweep.ini
submitted
reach "$array" "sweep/lr=3e-3" 3
ask_to_stop "${array}_1"
again() { (($(restarts "${array}_1") == 1)); }
wait_for 90 again || fail_job "$comparison" "task 1 was not requeued: $(tail -n 5 "sweep/slurm-${array}_1.log")"
expect 0 "${sweep[@]}" --list
says out '^stopped '
scancel "$array"
