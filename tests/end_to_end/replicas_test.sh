#!/usr/bin/env bash
# Usage: replicas_test.sh LYCEUM SOURCE_DIR. Replicas of hot experts change no result of a run, which can be stopped, killed
# and continued with other settings.
. "$(dirname "$0")/lib.sh" "$@"
make_data

constant=("${tiny[@]}" --optim.schedule=constant --balance.expert=0)
replicated=("${constant[@]}" --parallel.expert=2 --parallel.replicas=2)
expect 0 ranks 2 "${replicated[@]}" "--run.dir=$work/whole"
expect 0 ranks 2 "${constant[@]}" --parallel.expert=2 "--run.dir=$work/without"
same_loss() {
  close "loss of step 12 of $1" "$(metric "$work/$1/metrics.jsonl" 12 loss)" \
    "$(metric "$work/without/metrics.jsonl" 12 loss)" 1e-4
}
same_loss whole
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
(($(metric "$work/whole/metrics.jsonl" 12 replicas) > 0)) || fail "no replicas were used"
less "$(metric "$work/whole/metrics.jsonl" 12 rank_imbalance)" \
  "$(metric "$work/whole/metrics.jsonl" 12 rank_imbalance_without_replicas)" || fail "replicas did not relieve the busiest rank"
! grep -q rank_imbalance "$work/without/metrics.jsonl" || fail "replicas without parallel.replicas"

# Interrupted after step 5: the same bits.
expect 0 ranks 2 "${replicated[@]}" "--run.dir=$work/stopped" --run.steps=5
expect 0 ranks 2 "${replicated[@]}" "--run.dir=$work/stopped"
same_weights "$work/whole/checkpoints/step-00000012" "$work/stopped/checkpoints/step-00000012"

# Killed between two checkpoints, with experts that also move.
long=("${replicated[@]}" --run.steps=160 --checkpoint.every=80 --parallel.replace_every=5 --parallel.replace_gain=0)
expect 0 ranks 2 "${long[@]}" "--run.dir=$work/calm"
beyond() { [[ -f $work/killed/metrics.jsonl ]] && (($(wc -l <"$work/killed/metrics.jsonl") > 85)); }
start 2 "${long[@]}" "--run.dir=$work/killed"
wait_for 60 beyond || fail "the run to kill does not start"
for process in $(pgrep -f -- "--run.dir=$work/killed"); do kill -KILL "$process" 2>/dev/null || true; done
finish
((code != 0)) || fail "a killed run exited with code 0"
expect 0 ranks 2 "${long[@]}" "--run.dir=$work/killed"
says out 'resumed .*step-00000080'
same_weights "$work/calm/checkpoints/step-00000160" "$work/killed/checkpoints/step-00000160"

# Continued without replicas, and on other ranks.
cp -r "$work/stopped" "$work/on4"
rm -r "$work"/on4/checkpoints/step-0000001* "$work"/on4/checkpoints/LATEST
cp -r "$work/on4" "$work/off"
expect 0 ranks 2 "${constant[@]}" --parallel.expert=2 "--run.dir=$work/off"
expect 0 ranks 4 "${constant[@]}" --parallel.expert=4 --parallel.replicas=1 --parallel.zero=1 "--run.dir=$work/on4"
same_loss off
same_loss on4

# Repeated passes have the same replicas, and evaluation uses none.
expect 0 ranks 2 "${replicated[@]}" --run.replay_every=3 --run.audit_every=2 "--run.dir=$work/replayed"
same_weights "$work/whole/checkpoints/step-00000012" "$work/replayed/checkpoints/step-00000012"

expect 2 ranks 2 "${replicated[@]}" --parallel.expert=1 "--run.dir=$work/none"
says err 'parallel.replicas = 2 with parallel.expert = 1: experts have replicas on other expert ranks only'
expect 2 ranks 2 "${replicated[@]}" --optim.train_only='*/mlp/*' "--run.dir=$work/none"
says err 'parallel.replicas = 2 with optim.train_only'
expect 2 ranks 2 "${replicated[@]}" --parallel.replicas=100000 "--run.dir=$work/none"
says err 'parallel.replicas = 100000 with moe.experts = [0-9]+ on parallel.expert = 2 ranks: other ranks have at most'
