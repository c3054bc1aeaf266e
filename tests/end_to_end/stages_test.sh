#!/usr/bin/env bash
# Usage: stages_test.sh LYCEUM SOURCE_DIR. A run with training stages: its logs, interruptions, evaluation with the configuration
# of a checkpoint's stage, its plan, and refusals.
. "$(dirname "$0")/lib.sh" "$@"
make_data
cat >>"$config" <<END
[stage.2]
from_step = 5
batch.global = 16
[stage.3]
from_step = 9
data.train = 0.5 $work/data/train 0.5 $work/data/valid
batch.global = 4
batch.seq_len = 48
model.rope_base = 50000
optim.schedule = cosine
END
options=("${tiny[@]}" --parallel.expert=2 --balance.scope=global --run.layer_metrics_every=3)
run_of() { expect 0 ranks 2 "${options[@]}" --checkpoint.every=1 --run.dir="$work/$1" "${@:2}"; }

run_of whole --eval.every=4
says out "^stages +1, steps 1 to 4$"
says out "^ +3, steps 9 to 12: batch.global = 4, batch.micro = 2, batch.seq_len = 48, data.train = "
says out "^stage 2 +from step 5 on: batch.global = 16, batch.micro = 8$"
says out "^ *5/12 .*  stage 2$"
says out "^validation after step 8 \(stage 2\): "
says out "^batch +4 sequences of 48 tokens = 192 tokens per step"
for values in 4:1:1024 8:2:3072 12:3:3840; do
  IFS=: read -r step stage tokens <<<"$values"
  equal "stage of step $step" "$(metric "$work/whole/metrics.jsonl" "$step" stage)" "$stage"
  equal "tokens at step $step" "$(metric "$work/whole/metrics.jsonl" "$step" tokens)" "$tokens"
done
expect 0 "$lyceum" routing report "$work/whole" --html "$work/page.html"
grep -q "1 from step 1, 2 from step 5, 3 from step 9" "$work/page.html" || fail "the page does not list the stages"

# Killed in a stage, and exactly before the first step of one.
for step in 03 04 06 08 10; do
  rm -rf "$work/part"
  cp -r "$work/whole" "$work/part"
  for later in "$work"/part/checkpoints/step-*; do
    [[ ${later##*/} > step-000000$step ]] && rm -r "$later"
  done
  rm "$work/part/checkpoints/LATEST"
  run_of part --eval.every=4
  says out "resumed .*step-000000$step"
  same_weights "$work"/{whole,part}/checkpoints/step-00000012
  diff <(steps "$work/whole/metrics.jsonl") <(steps "$work/part/metrics.jsonl") >"$work/out" || fail "metrics differ"
done

# Readers use the stage of the checkpoint's last step, as the run's own validation did. The command line counts more.
valid_loss() {
  expect 0 "$lyceum" eval --json "$@"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss"])' "$work/out"
}
for step in 04 08 12; do
  close "loss of step $step" "$(valid_loss --checkpoint "$work/whole/checkpoints/step-000000$step" --batches=2)" \
    "$(metric "$work/whole/metrics.jsonl" "${step#0}" valid_loss)" 1e-5
done
equal "with the file" "$(valid_loss --checkpoint "$work/whole")" "$(valid_loss --checkpoint "$work/whole" --config "$config")"
expect 0 "$lyceum" eval --checkpoint "$work/whole" --config "$config" --batch.seq_len=40 --print-config
says out "^batch.seq_len += 40 .*command line$"
says out "^model.rope_base += 50000 "
! grep -q "^stage" "$work/out" || fail "an evaluation has stages"
expect 0 "$lyceum" generate --checkpoint "$work/whole" --prompt "The" --tokens 4
expect 0 "$lyceum" convert reset "$work/whole" --out "$work/reset"
grep -q "^seq_len = 48" "$work/reset/config.ini" || fail "the conversion has another length"
! grep -q "^.stage" "$work/reset/config.ini" || fail "the conversion has stages"

# A conversion with a file takes the stage of the checkpoint's step, too; a key on the command line overrides it.
sed '/^dir *=/d' "$config" >"$work/without-dir.ini"
expect 0 "$lyceum" convert reset "$work/whole/checkpoints/step-00000008" --out "$work/reset-8" --config "$work/without-dir.ini" \
  --optim.lr=0.5
says out "^stages +left out: the new run has the values of stage 2, which made step 8; add stages for its own steps to "
grep -q "^seq_len = 32" "$work/reset-8/config.ini" || fail "the conversion of step 8 has another length"
grep -q "^global = 16" "$work/reset-8/config.ini" || fail "the conversion of step 8 has another batch"
grep -q "^lr = 0.5" "$work/reset-8/config.ini" || fail "the conversion ignores the command line"
! grep -q "^.stage" "$work/reset-8/config.ini" || fail "the conversion of step 8 has stages"
expect 0 "$lyceum" convert average "$work/whole/checkpoints/step-00000012" "$work/whole/checkpoints/step-00000011" \
  --out "$work/average" --config "$work/without-dir.ini"
grep -q "^seq_len = 48" "$work/average/config.ini" || fail "the mean has another length"

# The configuration that train wrote continues the run; the list shows where the values come from.
expect 0 ranks 2 train --config "$work/whole/config.ini"
says out "^nothing to train"
expect 0 "$lyceum" train --config "$config" --stage.2.batch.global 32 --print-config
says out "^stage.2.from_step += 5 .*tiny.ini:[0-9]+$"
says out "^stage.2.batch.global += 32 .*command line$"
says out "^stage.2.batch.micro += 32 .*derived$"

# The plan: maximum of memory over stages, sums of tokens and times.
expect 0 "$lyceum" plan --config "$config" --ranks=2 --cluster "$source/configs/clusters/cpu-2-cores.ini" --json
python3 - "$work/out" <<'END' || fail "the plan does not add up the stages"
import json, sys
plan = json.load(open(sys.argv[1]))
stages = plan["stages"]
assert [s["tokens"] for s in stages] == [1024, 2048, 768], stages
assert plan["training"]["tokens"] == 3840
seconds = sum((s["last_step"] - s["first_step"] + 1) * s["step_seconds"]["total"] for s in stages)
assert abs(plan["training"]["seconds"] - seconds) < 1e-9 * seconds
assert stages[0]["memory_bytes"] == plan["memory_bytes_per_rank"]["total"] < stages[1]["memory_bytes"]
END
expect 0 "$lyceum" plan --config "$config" --ranks=2
says out "^ +3 +9-12 +4 +48 "

# Refusals before anything is trained.
refused() { # PATTERN OPTION …
  expect 2 "$lyceum" "${tiny[@]}" --run.dir="$work/refused" "${@:2}"
  says err "$1"
  [[ ! -e $work/refused/checkpoints ]] || fail "a refused run has begun"
}
refused "stage.2.moe.top_k = 1 on the command line: moe.top_k cannot change during a run; a stage may set from_step, data.train, " --stage.2.moe.top_k=1
refused "stage.2.data.train = @$work/none on the command line: .*$work/none" --stage.2.data.train="@$work/none"
refused "stage.2.from_step = 0 on the command line: must be >= 2" --stage.2.from_step=0
refused "stage.3.from_step = 4 is not after stage.2.from_step = 5" --stage.3.from_step=4
refused "stage.3.from_step = 13 is after the last step, run.steps = 12" --stage.3.from_step=13
refused "there is no stage.4 before stage.5" --stage.5.from_step=12
expect 2 ranks 2 "${tiny[@]}" --run.dir="$work/refused" --stage.2.batch.global=5
says err "stage 2: batch.global = 5 cannot be divided among 2 data-parallel ranks"
expect 3 "$lyceum" "${tiny[@]}" --run.dir="$work/refused" --stage.3.data.train="$work/none"
says err "$work/none"
[[ ! -e $work/refused/checkpoints ]] || fail "a refused run has begun"

# What a run has done cannot change; what is still to come can.
past() { # PATTERN STEP OPTION …
  rm -rf "$work/past"
  cp -r "$work/whole" "$work/past"
  for later in "$work"/past/checkpoints/step-*; do
    [[ ${later##*/} > step-000000$2 ]] && rm -r "$later"
  done
  rm "$work/past/checkpoints/LATEST"
  expect 2 ranks 2 "${options[@]}" --run.dir="$work/past" "${@:3}"
  says err "$1"
}
past "stage.2.from_step = 6 \(was 5\)" 10 --stage.2.from_step=6
past "stage.2.batch.global = 8 \(was 16\)" 10 --stage.2.batch.global=8
past "batch.global = 12 \(was 8\)" 06 --batch.global=12
expect 0 ranks 2 "${options[@]}" --run.dir="$work/past" --stage.3.from_step=7
says out "^stage 3 +from step 7 on: "

# A past stage need not suit the ranks of a later start, nor have its data.
cp "$work/data/train.bin" "$work/moved.bin"
cp "$work/data/train.idx" "$work/moved.idx"
short=("${tiny[@]}" --data.train="$work/moved" --data.valid="$work/data/valid" --batch.global=3 --run.dir="$work/grown"
  --stage.2.data.train="$work/data/train" --checkpoint.every=2)
expect 0 "$lyceum" "${short[@]}" --run.steps=9
rm -r "$work"/moved.* "$work"/grown/checkpoints/{LATEST,step-00000008,step-00000009}
expect 2 ranks 2 "${short[@]}" --run.dir="$work/refused"
says err "batch.global = 3 cannot be divided among 2 data-parallel ranks"
expect 0 ranks 2 "${short[@]}"
says out "resumed .*step-00000006"
equal "steps" "$(wc -l <"$work/grown/metrics.jsonl")" 12

# The chats of the first stage determine the template, also of a run that continues in the second one, unless data.chat does.
for format in chatml plain; do
  cp "$work/data/train.bin" "$work/$format.bin"
  cp "$work/data/train.idx" "$work/$format.idx"
  python3 -c 'import json, sys; json.dump(json.load(open(sys.argv[1])) | {"chat": sys.argv[2]}, open(sys.argv[3], "w"))' \
    "$work/data/train.json" $format "$work/$format.json"
done
sed '/^\[stage.3\]/,$d' "$config" >"$work/two.ini"
chats=(train --config="$work/two.ini" --data.train="$work/chatml" --run.dir="$work/chats")
other="but the run has data.chat"
expect 0 "$lyceum" "${chats[@]}" --stage.2.data.train="$work/plain" --run.steps=6
expect 0 "$lyceum" "${chats[@]}" --stage.2.data.train="$work/plain" --run.steps=7
says err "the chats of stage 2 are in the format plain, $other = chatml"
grep -q "^chat = auto  # derived here: chatml" "$work/chats/config.ini" || fail "the template has changed"
expect 0 "$lyceum" "${chats[@]}" --stage.2.data.train="$work/plain" --run.steps=8 --data.chat=chatml
expect 0 "$lyceum" "${chats[@]}" --stage.2.data.train="$work/plain" --run.steps=9 --data.chat=plain
says err "the chats of stage 1 are in the format chatml, $other = plain"
both="0.5 $work/chatml 0.5 $work/plain"
expect 0 "$lyceum" "${chats[@]}" --stage.2.data.train="$both" --run.steps=5 --run.dir="$work/both"
! grep -q "$other" "$work/err" || fail "a warning of a stage that has the template, too"
expect 2 "$lyceum" "${chats[@]}" --stage.2.data.train="$both" --run.steps=6 --run.dir="$work/both" --data.chat=llama3
says err "data.chat = llama3, but the chats of $work/chatml are in the format chatml"
