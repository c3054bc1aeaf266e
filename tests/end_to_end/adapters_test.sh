#!/usr/bin/env bash
# Usage: adapters_test.sh LYCEUM SOURCE_DIR. A run with adapters (optim.lora_rank) starts from a trained model, lowers its
# loss, resumes after a kill with the same bits and on another mesh, and becomes a plain model of the same loss. Impossible
# adapters are refused.
. "$(dirname "$0")/lib.sh" "$@"
make_data

# loss RUN [BATCHES]: prints the loss, in full precision, on batches of 8 sequences that no run has trained on, by default 1.
loss() {
  expect 0 "$lyceum" eval "--checkpoint=$1" "--batches=${2:-1}" --json
  python3 -c 'import json, sys; print(repr(json.load(open(sys.argv[1]))["loss"]))' "$work/out"
}
targets="model/layers/*/self_attn/[qkvo]_proj/weight,model/layers/*/mlp/*,lm_head/weight"

expect 0 ranks 2 "${tiny[@]}" "--run.dir=$work/base" --parallel.expert=2 --parallel.zero=1
expect 0 "$lyceum" convert reset "$work/base" --out "$work/reset"
adapt=(train --config "$work/reset/config.ini" --optim.lora_rank=4 --optim.lora_alpha=16 "--optim.lora_targets=$targets"
  --optim.lr=5e-3 --optim.warmup_steps=0 --checkpoint.every=3)

# --- training adapters
from=("--checkpoint.resume=$work/reset/checkpoints/step-00000000")
expect 0 "$lyceum" "${adapt[@]}" "--run.dir=$work/adapted" "${from[@]}"
says out "^adapters   [0-9].* of rank 4"
says out "^adapters   new: the checkpoint has none"
expect 1 "$lyceum" checkpoint diff "$work/reset/checkpoints/step-00000000" "$work/adapted/checkpoints/step-00000012"
! grep -q '^model/.*equal' "$work/out" || fail "a frozen weight changed"

# --- another mesh; a kill in the middle, and the rest on the first mesh
expect 0 ranks 2 "${adapt[@]}" "--run.dir=$work/mesh" "${from[@]}" --parallel.tensor=2 --parallel.zero=3
for step in 1 6 12; do
  close "step $step on another mesh" "$(metric "$work/mesh/metrics.jsonl" $step loss)" \
    "$(metric "$work/adapted/metrics.jsonl" $step loss)" 1e-4
done
long=("${adapt[@]}" --run.steps=160 --checkpoint.every=30)
expect 0 "$lyceum" "${long[@]}" "--run.dir=$work/calm" "${from[@]}"
first=$(loss "$work/reset") last=$(loss "$work/calm")
python3 -c "import sys; sys.exit(not $last < $first - 0.1)" || fail "the loss is $last, and was $first"
beyond() { [[ -f $1/metrics.jsonl ]] && (($(wc -l <"$1/metrics.jsonl") > 35)); }
"$lyceum" "${long[@]}" "--run.dir=$work/killed" "${from[@]}" >"$work/out" 2>"$work/err" &
job=$!
wait_for 60 beyond "$work/killed" || fail "the run to kill does not start"
kill -KILL "$job"
finish
((code != 0)) || fail "a killed run exited with code 0"
[[ ! -d $work/killed/checkpoints/step-00000160 ]] || fail "the run was over before it was killed"
expect 0 "$lyceum" "${long[@]}" "--run.dir=$work/killed"
says out "resumed .*step-000"
same_weights "$work"/{killed,calm}/checkpoints/step-00000160

# --- the merged model
expect 0 "$lyceum" convert merge "$work/adapted" --out "$work/merged"
expect 0 "$lyceum" checkpoint verify "$work/merged"
! grep -q '^lora_rank *= *[1-9]' "$work/merged/config.ini" || fail "the merged model has adapters"
adapted=$(loss "$work/adapted") before=$(loss "$work/base")
equal "loss of the merged model" "$(loss "$work/merged")" "$adapted"
close "loss of validation in training" "$(loss "$work/adapted" 2)" "$(metric "$work/adapted/metrics.jsonl" 12 valid_loss)" 1e-5
[[ $adapted != "$before" ]] || fail "the adapters have no effect"
for run in adapted merged; do
  expect 0 "$lyceum" generate --checkpoint "$work/$run" --prompt "the " --tokens 12 --temperature=0
  cp "$work/out" "$work/text-$run"
  expect 0 "$lyceum" eval --checkpoint "$work/$run" --batches=1 --routing "$work/$run.h5"
  expect 0 "$lyceum" routing dump "$work/$run.h5" --csv "$work/$run.csv"
  cut -d, -f2- "$work/$run.csv" >"$work/counts-$run" # without the step
done
equal "text" "$(cat "$work/text-adapted")" "$(cat "$work/text-merged")"
cmp "$work"/counts-{adapted,merged} || fail "the routing differs"
expect 0 ranks 2 train --config "$work/merged/config.ini" --run.steps=2 --parallel.expert=2
expect 0 "$lyceum" plan "${adapt[@]:1}" --ranks=2 --parallel.expert=2

# --- refused
# refused PATTERN argument …: expects one line of lyceum train and exit code 2.
refused() {
  rm -rf "$work/none"
  expect 2 "$lyceum" "${adapt[@]}" "--run.dir=$work/none" "${from[@]}" "${@:2}"
  says err "^lyceum train: .*$1"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
refused "optim.lora_rank = 4 without optim.lora_targets" --optim.lora_targets=
refused "optim.train_only with optim.lora_rank = 4" "--optim.train_only=model/*"
refused "optim.rule = muon with optim.lora_rank = 4" --optim.rule=muon
refused "no trained matrix with this name: \*/norm/weight, x" "--optim.lora_targets=$targets,*/norm/weight,x"
refused "'lm_head/weight\[2:\]' names rows" "--optim.lora_targets=lm_head/weight[2:]"
refused "optim.lora_rank = 33: model/layers/.* is \[[0-9]+, [0-9]+\]: set a rank of at most" --optim.lora_rank=33
expect 2 "$lyceum" "${adapt[@]}" "--run.dir=$work/adapted" --optim.lora_rank=2 --run.steps=14
says err "optim.lora_rank = 2 \(was 4\)"
expect 2 "$lyceum" "${adapt[@]}" "--run.dir=$work/none" "--checkpoint.resume=$work/adapted/checkpoints/step-00000009" \
  --optim.lora_rank=2
says err "has other adapters: .*convert merge .*optim.lora_rank = 2 \(was 4\)"
expect 2 "$lyceum" "${adapt[@]}" "--run.dir=$work/none" "--checkpoint.resume=$work/base/checkpoints/step-00000012" \
  --run.steps=20
says err "has no adapters: .*convert reset "
expect 2 "$lyceum" convert merge "$work/base" --out "$work/none"
says err "has no adapters to merge"
