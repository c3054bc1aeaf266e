#!/usr/bin/env bash
# Usage: placement_test.sh LYCEUM SOURCE_DIR. A run with experts of different widths continues with another placement as if it
# had not stopped, and a checkpoint shows the placement of its run.
. "$(dirname "$0")/lib.sh" "$@"
make_data

# Two sums have an order that depends on the placement: over the experts of a token, and over all parameters in the norm. With
# one expert per token and no clipping, neither affects the weights.
uneven=("${tiny[@]}" --moe.top_k=1 --moe.expert_sizes=40,8,30,18,24,24,13,35 --optim.schedule=constant --optim.clip_norm=0)
pair=("${uneven[@]}" --parallel.expert=2)
expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/whole"
says out '^placement  contiguous, assuming an even load: the busiest of 2 expert ranks has '
says out '^ +0  0-3 '

goes_on() {
  local kind=$1
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/$kind" --run.steps=5
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/$kind" "--parallel.placement=$kind"
  says out "resumed .*step-00000005"
  says out "^placement  $kind, by the measured load"
  same_weights "$work/whole/checkpoints/step-00000012" "$work/$kind/checkpoints/step-00000012"
  expect 0 "$lyceum" checkpoint show "$work/$kind/checkpoints"
  says out "^placement  $kind, by the measured load: the busiest of 2 expert ranks"
  says out '^trainer state  updates 12, samples 96, '
}
goes_on pairs
goes_on cost

# An uninterrupted run with clipping agrees within rounding.
expect 0 ranks 4 "${tiny[@]}" --moe.expert_sizes=40,8,30,18,24,24,13,35 --optim.schedule=constant --parallel.expert=4 \
  --parallel.placement=pairs "--run.dir=$work/four" --optim.clip_norm=1
expect 0 ranks 1 "${tiny[@]}" --moe.expert_sizes=40,8,30,18,24,24,13,35 --optim.schedule=constant \
  "--run.dir=$work/one" --optim.clip_norm=1
close "loss of step 12" "$(metric "$work/four/metrics.jsonl" 12 loss)" "$(metric "$work/one/metrics.jsonl" 12 loss)" 1e-5

expect 2 ranks 2 "${tiny[@]}" --moe.expert_sizes=40,9,30,18,24,24,13,35 --parallel.expert=2 --parallel.placement=pairs \
  "--run.dir=$work/odd"
says err 'parallel.placement = pairs with parallel.expert = 2: experts 0 and 1 together are 49 wide'
