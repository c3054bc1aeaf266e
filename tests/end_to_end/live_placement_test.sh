#!/usr/bin/env bash
# Usage: live_placement_test.sh LYCEUM SOURCE_DIR. Experts that move between ranks during a run change no result, and a run
# that is interrupted or killed in between continues as if it had not been.
. "$(dirname "$0")/lib.sh" "$@"
make_data

moved='^step +[0-9]+: [0-9]+ experts? of [0-9] layers? changed ranks in .*: the busiest rank now has [0-9.]+ times the mean'
constant=("${tiny[@]}" --optim.schedule=constant --balance.expert=0)
moving=("${constant[@]}" --parallel.expert=2 --parallel.replace_every=2 --parallel.replace_gain=0)
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/whole"
says out "$moved"
expect 0 "$lyceum" checkpoint show "$work/whole/checkpoints"
says out '^placement  contiguous, by the measured load: the busiest of 2 expert ranks'

expect 0 ranks 2 "${constant[@]}" --parallel.expert=2 "--run.dir=$work/still"
! grep -q 'changed ranks' "$work/out" || fail "experts moved without parallel.replace_every"
same_loss() {
  close "loss of step 12 of $1" "$(metric "$work/$1/metrics.jsonl" 12 loss)" "$(metric "$work/still/metrics.jsonl" 12 loss)" 1e-4
}
same_loss whole

# Interrupted after step 5, with experts where they had moved.
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/stopped" --run.steps=5
says out "$moved"
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/stopped"
same_weights "$work/whole/checkpoints/step-00000012" "$work/stopped/checkpoints/step-00000012"

# Killed after step 8: the checkpoint of step 5 has another placement than the run had when it ended.
start 2 "${moving[@]}" "--run.dir=$work/killed" --run.steps=1000
past_8() { grep -Eqs '"step": ?8,' "$work/killed/metrics.jsonl"; }
wait_for 120 past_8 || fail "no step 8"
kill -KILL "$job"
finish
find "$work/killed/checkpoints" -mindepth 1 -maxdepth 1 ! -name step-00000005 -exec rm -r {} +
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/killed"
says out 'resumed .*step-00000005'
same_weights "$work/whole/checkpoints/step-00000012" "$work/killed/checkpoints/step-00000012"

# Other meshes read the checkpoints.
for ranks in 1 4; do
  cp -r "$work/stopped" "$work/on$ranks"
  rm -r "$work/on$ranks"/checkpoints/step-0000001* "$work/on$ranks"/checkpoints/LATEST
done
expect 0 ranks 1 "${constant[@]}" "--run.dir=$work/on1"
expect 0 ranks 4 "${moving[@]}" --parallel.expert=4 "--run.dir=$work/on4"
same_loss on1
same_loss on4

expect 2 ranks 2 "${moving[@]}" --parallel.expert=1 "--run.dir=$work/none"
says err 'parallel.replace_every = 2 with parallel.expert = 1: experts cannot move without other ranks'
expect 2 ranks 2 "${moving[@]}" --parallel.replace_gain=1.5 "--run.dir=$work/none"
says err 'parallel.replace_gain = 1.5'
