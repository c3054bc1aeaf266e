#!/usr/bin/env bash
# Usage: nan_guard_test.sh LYCEUM SOURCE_DIR. A learning rate makes the model diverge: bad steps are skipped on all ranks,
# reported and counted, and a run that cannot recover ends with one line.
. "$(dirname "$0")/lib.sh" "$@"
make_data

expect 4 ranks 2 "${tiny[@]}" --run.dir="$work/run" --parallel.expert=2 --run.steps=200 --checkpoint.every=20 \
  --optim.schedule=constant --optim.warmup_steps=0 --optim.lr=1e30 --optim.clip_norm=0
says out 'warning: step [0-9]+ skipped on all ranks .*: first non-finite value: the .* on ranks? [01]'
says err 'consecutive steps were not finite: resume from an earlier checkpoint'
python3 - "$work/run/metrics.jsonl" <<'END' || fail "metrics.jsonl does not contain the skipped steps"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), "not one line a step"
bad = [line for line in lines if "loss" in line.get("nonfinite", []) or "grad_norm" in line.get("nonfinite", [])]
assert len(bad) >= 49, f"{len(bad)} lines name what is not finite"
assert lines[-1]["skipped"] >= 49, lines[-1]
END

grep -q ' nan \|(loss nan' "$work/out" || fail "no value is printed as NaN"
! grep -e -nan "$work/out" "$work/err" || fail "NaN has a sign"

# Checkpoints keep the number of consecutive bad steps and the bad weights, so a resumed run fails in the same way, earlier.
last=$("$lyceum" checkpoint ls "$work/run/checkpoints" | grep -c step-)
[[ $last -ge 1 ]] || fail "no checkpoint of the run is left"
before=$(wc -l <"$work/run/metrics.jsonl")
expect 4 ranks 2 "${tiny[@]}" --run.dir="$work/run" --parallel.expert=2 --run.steps=200 --checkpoint.every=20 \
  --optim.schedule=constant --optim.warmup_steps=0 --optim.lr=1e30 --optim.clip_norm=0
equal "lines after resuming" "$(wc -l <"$work/run/metrics.jsonl")" "$before"

# A diverging run keeps its newest sound checkpoint, regardless of checkpoint.keep. With a good learning rate the same command
# resumes from it, and ends with the weights of a run that never diverged.
one=("$lyceum" "${tiny[@]}" --optim.schedule=constant --checkpoint.every=5 --checkpoint.keep=1)
expect 0 "${one[@]}" "--run.dir=$work/calm" --run.steps=30
expect 0 "${one[@]}" "--run.dir=$work/wild" --run.steps=20
expect 4 "${one[@]}" "--run.dir=$work/wild" --run.steps=200 --optim.lr=1e25
says out "^checkpoint .* after step 25 in .*; not sound: "
says err "50 consecutive steps were not finite"
expect 0 "$lyceum" checkpoint ls "$work/wild/checkpoints"
says out "^step-00000020 .* yes +yes$"
equal "checkpoints" "$(grep -c ^step- "$work/out")" 2
equal "sound ones" "$(grep -c " no: .*skipped  *yes$" "$work/out")" 1
expect 0 "${one[@]}" "--run.dir=$work/wild" --run.steps=30
says out "^warning: resuming from step-00000020, the newest sound checkpoint: step-[0-9]+ is not sound: [0-9]+ of the last 10 steps were skipped"
says out "^metrics +[0-9]+ lines removed: steps after 20 are repeated"
same_weights "$work"/{calm,wild}/checkpoints/step-00000030

# A diverging run with fewer steps than the limit of skipped steps, and without a sound checkpoint, fails at its end, also
# when started again. Its routing sums are not cleared between checkpoints.
for _ in first again; do
  expect 4 "${one[@]}" "--run.dir=$work/short" --run.steps=30 --optim.lr=1e25 --routing.every=1000
  says err "the last [0-9]+ steps were skipped, so the run ends without a result: lower optim.lr"
done
says out "^warning: no checkpoint is sound: resuming from step-00000030 nevertheless"
