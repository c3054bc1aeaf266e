#!/usr/bin/env bash
# Usage: skip_outliers_test.sh LYCEUM SOURCE_DIR. With optim.skip_above, steps on bad data make no update, are reported and
# counted. A resumed run decides as an uninterrupted one. Data that stay bad end the run with one line.
. "$(dirname "$0")/lib.sh" "$@"
make_data

# write_tokens PREFIX FROM TO: writes samples of 32 tokens that follow a rule, except for noise in samples [FROM, TO).
write_tokens() {
  python3 - "$@" <<'END'
import random, struct, sys
prefix, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
noise, tokens = random.Random(1), []
for sample in range(500):
    for place in range(32):
        rule = (sample * 5 + place * (1 + sample % 3)) % 61
        tokens.append(0 if place == 0 else noise.randrange(250) if first <= sample < last else rule)
tokens.append(0)
open(prefix + ".bin", "wb").write(struct.pack(f"<{len(tokens)}H", *tokens))
open(prefix + ".idx", "wb").write(
    struct.pack("<9sQBQQiqqq", b"MMIDIDX\0\0", 1, 8, 1, 2, len(tokens), 0, 0, 1))
END
}
write_tokens "$work/noisy" 200 208   # the data of steps 51 and 52
write_tokens "$work/broken" 200 500  # all data from step 51 on
options=("${tiny[@]}" --data.order=sequential --data.valid= --data.tokenizer= --model.vocab=256 --batch.seq_len=32
  --batch.global=4 --run.steps=70 --checkpoint.every=1000 --optim.schedule=constant --optim.warmup_steps=0 --optim.lr=0.003
  --optim.skip_above=8 --optim.skip_window=20)

expect 0 ranks 2 "${options[@]}" --run.dir="$work/whole" --data.train="$work/noisy"
says out '^warning: step 51 skipped on all ranks: loss [0-9.]+ is above [0-9.]+.* \(optim.skip_above = 8\)$'
says out '^warning: step 52 skipped on all ranks: '
equal "skipped steps" "$(grep -c 'skipped on all ranks' "$work/out")" 2
for key in skipped outliers; do
  equal "$key before" "$(metric "$work/whole/metrics.jsonl" 50 $key)" 0
  equal "$key between" "$(metric "$work/whole/metrics.jsonl" 51 $key)" 1
  equal "$key at the end" "$(metric "$work/whole/metrics.jsonl" 70 $key)" 2
done
equal "update of a skipped step" "$(metric "$work/whole/metrics.jsonl" 51 update_norm)" 0.0
expect 0 "$lyceum" routing report "$work/whole/routing.h5" --html "$work/page.html"
grep -q '2 steps skipped, since loss or gradient norm was above its limit (optim.skip_above)' "$work/page.html" ||
  fail "the page does not report the skipped steps"
! grep -q 'was not finite' "$work/page.html" || fail "the page reports steps that were not finite"

# A run that stops between the two bad steps, and a run on another number of ranks, end in the same way.
expect 0 ranks 2 "${options[@]}" --run.dir="$work/parts" --data.train="$work/noisy" --run.steps=51
expect 0 ranks 2 "${options[@]}" --run.dir="$work/parts" --data.train="$work/noisy"
diff <(steps "$work/whole/metrics.jsonl") <(steps "$work/parts/metrics.jsonl") || fail "the resumed run took other steps"
same_weights "$work"/{whole,parts}/checkpoints/step-00000070
expect 0 ranks 1 "${options[@]}" --run.dir="$work/serial" --data.train="$work/noisy"
equal "skipped steps of a serial run" "$(metric "$work/serial/metrics.jsonl" 70 outliers)" 2

# A stage with another batch begins with an empty window, and so does a run that resumes in it.
staged=("${options[@]}" --data.train="$work/noisy" --run.dir="$work/staged" --balance.scope=global --batch.micro=1
  --stage.2.from_step=41 --stage.2.batch.global=8) # so step 46 has the noise
expect 0 ranks 2 "${staged[@]}" --run.steps=50
expect 0 ranks 2 "${staged[@]}" --run.steps=65
equal "skipped steps before the window of the stage is full" "$(metric "$work/staged/metrics.jsonl" 65 outliers)" 0

# If the loss stays high, the run ends. A checkpoint after many skipped steps is not sound, since the weights may be the cause.
expect 4 ranks 2 "${options[@]}" --run.dir="$work/endless" --data.train="$work/broken" --run.steps=120 --checkpoint.every=30
says err '50 consecutive steps were skipped, 50 of them by optim.skip_above = 8: .*; raise optim.skip_above, or resume'
equal "error lines" "$(grep -c . "$work/err")" 1
expect 0 "$lyceum" checkpoint ls "$work/endless/checkpoints"
says out '^step-00000030 .* yes +yes$'
says out '^step-00000060 .* no: the last 10 steps were skipped by optim.skip_above'
# A resumed run begins at the sound one, and has the same limits.
expect 4 ranks 2 "${options[@]}" --run.dir="$work/endless" --data.train="$work/broken" --run.steps=120
says out 'step-00000030'
says err '50 consecutive steps were skipped, 50 of them by optim.skip_above = 8'
# At its end, such a run has no result. With run.rollback it returns before that.
expect 4 ranks 2 "${options[@]}" --run.dir="$work/short" --data.train="$work/broken" --run.steps=75
says err 'the last 25 steps were skipped by optim.skip_above = 8, so the run ends without a result'
expect 4 ranks 2 "${options[@]}" --run.dir="$work/returned" --data.train="$work/broken" --run.steps=120 --checkpoint.every=30 --run.rollback=1
says out 'the last [0-9]+ steps were skipped by optim.skip_above'

for bad in optim.skip_above=-1 optim.skip_above=nan optim.skip_window=1 optim.skip_window=0; do
  expect 2 "$lyceum" "${options[@]}" --run.dir="$work/bad" --data.train="$work/noisy" "--$bad"
  says err "${bad%%=*} = ${bad#*=} on the command line: "
done
