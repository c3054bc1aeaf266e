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
[[ $(metric "$work/whole/metrics.jsonl" 3 rank_imbalance) =~ ^1\. ]] || fail "no imbalance of ranks in metrics.jsonl"
says out '^ +3/12 .* ranks 1\.[0-9]{2}'
# routing.h5 has the moves that the console reports.
moves=$(sed -nE 's/^step +[0-9]+: ([0-9]+) experts? of .*/\1/p' "$work/out" | awk '{ sum += $1 } END { print sum }')
expect 0 "$lyceum" routing dump "$work/whole" --moves
says out '^step,layer,expert,from,to$'
equal "moves in routing.h5" "$(($(wc -l <"$work/out") - 1))" "$moves"
expect 0 "$lyceum" routing report "$work/whole" --html "$work/whole.html"
grep -q 'Imbalance of expert ranks' "$work/whole.html" || fail "no chart of the imbalance of ranks"
grep -q 'Moves of experts between ranks' "$work/whole.html" || fail "no number of moves on the page"
expect 2 "$lyceum" routing report "$work/whole" --moves
says err 'moves and --select-layers apply only to lyceum routing dump'

# The plan takes the load of the run.
expect 0 "$lyceum" plan "${moving[@]:1}" --load "$work/whole" --cluster "$source/configs/clusters/cpu-2-cores.ini"
says out '^load of experts: .*routing.h5, [0-9]+ records? up to step 12'
says out '^contiguous, moved .* as planned above'
expect 3 "$lyceum" plan "${moving[@]:1}" --moe.experts=6 --load "$work/whole/routing.h5"
says err 'has [0-9]+ experts, this model has 6: use a log of this model'
expect 0 "$lyceum" checkpoint show "$work/whole/checkpoints"
says out '^placement  contiguous with moves, by the measured load: the busiest of 2 expert ranks'

expect 0 ranks 2 "${constant[@]}" --parallel.expert=2 "--run.dir=$work/still"
! grep -q 'changed ranks' "$work/out" || fail "experts moved without parallel.replace_every"
same_loss() {
  close "loss of step 12 of $1" "$(metric "$work/$1/metrics.jsonl" 12 loss)" "$(metric "$work/still/metrics.jsonl" 12 loss)" 1e-4
}
same_loss whole

# Checkpoints that are written while experts move.
expect 0 ranks 2 "${moving[@]}" --checkpoint.background=true --checkpoint.every=3 "--run.dir=$work/background"
says out "$moved"
for step in 09 12; do
  expect 0 "$lyceum" checkpoint verify "$work/background/checkpoints/step-000000$step"
done
same_weights "$work/whole/checkpoints/step-00000012" "$work/background/checkpoints/step-00000012"
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/from9" "--checkpoint.resume=$work/background/checkpoints/step-00000009"
same_weights "$work/whole/checkpoints/step-00000012" "$work/from9/checkpoints/step-00000012"

# Interrupted after step 5, with experts where they had moved.
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/stopped" --run.steps=5
says out "$moved"
expect 0 ranks 2 "${moving[@]}" "--run.dir=$work/stopped"
same_weights "$work/whole/checkpoints/step-00000012" "$work/stopped/checkpoints/step-00000012"

# Killed between two checkpoints: the last one has another placement than the run had when it ended.
long=("${moving[@]}" --checkpoint.every=20)
beyond() { [[ -f $work/killed/metrics.jsonl ]] && (($(wc -l <"$work/killed/metrics.jsonl") > 25)); }
start 2 "${long[@]}" --run.steps=100000 "--run.dir=$work/killed"
wait_for 60 beyond || fail "the run to kill does not start"
for process in $(pgrep -f -- "--run.dir=$work/killed"); do kill -KILL "$process" 2>/dev/null || true; done
finish
((code != 0)) || fail "a killed run exited with code 0"
saved=$(find "$work/killed/checkpoints" -maxdepth 1 -name 'step-????????' | sort | tail -n 1)
last=$((10#${saved##*step-} + 20))
expect 0 ranks 2 "${long[@]}" "--run.steps=$last" "--run.dir=$work/calm"
expect 0 ranks 2 "${long[@]}" "--run.steps=$last" "--run.dir=$work/killed"
says out "resumed .*$(basename "$saved")"
says out "$moved"
same_weights "$work/calm/checkpoints/step-$(printf %08d "$last")" "$work/killed/checkpoints/step-$(printf %08d "$last")"

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
