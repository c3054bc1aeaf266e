#!/usr/bin/env bash
# Usage: dropout_test.sh LYCEUM SOURCE_DIR. Dropout (model.dropout): bit-identical resumption and recomputation, other meshes,
# evaluation without it, learnt rates in checkpoints and logs, conversion to experts, export, and values that are refused.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"
make_data
dense=("${tiny[@]}" --moe.experts=0 --moe.shared_experts=0 --balance.expert=0 --model.first_dense_layers=0 --model.ffn_hidden=48
  --optim.schedule=constant)
last=checkpoints/step-00000012

# --- a run that ended early continues as one that did not; recomputation and micro-batches draw the same masks
for kind in plain concrete block; do
  kept=("${dense[@]}" --model.dropout=0.2 --model.dropout_kind=$kind --model.dropout_block=3 --checkpoint.at_start=true)
  [[ $kind != concrete ]] || kept+=(--model.dropout_regularizer=1e-3 --model.dropout_weight_regularizer=1e-4)
  expect 0 "$lyceum" "${kept[@]}" "--run.dir=$work/$kind"
  expect 0 "$lyceum" "${kept[@]}" "--run.dir=$work/parts-$kind" --run.steps=5
  expect 0 "$lyceum" "${kept[@]}" "--run.dir=$work/parts-$kind" --model.recompute=full
  says out "resumed .*step-00000005"
  same_weights "$work"/{,parts-}$kind/$last
  expect 0 ranks 2 "${kept[@]}" --parallel.tensor=2 --parallel.sequence=true --batch.micro=2 "--run.dir=$work/cut-$kind"
  for step in 1 12; do
    close "loss of $kind, step $step, on another mesh" "$(metric "$work/cut-$kind/metrics.jsonl" $step loss)" \
      "$(metric "$work/$kind/metrics.jsonl" $step loss)" 1e-4
  done
done
expect 0 "$lyceum" "${dense[@]}" "--run.dir=$work/none"
for kind in plain concrete block; do
  [[ $(metric "$work/$kind/metrics.jsonl" 1 loss) != "$(metric "$work/none/metrics.jsonl" 1 loss)" ]] || fail "$kind drops nothing"
done

# --- evaluation drops nothing
# loss_of ARGUMENTS …: prints the loss of an evaluation.
loss_of() {
  expect 0 "$lyceum" eval --batches=2 --json "$@"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss"])' "$work/out"
}
plain=$(loss_of "--checkpoint=$work/plain/$last")
equal "loss with another rate" "$(loss_of "--checkpoint=$work/plain/$last" --model.dropout=0.9)" "$plain"
equal "loss without rates" "$(loss_of "--checkpoint=$work/concrete/$last" --model.dropout=0)" "$(loss_of "--checkpoint=$work/concrete/$last")"
close "validation during the run" "$(metric "$work/concrete/metrics.jsonl" 12 valid_loss)" "$(loss_of "--checkpoint=$work/concrete/$last")" 1e-6

# --- rates that are learnt: their tensors and their loss
expect 0 "$lyceum" checkpoint show "$work/concrete/$last"
says out "^model/embed_dropout +1 +1 "
"$python" - "$work/concrete/checkpoints" <<'END' || fail "the rates are wrong"
import sys, math, h5py
initial, final = (h5py.File(f"{sys.argv[1]}/step-{step:08}/index.h5") for step in (0, 12))
names = ["model/embed_dropout/logit"] + [f"model/layers/{l}/{h}_dropout/logit" for l in range(3) for h in ("attention", "ffn")]
for name in names:
    assert abs(initial[name][0] - math.log(0.2 / 0.8)) < 1e-6, (name, initial[name][0])
    assert final[name][0] != initial[name][0], name
END
metric "$work/concrete/metrics.jsonl" 12 dropout_loss >"$work/loss"
equal "balance loss" "$(metric "$work/concrete/metrics.jsonl" 12 balance_loss)" 0.0
python3 -c 'import sys; assert float(sys.argv[1]) != 0' "$(cat "$work/loss")" || fail "dropout_loss is 0"
count() {
  expect 0 "$lyceum" plan "--config=$config" "${dense[@]:2}" --json "$@"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["parameters"]["total"])' "$work/out"
}
equal "parameters" "$(count --model.dropout=0.1 --model.dropout_kind=concrete)" $(($(count --model.dropout=0.1) + 7))

# --- SMoE-Dropout begins as the dense model, which may have been trained with dropout
expect 0 "$lyceum" convert modulize "$work/plain/$last" --experts 4 --out "$work/experts"
close "loss of the experts" "$(loss_of "--checkpoint=$work/experts")" "$plain" 1e-5
expect 2 "$lyceum" convert modulize "$work/concrete/$last" --experts 4 --out "$work/none-made"
says err "model.dropout_kind = concrete with moe.experts"
expect 0 "$lyceum" convert modulize "$work/concrete/$last" --experts 4 --out "$work/more-experts" --model.dropout=0
expect 0 "$lyceum" checkpoint show "$work/more-experts"
says out "^model/embed_tokens "
! grep -q "^model/embed_dropout" "$work/out" || fail "experts with rates of dropout"
expect 0 "$lyceum" convert reset "$work/concrete/$last" --out "$work/reset"
expect 0 "$lyceum" checkpoint show "$work/reset"
says out "^model/embed_dropout +1 +1 "

expect 0 "$lyceum" convert reset "$work/concrete/$last" --out "$work/no-rates" --model.dropout=0
equal "loss without rates" "$(loss_of "--checkpoint=$work/no-rates")" "$(loss_of "--checkpoint=$work/concrete/$last")"
expect 2 "$lyceum" convert reset "$work/plain/$last" --out "$work/none-made" --model.dropout_kind=concrete
says err "model/embed_dropout/logit to create"

# --- the commands of configs/smoe-dropout-small.ini in miniature
small=(--run.device=cpu --run.threads=1 --run.steps=6 --run.log_every=1 "--data.train=$work/data/train" "--data.tokenizer=$work/data/tokenizer.model"
  --batch.global=8 --batch.seq_len=32 --model.vocab=384 --model.layers=2 --model.hidden=32 --model.heads=2 --optim.warmup_steps=2)
expect 0 "$lyceum" train "--config=$source/configs/dense-small.ini" "${small[@]}" --model.ffn_hidden=64 --model.dropout=0.1 "--run.dir=$work/dense-small"
expect 0 "$lyceum" convert modulize "$work/dense-small" --experts 16 --moe.gates=renormalized --moe.top_k_start=2 --model.dropout=0 \
  --out "$work/smoe-small"
expect 0 "$lyceum" train "--config=$source/configs/smoe-dropout-small.ini" "${small[@]}" --moe.expert_hidden=4 "--run.dir=$work/smoe-small"
says out "$work/smoe-small"
equal "last step" "$(metric "$work/smoe-small/metrics.jsonl" 6 step)" 6
python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(not a < b)' "$(metric "$work/smoe-small/metrics.jsonl" 1 loss)" \
  "$(metric "$work/dense-small/metrics.jsonl" 1 loss)" || fail "the experts do not begin with the dense model's weights"

# --- replays of steps, also on another data rank, draw the same masks
for kind in plain concrete block; do
  expect 0 ranks 2 "${dense[@]}" --model.dropout=0.2 --model.dropout_kind=$kind --model.dropout_block=3 --run.replay_every=3 "--run.dir=$work/replayed-$kind"
done

# --- an exported model has no rates
expect 0 "$lyceum" convert export-hf "$work/concrete/$last" --out "$work/exported"
! grep -aq dropout/logit "$work"/exported/*.safetensors || fail "exported rates"
! grep -aq dropout.logit "$work"/exported/*.safetensors || fail "exported rates"

# --- what is refused
refused() {
  expect 2 "$lyceum" "$@" "--run.dir=$work/never"
  equal "lines of the message" "$(wc -l <"$work/err")" 1
}
refused "${tiny[@]}" --model.dropout=0.1 --model.dropout_kind=concrete
says err "^lyceum train: model.dropout_kind = concrete with moe.experts"
refused "${tiny[@]}" --model.dropout=1
says err "model.dropout = 1"
refused "${tiny[@]}" --model.dropout=0.1 --model.dropout_kind=block --model.dropout_block=33
says err "model.dropout_block = 33 is more than batch.seq_len = 32"
refused "${tiny[@]}" --model.dropout=0.1 --model.dropout_kind=blocks
says err "model.dropout_kind"
run "$lyceum" "${dense[@]}" --model.dropout=0.2 --model.dropout_kind=concrete "--run.dir=$work/plain" --run.steps=13
equal "exit code" "$code" 2
says err "model.dropout_kind"
run "$lyceum" "${dense[@]}" --model.dropout=0.3 "--run.dir=$work/plain" --run.steps=13 --checkpoint.at_start=true
equal "exit code" "$code" 0
says out "^warning: model.dropout = 0.3 from now on .was 0.2."
run "$lyceum" "${dense[@]}" --model.dropout=0 "--run.dir=$work/block" --run.steps=13
equal "exit code" "$code" 0
says out "^warning:? .*model.dropout_kind = plain.* .was block."
