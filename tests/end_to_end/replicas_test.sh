#!/usr/bin/env bash
# Usage: replicas_test.sh LYCEUM SOURCE_DIR. Replicas of hot experts change no result of a run, which can be stopped, killed
# and continued with other settings.
. "$(dirname "$0")/lib.sh" "$@"
make_data

constant=("${tiny[@]}" --optim.schedule=constant --balance.expert=0)
replicated=("${constant[@]}" --parallel.expert=2 --parallel.replicas=2)
expect 0 ranks 2 "${replicated[@]}" "--run.dir=$work/whole"
cp "$work/out" "$work/whole.out"
expect 0 ranks 2 "${constant[@]}" --parallel.expert=2 "--run.dir=$work/without"
same_loss() {
  close "loss of step 12 of $1" "$(metric "$work/$1/metrics.jsonl" 12 loss)" \
    "$(metric "$work/without/metrics.jsonl" 12 loss)" 1e-4
}
same_loss whole
# relieved RUN [FIRST LAST]: fails unless these steps of a run (default: all) had replicas, and their busiest ranks less work than
# without, on average: whether replicas help in one step depends on the text, whose tokens may choose one expert of each rank.
relieved() {
  python3 - "$work/$1/metrics.jsonl" "${2:-1}" "${3:-12}" <<'END' || fail "replicas did not relieve the busiest ranks of $1"
import json, sys
file, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
steps = [r for r in map(json.loads, open(file)) if "replicas" in r and first <= r["step"] <= last]
total = lambda key: sum(r[key] for r in steps)
sys.exit(not (total("replicas") > 0 and total("rank_imbalance") < total("rank_imbalance_without_replicas")))
END
}
relieved whole
! grep -q replicas "$work/without/metrics.jsonl" || fail "replicas without parallel.replicas"
# Both runs route alike, so what one of them would have without replicas is what the other has.
close "imbalance without replicas" "$(metric "$work/whole/metrics.jsonl" 1 rank_imbalance_without_replicas)" \
  "$(metric "$work/without/metrics.jsonl" 1 rank_imbalance)" 1e-9
close "ranks on the console" "$(sed -nE 's/^ *12\/12 .* ranks ([0-9.]+).*/\1/p' "$work/whole.out")" \
  "$(metric "$work/whole/metrics.jsonl" 12 rank_imbalance)" 0.01
expect 0 "$lyceum" routing report "$work/whole" --html "$work/whole.html"
grep -q 'mean of the layers without replicas' "$work/whole.html" || fail "no curve without replicas on the page"


# routing.h5 has all replicas of the run.
# replicas_of RUN: prints the table of replicas over all steps.
replicas_of() {
  expect 0 "$lyceum" routing report "$work/$1" --from 1
  sed -n '/^Replicas of experts/,/^$/p' "$work/out"
}
replicas_of whole >"$work/whole.replicas"
# number: prints the number of replicas in all layers of a table that replicas_of has printed.
number() { awk '/^layer[0-9]/ { sum += $2 } END { print sum + 0 }'; }
equal "replicas in routing.h5" "$(number <"$work/whole.replicas")" \
  "$(python3 -c 'import json, sys; print(sum(json.loads(line)["replicas"] for line in open(sys.argv[1])))' "$work/whole/metrics.jsonl")"
# same_replicas A B: fails unless two runs had the same replicas, by routing.h5.
same_replicas() {
  replicas_of "$1" >"$work/of-$1"
  diff "$work/of-$1" <(replicas_of "$2") >&2 || fail "the replicas of $1 and $2 differ"
}
replicas_of without >"$work/without.replicas"
[[ ! -s $work/without.replicas ]] || fail "a table of replicas without parallel.replicas"

# Interrupted after step 5, between two records of routing.h5: the same bits.
expect 0 ranks 2 "${replicated[@]}" "--run.dir=$work/stopped" --run.steps=5
expect 0 ranks 2 "${replicated[@]}" "--run.dir=$work/stopped"
same_weights "$work/whole/checkpoints/step-00000012" "$work/stopped/checkpoints/step-00000012"
same_replicas whole stopped

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
same_replicas calm killed

# Continued without replicas, and on other ranks.
cp -r "$work/stopped" "$work/on4"
rm -r "$work"/on4/checkpoints/step-0000001* "$work"/on4/checkpoints/LATEST
cp -r "$work/on4" "$work/off"
expect 0 ranks 2 "${constant[@]}" --parallel.expert=2 "--run.dir=$work/off"
expect 0 ranks 4 "${constant[@]}" --parallel.expert=4 --parallel.replicas=1 --parallel.zero=1 "--run.dir=$work/on4"
same_loss off
same_loss on4
# The records of steps 4 and 8 and that of step 12; without replicas from step 6 on.
(($(replicas_of off | number) < $(number <"$work/whole.replicas"))) || fail "replicas after the run continued without them"

# Repeated passes have the same replicas, and evaluation uses none.
expect 0 ranks 2 "${replicated[@]}" --run.replay_every=3 --run.audit_every=2 "--run.dir=$work/replayed"
same_weights "$work/whole/checkpoints/step-00000012" "$work/replayed/checkpoints/step-00000012"
same_replicas whole replayed

# A run that returns to a sound checkpoint has the weights, and the replicas, of a run that never had the bad data.
write_noisy_tokens "$work/noisy" 0 0
rolling=("${noisy[@]}" --parallel.expert=2 --parallel.replicas=2 --batch.micro=1 --parallel.schedule=gpipe)
expect 0 ranks 2 "${rolling[@]}" --run.dir="$work/rolled" --data.train="$work/noisy" --run.rollback=1
step=$(sed -nE 's/^warning: after step ([0-9]+), .* the run returned to step 60 .*/\1/p' "$work/out")
[[ -n $step ]] || fail "the run did not return to step 60"
relieved rolled 61 120
write_noisy_tokens "$work/spliced" 240 $((4 * step))
expect 0 ranks 2 "${rolling[@]}" --run.dir="$work/spliced-run" --data.train="$work/spliced"
same_weights "$work/rolled/checkpoints/step-00000120" "$work/spliced-run/checkpoints/step-00000120"
same_replicas rolled spliced-run

# With training stages, and in a pipeline whose first stage, that of rank 0, has no experts.
cat >"$work/stages.ini" <<END
[stage.2]
from_step = 5
batch.global = 16
[stage.3]
from_step = 9
batch.global = 4
batch.seq_len = 48
END
cat "$config" "$work/stages.ini" >"$work/staged.ini"
staged=("${replicated[@]/$config/$work/staged.ini}" --checkpoint.every=3)
expect 0 ranks 2 "${staged[@]}" "--run.dir=$work/staged"
for last in 4 8 12; do relieved staged $((last - 3)) "$last"; done
cp -r "$work/staged" "$work/part"
rm -r "$work"/part/checkpoints/step-0000001* "$work"/part/checkpoints/step-00000009 "$work"/part/checkpoints/LATEST
expect 0 ranks 2 "${staged[@]}" "--run.dir=$work/part"
same_weights "$work"/{staged,part}/checkpoints/step-00000012
expect 0 ranks 4 "${replicated[@]}" --parallel.pipeline=2 --model.layers=2 "--run.dir=$work/dense-first"
relieved dense-first

expect 2 ranks 2 "${replicated[@]}" --parallel.expert=1 "--run.dir=$work/none"
says err 'parallel.replicas = 2 with parallel.expert = 1: experts have replicas on other expert ranks only'
expect 2 ranks 2 "${replicated[@]}" --optim.train_only='*/mlp/*' "--run.dir=$work/none"
says err 'parallel.replicas = 2 with optim.train_only'
expect 2 ranks 2 "${replicated[@]}" --parallel.replicas=100000 "--run.dir=$work/none"
says err 'parallel.replicas = 100000 with moe.experts = [0-9]+ on parallel.expert = 2 ranks: other ranks have at most'
