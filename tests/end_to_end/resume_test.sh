#!/usr/bin/env bash
# Usage: resume_test.sh LYCEUM SOURCE_DIR. A run that ended early, was killed or stopped on request, and then continued, equals
# an uninterrupted run bit for bit. On another mesh it continues with the same loss; with more steps, on the same schedule.
. "$(dirname "$0")/lib.sh" "$@"
export LYCEUM_CACHE=$work/cache  # which only know_peaks has written to
know_peaks
make_data

# same_run A B STEP: fails unless tensors of STEP, all records of steps and all routing records of two runs are equal.
same_run() {
  same_weights "$work/$1/checkpoints/$3" "$work/$2/checkpoints/$3"
  steps "$work/$1/metrics.jsonl" >"$work/a"
  steps "$work/$2/metrics.jsonl" >"$work/b"
  [[ -s $work/a ]] || fail "$1 has no metrics"
  diff "$work/a" "$work/b" >"$work/out" || fail "metrics of $1 and $2 differ"
  for run in "$1" "$2"; do
    expect 0 "$lyceum" routing dump "$work/$run" --csv "$work/$run.csv"
  done
  [[ -s $work/$1.csv ]] || fail "$1 has no routing"
  diff "$work/$1.csv" "$work/$2.csv" >"$work/out" || fail "routing of $1 and $2 differs"
}

# Ends after step 5 and continues to 12. With routing.every = 4, the checkpoint must keep the counts of step 5.
for precision in f32 bf16; do
  pair=("${tiny[@]}" --parallel.expert=2 --optim.schedule=constant --run.precision=$precision)
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/whole-$precision"
  says out "^peak  .* measured on "  # by know_peaks()
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/parts-$precision" --run.steps=5
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/parts-$precision" --run.steps=12
  says out "resumed .*step-00000005"
  same_run whole-$precision parts-$precision step-00000012
  equal "steps in metrics" "$(steps "$work/parts-$precision/metrics.jsonl" | wc -l)" 12
done
# Background saves give the same weights and the same files in the folder.
background=("${tiny[@]}" --parallel.expert=2 --optim.schedule=constant --checkpoint.background=true)
expect 0 ranks 2 "${background[@]}" "--run.dir=$work/background"
says out "^checkpoint .* after step 5 in .* s, training stopped for "
same_run whole-f32 background step-00000012
for step in 05 10; do same_weights "$work"/{whole-f32,background}/checkpoints/step-000000$step; done
equal "checkpoints" "$(ls "$work/background/checkpoints")" "$(ls "$work/whole-f32/checkpoints")"
# A router bias, which is changed by counts instead of gradients; its tensor has no moments.
pair=("${tiny[@]}" --parallel.expert=2 --optim.schedule=constant --moe.router=sigmoid --moe.gates=renormalized
  --balance.bias_rate=0.01)
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/whole-bias"
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/parts-bias" --run.steps=5
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/parts-bias" --run.steps=12
same_run whole-bias parts-bias step-00000012
expect 0 "$lyceum" checkpoint show "$work/parts-bias/checkpoints/step-00000012"
# A growing number of experts per token, limited capacity and a noisy router: continues from an early checkpoint.
grown=("${tiny[@]}" --parallel.expert=2 --moe.router=noisy --moe.top_k=3 --moe.top_k_start=2 --moe.capacity_factor=0.9 --run.steps=60
  --checkpoint.every=20)
expect 0 ranks 2 "${grown[@]}" "--run.dir=$work/whole-grown"
cp -r "$work/whole-grown" "$work/parts-grown"
rm -r "$work"/parts-grown/checkpoints/step-000000{4,6}0
expect 0 ranks 2 "${grown[@]}" "--run.dir=$work/parts-grown"
says out "resumed .*step-00000020"
same_run whole-grown parts-grown step-00000060
head -n 1 "$work/whole-grown.csv" | grep -q ",dropped$" || fail "the routing has no dropped choices"
awk -F, 'NR > 1 && $10 > 0 { found = 1 } END { exit !found }' "$work/whole-grown.csv" || fail "no choice was dropped"
expect 0 "$lyceum" routing report "$work/whole-grown" --html "$work/grown.html"
says out " busiest +dropped$"
grep -q "Dropped choices over training" "$work/grown.html" || fail "the page does not show dropped choices"
# An evaluation drops no choices, and accepts another number of experts per token.
for k in 1 3; do
  expect 0 "$lyceum" eval --checkpoint "$work/whole-grown" --moe.top_k=$k --routing "$work/eval-$k.h5"
  expect 0 "$lyceum" routing dump "$work/eval-$k.h5" --csv -
  equal "choices of a token" "$(cut -d, -f3 "$work/out" | tail -n 1)" $((k - 1))
  awk -F, 'NR > 1 { sum += $10 } END { exit sum != 0 }' "$work/out" || fail "an evaluation dropped choices"
done
# The comparison detects different weights.
expect 1 "$lyceum" checkpoint diff "$work"/whole-{f32,bf16}/checkpoints/step-00000012

# goes_on NAME CHECKPOINT RANKS OPTION …: continues on another mesh; fails unless it has the losses of the uninterrupted run.
goes_on() {
  local dir=$work/$1
  expect 0 ranks "$3" "${tiny[@]}" --optim.schedule=constant "--run.dir=$dir" "--checkpoint.resume=$2" "${@:4}"
  equal "steps of $1" "$(steps "$dir/metrics.jsonl" | wc -l)" 7
  for step in 6 9 12; do
    close "loss of step $step of $1" "$(metric "$dir/metrics.jsonl" $step loss)" \
      "$(metric "$work/whole-f32/metrics.jsonl" $step loss)" 1e-4
  done
  close "validation loss of $1" "$(metric "$dir/metrics.jsonl" 12 valid_loss)" \
    "$(metric "$work/whole-f32/metrics.jsonl" 12 valid_loss)" 1e-4
}

# Continues the same checkpoint, of two expert ranks, on other meshes.
pair_step=$work/parts-f32/checkpoints/step-00000005
for mesh in 1:1 2:1 4:4 4:2; do
  goes_on "mesh-$mesh" "$pair_step" "${mesh%:*}" "--parallel.expert=${mesh#*:}"
done
goes_on tensor "$pair_step" 2 --parallel.tensor=2
goes_on stages "$pair_step" 2 --parallel.pipeline=2 --parallel.schedule=gpipe --batch.micro=2
# Keys that only trade memory for time do not make another run, and cause no warning.
goes_on chunks "$pair_step" 2 --parallel.tensor=2 --model.loss_chunk=50 --model.recompute=full
! grep -q "warning: model" "$work/out" || fail "loss_chunk and recompute are reported as changes of the run"

# A mesh with all axes: a run ends early and continues; then one rank continues it, and the mesh continues another run.
axes=(--parallel.pipeline=2 --parallel.tensor=2 --parallel.sequence=true --parallel.expert=2 --parallel.zero=3
  --parallel.schedule=zb-h1 --batch.micro=2)
four=("${tiny[@]}" "${axes[@]}" --optim.schedule=constant)
expect 0 ranks 4 "${four[@]}" "--run.dir=$work/whole-axes"
expect 0 ranks 4 "${four[@]}" "--run.dir=$work/parts-axes" --run.steps=5
goes_on alone "$work/parts-axes/checkpoints/step-00000005" 1
goes_on spread "$pair_step" 4 "${axes[@]}"
goes_on widths "$pair_step" 4 --parallel.tensor=2 --parallel.expert=2 --parallel.expert_tensor=2 --parallel.zero=2
expect 0 ranks 4 "${four[@]}" "--run.dir=$work/parts-axes" --run.steps=12
same_run whole-axes parts-axes step-00000012
expect 0 "$lyceum" checkpoint verify "$work/parts-axes/checkpoints/step-00000012"

# A longer run with a decaying learning rate is killed between two checkpoints, or stopped on request.
long=("${tiny[@]}" --parallel.expert=2 --optim.schedule=cosine --run.steps=160 --checkpoint.every=30)
expect 0 ranks 2 "${long[@]}" "--run.dir=$work/calm"
beyond() { [[ -f $1/metrics.jsonl ]] && (($(wc -l <"$1/metrics.jsonl") > 35)); }

start 2 "${long[@]}" "--run.dir=$work/killed"
wait_for 30 beyond "$work/killed" || fail "the run to kill does not start"
for process in $(pgrep -f -- "--run.dir=$work/killed"); do kill -KILL "$process" 2>/dev/null || true; done
finish
((code != 0)) || fail "a killed run exited with code 0"
[[ ! -d $work/killed/checkpoints/step-00000160 ]] || fail "the run was over before it was killed"
expect 0 ranks 2 "${long[@]}" "--run.dir=$work/killed"
says out "resumed .*step-000"
same_run calm killed step-00000160

start 2 "${long[@]}" "--run.dir=$work/asked"
wait_for 30 beyond "$work/asked" || fail "the run to stop does not start"
kill -USR1 "$job"
finish
equal "exit code after USR1" "$code" 75
says err "SIGUSR1: saving a checkpoint after this step, then exiting; SIGINT or SIGTERM exits at once$"
says out "stopped on request after step [0-9]+"
[[ ! -d $work/asked/checkpoints/step-00000160 ]] || fail "the run was over before it was asked to stop"
expect 0 ranks 2 "${long[@]}" "--run.dir=$work/asked"
says out "resumed "
same_run calm asked step-00000160

# More run.steps do not change the schedule of the checkpoint. Another schedule is reported with both learning rates.
export LYCEUM_CACHE=$work/peaks
short=("$lyceum" "${tiny[@]}" --optim.schedule=cosine --optim.min_lr=1e-4 --checkpoint.every=0 "--run.dir=$work/longer")
lr() { metric "$work/longer/metrics.jsonl" "$1" lr; }
expect 0 "${short[@]}"
says out "^peak  .*measured now"
expect 0 "${short[@]}" --run.steps=14
says out "^schedule   cosine over 12 steps, as in the checkpoint; optim.schedule_steps=14 "
expect 0 "${short[@]}" --run.steps=16 --remeasure
says out "^peak  .*measured now"
says out "^schedule   cosine over 12 steps, as in the checkpoint; optim.schedule_steps=16 "
for step in 12 13 16; do equal "learning rate of step $step" "$(lr $step)" 0.0001; done
expect 0 "${short[@]}" --run.steps=17 --optim.schedule_steps=40
says out "^warning: the learning rate of step 17 is 0.00[0-9]+; by the checkpoint's schedule, cosine over 12 steps, it would be 0.0001$"
expect 0 "${short[@]}" --run.steps=18 --optim.schedule_steps=40
! grep -q "warning: the learning rate" "$work/out" || fail "an unchanged schedule is reported as changed"
