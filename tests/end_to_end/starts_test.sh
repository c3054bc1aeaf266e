#!/usr/bin/env bash
# Usage: starts_test.sh LYCEUM SOURCE_DIR. Tests the messages and refusals of a start: a run that is continued with another
# configuration, data without trained tokens, schedules that do not reach their rate; config.ini and --print-config; and that
# errors are printed once.
. "$(dirname "$0")/lib.sh" "$@"
make_data
run=$work/run
few=("${tiny[@]}" --run.steps=5 --checkpoint.every=0)
one_error() { equal "lines of ours" "$(grep -c '^lyceum train: ' "$work/err")" 1; }
silent_about() { ! grep -Eq -- "$1" "$work/out" || fail "a line of stdout matches: $1"; }

# --- another run in the same folder
expect 0 "$lyceum" "${few[@]}"
says out "^saves      every 10 min: a run that is killed loses at most about 10 min$"
says out "^ +pp pipeline stages, dp data ranks"
before=$(sha256sum "$run/metrics.jsonl" "$run/config.ini" "$run"/checkpoints/*/manifest.json)
# other_run OPTION WAS: with this option, the finished run is refused as another run.
other_run() {
  expect 2 "$lyceum" "${few[@]}" "--$1"
  says err "^lyceum train: $run/checkpoints/step-00000005 is the end of a run with another configuration; set another run.dir.*: ${1%%=*} = ${1#*=} \(was $2\)$"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
other_run run.seed=2 1
other_run optim.lr=0.01 0.003
other_run balance.expert=0.02 0.01
other_run batch.global=16 8
other_run data.order=sequential shuffled
other_run moe.top_k=3 2
other_run model.layers=4 3
other_run run.steps=4 5
other_run optim.schedule_steps=9 5
expect 2 ranks 2 "${few[@]}" --run.seed=2 --optim.lr=1 --model.hidden=64 # all differences are reported
for key in "run.seed = 2 \(was 1\)" "model.hidden = 64 \(was 32\)" "optim.lr = 1 \(was 0.003\)"; do says err "^  $key$"; done
one_error
equal "files of a refused run" "$(sha256sum "$run/metrics.jsonl" "$run/config.ini" "$run"/checkpoints/*/manifest.json)" "$before"
# These options do not make another run: spelling, mesh, output, validation.
ln -s "$work/data" "$work/elsewhere"
expect 0 ranks 2 "${few[@]}" --parallel.expert=2 --run.log_every=3 --eval.batches=1 --data.valid= --balance.device_groups=4 \
  "--data.train=$work/elsewhere/train" --moe.gates=raw --model.head_dim=16 --checkpoint.keep=7
says out "^nothing to train: 5 of 5 steps are done$"
silent_about "(balance|data.train|moe)[a-z_.]* = .* from now on"
expect 0 "$lyceum" "${few[@]}" "--data.valid=$work/elsewhere/valid" # the same samples
silent_about "data.valid = "
# With steps left to do, changed tuning is accepted and reported; another seed or objective is refused.
expect 0 "$lyceum" "${few[@]}" --run.steps=6 --optim.lr=0.002 --batch.global=4
says out "^warning: optim.lr = 0.002 from now on \(was 0.003\)$"
says out "^warning: batch.global = 4 from now on \(was 8\)$"
for option in run.seed=2 balance.expert=0.02 batch.seq_len=16 "data.train=$work/data/valid"; do
  expect 2 "$lyceum" "${few[@]}" --run.steps=7 "--$option" --optim.lr=0.002 --batch.global=4
  says err "^lyceum train: $run/checkpoints/step-00000006 belongs to a run with another configuration; set another run.dir, with checkpoint.resume = $run/checkpoints/step-00000006 .*: ${option%%=*} = "
done
says err "or data.changed = warn to continue with this data.train, such as the same files at another path"
expect 0 "$lyceum" "${few[@]}" --run.steps=7 "--data.train=$work/data/valid" --data.changed=warn
says out "^warning: data.train = $work/data/valid from now on \(was $work/data/train\)$"
# A named checkpoint may begin another run, but not one with another model.
from=--checkpoint.resume=$run/checkpoints/step-00000007
expect 0 "$lyceum" "${few[@]}" --run.steps=8 --run.seed=2 --balance.expert=0.5 "--run.dir=$work/branch" "$from"
says out "^warning: balance.expert = 0.5 from now on \(was 0.01\)$"
expect 2 "$lyceum" "${few[@]}" --run.steps=8 --model.layers=4 "--run.dir=$work/branched" "$from"
says err "^lyceum train: $run/checkpoints/step-00000007 contains another model \(.*it has no model/layers/3/.*: model.layers = 4 \(was 3\)$"
expect 2 "$lyceum" "${few[@]}" --run.steps=8 --moe.expert_hidden=16 "--run.dir=$work/branched" "$from"
says err "contains another model \(model/layers/1/.* but \[16, 32\] in this model\).*: moe.expert_hidden = 16 \(was 24\)$"

# It must have steps left to do, and the folder must not contain another run.
expect 2 "$lyceum" "${few[@]}" --run.steps=7 "--run.dir=$work/nothing" "$from"
says err "^lyceum train: checkpoint.resume = $run/checkpoints/step-00000007, .*: raise run.steps above 7$"
[[ ! -e $work/nothing ]] || fail "a start without remaining steps left files"
expect 0 "$lyceum" "${few[@]}" --run.seed=2 "--run.dir=$work/apart"
logs=$(sha256sum "$work"/apart/{metrics.jsonl,starts.jsonl,routing.h5})
expect 2 "$lyceum" "${few[@]}" --run.steps=9 "--run.dir=$work/apart" "$from"
says err "^lyceum train: $work/apart/checkpoints contains checkpoints of another run than $run/checkpoints/step-00000007: set another run.dir$"
equal "logs of the other run" "$(sha256sum "$work"/apart/{metrics.jsonl,starts.jsonl,routing.h5})" "$logs"

# --- losses that depend on the mesh
batch=("${few[@]}" "--run.dir=$work/scope" --balance.scope=batch)
expect 0 "$lyceum" "${batch[@]}" --run.steps=1
expect 0 ranks 2 "${batch[@]}" --run.steps=2 --parallel.expert=2
silent_about "balance.scope"
expect 0 "$lyceum" "${batch[@]}" --run.steps=3 --batch.micro=2
says out "^warning: balance.scope = batch: from now on, losses count the tokens of 2 sequences together \(was 8\)"
global=("${few[@]}" "--run.dir=$work/scope-global" --balance.scope=global)
expect 0 "$lyceum" "${global[@]}" --run.steps=1
expect 0 "$lyceum" "${global[@]}" --run.steps=2 --batch.micro=2
says out "^warning: balance.scope = global: from now on, losses count the tokens of 2 sequences together \(was 8\) in the first pass of a step"

# --- the folder of checkpoints is a link to a missing folder: no log is cut, and the run does not start again
mkdir "$work/linked" "$work/scratch"
ln -s "$work/scratch" "$work/linked/checkpoints"
expect 0 "$lyceum" "${few[@]}" "--run.dir=$work/linked" --run.steps=2
logs=$(sha256sum "$work"/linked/{metrics.jsonl,starts.jsonl,routing.h5})
mv "$work/scratch" "$work/unmounted"
expect 4 "$lyceum" "${few[@]}" "--run.dir=$work/linked" --run.steps=3
says err "^lyceum train: $work/linked/checkpoints is a link to $work/scratch, which does not exist: mount or restore that folder"
expect 4 "$lyceum" checkpoint ls "$work/linked"
says err "$work/linked/checkpoints is a link to"
rm "$work/linked/checkpoints"
touch "$work/linked/checkpoints"
expect 4 "$lyceum" "${few[@]}" "--run.dir=$work/linked" --run.steps=3
says err "^lyceum train: $work/linked/checkpoints: cannot be listed: Not a directory"
equal "logs" "$(sha256sum "$work"/linked/{metrics.jsonl,starts.jsonl,routing.h5})" "$logs"

# --- converted weights, which no run has trained: only the model is compared
expect 0 "$lyceum" convert reset "$run" --out "$work/reset" "--data.train=$work/data/valid"
expect 0 "$lyceum" train --config "$work/reset/config.ini" "--data.train=$work/data/train" --run.seed=9 --optim.lr=0.5 \
  --run.steps=2 --checkpoint.every=0
silent_about "from now on"
says out "^config     $work/reset/config.ini was not written by lyceum train and is left unchanged"
grep -q "^train = $work/data/valid$" "$work/reset/config.ini" || fail "the file of convert was replaced"

# --- config.ini: has the configuration of the latest start, and can be used with any number of ranks
own=$work/own/config.ini
expect 0 ranks 2 "${few[@]}" "--run.dir=$work/own" --parallel.expert=2 --checkpoint.resume=none
grep -q "^# lyceum train wrote this file" "$own" || fail "no config.ini"
grep -q "^micro = 0  # derived here: 4$" "$own" || fail "batch.micro is not left to be derived"
grep -q "^resume = auto$" "$own" || fail "a start from config.ini would begin again"
for ranks in 4 2; do
  expect 0 ranks $ranks train --config "$own"
  says out "^nothing to train: 5 of 5 steps are done$"
done
expect 0 ranks 4 train --config "$own" --run.steps=6
grep -q "^steps = 6$" "$own" || fail "config.ini is not from the last start"
grep -q "^micro = 0  # derived here: 2$" "$own" || fail "a derived value was taken for an explicit one"
expect 0 ranks 2 eval --config "$own" --json
expect 0 "$lyceum" plan --config "$own"
# In a run that was moved, config.ini is refused, since it names the old folder. A copy of the file elsewhere is accepted.
cp -r "$work/own" "$work/moved"
cp "$own" "$work/copy.ini"
for command in train eval; do
  expect 2 "$lyceum" $command --config "$work/moved/config.ini"
  says err "^lyceum $command: $work/moved/config.ini continues a run in $work/own, but .*add --run.dir=$work/moved;"
done
for arguments in "$work/moved/config.ini --run.dir=$work/moved" "$work/copy.ini"; do
  # shellcheck disable=SC2086  # words
  expect 0 ranks 2 train --config $arguments
  says out "^nothing to train: 6 of 6 steps are done$"
done
# A run that begins with a named checkpoint: config.ini names it, too, until the run has its own checkpoint.
cp -r "$work/own/checkpoints/step-00000006" "$work/six"
expect 3 "$lyceum" "${few[@]}" --run.steps=9 "--run.dir=$work/named" "--checkpoint.resume=$work/six" --data.valid="$work/absent"
[[ ! -e $work/named/config.ini ]] || fail "a refused start left config.ini"
expect 0 "$lyceum" "${few[@]}" --run.steps=8 "--run.dir=$work/named" "--checkpoint.resume=$work/six"
grep -q "^resume = auto$" "$work/named/config.ini" || fail "config.ini would resume from $work/six"
expect 3 "$lyceum" "${few[@]}" --run.steps=9 "--run.dir=$work/named" "--checkpoint.resume=$work/six"
says err "contains step-00000008, which is newer than the checkpoint to resume from: set checkpoint.resume = auto to continue from it"
sed -i '1i damaged' "$work/named/starts.jsonl"
expect 0 "$lyceum" train --config "$work/named/config.ini" --run.steps=9
says out "^resumed    $work/named/checkpoints/step-00000008"
says out "^warning: $work/named/starts.jsonl: line 1 is damaged, .*; training continues$"
# If config.ini cannot be read, it is not replaced. This needs a file that even root cannot read:
unreadable=$(find /sys/bus -maxdepth 2 -name drivers_probe 2>/dev/null | head -n 1)
if [[ -n $unreadable ]]; then
  ln -sf "$unreadable" "$work/named/config.ini"
  expect 0 "$lyceum" "${few[@]}" "--run.dir=$work/named" --run.steps=10
  says out "^warning: $work/named/config.ini cannot be opened: .*; training continues$"
fi

# --- a checkpoint of another build has a value that this build does not accept
cp -r "$work/six" "$work/wide"
python3 - "$work/wide/manifest.json" <<'PYTHON'
import hashlib, sys
key = b'"manifest_sha256": '
text = open(sys.argv[1], "rb").read().replace(b"clip_norm = 1\\n", b"clip_norm = 1e10\\n")
assert b"1e10" in text
body = text[:text.rindex(key)]
open(sys.argv[1], "wb").write(body + key + b'"' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n')
PYTHON
expect 0 "$lyceum" eval "--checkpoint=$work/wide"
expect 0 "$lyceum" "${few[@]}" --run.steps=7 "--run.dir=$work/ranges" "--checkpoint.resume=$work/wide"
says out "^warning: optim.clip_norm = 1 from now on \(was 1[0e+]+\)"

# --- a run that was killed before its first checkpoint starts again, and reports what it removes
for i in 1 2 3; do echo "{\"step\": $i, \"loss\": 1}"; done >"$work/three"
mkdir "$work/again" && cp "$work/three" "$work/again/metrics.jsonl"
expect 0 "$lyceum" "${few[@]}" "--run.dir=$work/again"
says out "^metrics    3 lines removed: steps after 0 are repeated$"

# --- data without trained tokens
python3 - "$work/data" <<'PYTHON'
import os, shutil, sys
folder = sys.argv[1]
for name, source in ("silent", "train"), ("silent-valid", "valid"):
    for kind in "bin", "idx":
        shutil.copy(f"{folder}/{source}.{kind}", f"{folder}/{name}.{kind}")
    open(f"{folder}/{name}.mask", "wb").write(bytes(os.path.getsize(f"{folder}/{name}.bin") // 2))
PYTHON
for samples in stream packed; do
  for option in "train=$work/data/silent" "valid=$work/data/silent-valid" "train=0.9 $work/data/train 0.1 $work/data/silent"; do
    expect 3 ranks 2 "${few[@]}" "--run.dir=$work/masked" --data.tokenizer= "--data.$option" --data.samples=$samples
    says err "^lyceum train: .*data.${option%%=*} = $work/data/silent.*: no token of its [0-9]+ samples counts in the loss: .*\.mask"
    one_error
    [[ ! -e $work/masked/metrics.jsonl ]] || fail "a refused run left metrics"
  done
done
expect 3 "$lyceum" eval "--checkpoint=$run" "--data.valid=$work/data/silent-valid"
says err "data.valid = $work/data/silent-valid: no token of its"

# --- schedules that do not reach optim.lr
expect 0 "$lyceum" "${few[@]}" "--run.dir=$work/warm" --optim.warmup_steps=50
says out "^warning: optim.warmup_steps = 50 is more than run.steps = 5: the learning rate ends at 0.0003, below optim.lr = 0.003$"
expect 0 "$lyceum" plan "--config=$config" --optim.warmup_steps=50
says out "^warning: optim.warmup_steps = 50 is more than run.steps = 12"
says out "^checkpoints every 5 steps and every 10 min"
expect 0 "$lyceum" plan "--config=$config" --json
python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["warnings"] != [])' "$work/out" || fail "warnings for a usual schedule"

# --- the configuration is printed on any number of ranks, and its mistakes once
for ranks in 1 2 3 4; do
  expect 0 ranks $ranks "${few[@]}" --parallel.expert=2 --parallel.pipeline=2 --print-config
  equal "lines of run.steps" "$(grep -c '^run.steps ' "$work/out")" 1
  cp "$work/out" "$work/printed.ini"
done
expect 0 ranks 4 train "--config=$work/printed.ini" --print-config
expect 0 "$lyceum" "${few[@]}" --parallel.expert=2 --print-config
says out "^# derived for 2 ranks$"
expect 2 "$lyceum" "${few[@]}" --parallel.expert=2 --moe.top_k=99 --print-config
LYCEUM_START_TIMEOUT=soon expect 2 ranks 4 "${few[@]}"
says err "^lyceum train: LYCEUM_START_TIMEOUT is 'soon'"
one_error
expect 0 "$lyceum" completion bash
one=$(<"$work/out")
expect 0 ranks 3 completion bash
equal "completion on three ranks" "$(<"$work/out")" "$one"
expect 0 ranks 3 --version
equal "versions on three ranks" "$(grep -c '^lyceum ' "$work/out")" 1
expect 2 ranks 4 "${few[@]}" --parallel.expert=3
says err "^lyceum train: .*does not divide the 4 ranks of a stage: set parallel.expert = 1, 2 or 4$"
one_error
