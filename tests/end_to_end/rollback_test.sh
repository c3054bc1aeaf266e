#!/usr/bin/env bash
# Usage: rollback_test.sh LYCEUM SOURCE_DIR. A run whose loss rises because of bad data returns to a sound checkpoint and skips
# these data. It ends with the weights of a run that never had them.
. "$(dirname "$0")/lib.sh" "$@"
make_data

write_noisy_tokens "$work/noisy" 0 0
options=("${noisy[@]}")

expect 0 ranks 2 "${options[@]}" --run.dir="$work/noisy-run" --data.train="$work/noisy" --run.rollback=2
says out '^warning: after step [0-9]+, the smoothed loss was .*: the run returned to step 60 and skips the data of the [0-9]+ steps since then \(rollback 1 of 2\)'
equal "times that it went back" "$(grep -c 'the run returned' "$work/out")" 1
step=$(sed -nE 's/^warning: after step ([0-9]+), .* returned .*/\1/p' "$work/out")
python3 - "$work/noisy-run/metrics.jsonl" <<'END' || fail "metrics.jsonl does not contain the rollback"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["step"] for line in lines] == list(range(1, 121)), "not one line a step"
assert [line["rollbacks"] for line in lines] == [0] * 60 + [1] * 60
END
equal "starts" "$(wc -l <"$work/noisy-run/starts.jsonl")" 2

write_noisy_tokens "$work/spliced" 240 $((4 * step))
expect 0 ranks 2 "${options[@]}" --run.dir="$work/spliced-run" --data.train="$work/spliced"
same_weights "$work"/{noisy,spliced}-run/checkpoints/step-00000120

# A run may also return to a checkpoint with weights only (an import, a conversion). Then the optimizer state is reset.
expect 0 ranks 2 "${options[@]}" --run.dir="$work/before" --data.train="$work/noisy" --run.steps=5
for name in imported expected; do expect 0 "$lyceum" convert reset "$work/before" --out "$work/$name"; done
late=("${options[@]}" --run.steps=90 --checkpoint.every=1000)
expect 0 ranks 2 "${late[@]}" --run.dir="$work/imported" --data.train="$work/noisy" --run.rollback=1
step=$(sed -nE 's/^warning: after step ([0-9]+), .* returned to step 0 .*/\1/p' "$work/out")
[[ -n $step ]] || fail "the run did not return to its initial weights"
write_noisy_tokens "$work/late" 0 $((4 * step))
expect 0 ranks 2 "${late[@]}" --run.dir="$work/expected" --data.train="$work/late"
same_weights "$work"/{imported,expected}/checkpoints/step-00000090

# Without run.rollback a run trains on the noise. Without a sound checkpoint it warns and continues.
expect 0 ranks 2 "${options[@]}" --run.dir="$work/plain" --data.train="$work/noisy" --run.steps=80
! grep -q 'the run returned' "$work/out" || fail "the run rolled back without run.rollback"
expect 4 ranks 2 "${options[@]}" --run.dir="$work/new" --data.train="$work/noisy" --run.steps=20 --optim.lr=1e25 \
  --optim.clip_norm=0 --run.rollback=1
says out '^warning: step [0-9]+: .*, and there is no sound checkpoint to return to'
