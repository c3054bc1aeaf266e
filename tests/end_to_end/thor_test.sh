#!/usr/bin/env bash
# Usage: thor_test.sh LYCEUM SOURCE_DIR. THOR: random experts (moe.router = uniform) and copies of samples (model.consistency):
# bit-identical resumption, other meshes, each sample read twice, repeatable evaluation, and values that are refused.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"
make_data
uniform=("${tiny[@]}" --moe.router=uniform --moe.top_k=2 --balance.expert=0 --balance.device=0 --optim.schedule=constant)
thor=("${uniform[@]}" --batch.global=8 --batch.micro=4 --model.consistency=2)
last=checkpoints/step-00000012

# --- a run that ended early continues as one that did not; another mesh has the same experts
expect 0 "$lyceum" "${thor[@]}" "--run.dir=$work/whole"
expect 0 "$lyceum" "${thor[@]}" "--run.dir=$work/parts" --run.steps=5
expect 0 "$lyceum" "${thor[@]}" "--run.dir=$work/parts" --model.recompute=full
says out "resumed .*step-00000005"
same_weights "$work"/{whole,parts}/$last
expect 0 ranks 2 "${thor[@]}" --parallel.tensor=2 --parallel.sequence=true --batch.micro=2 "--run.dir=$work/cut"
for step in 1 12; do
  for name in loss consistency_loss grad_norm; do
    close "$name, step $step, on another mesh" "$(metric "$work/cut/metrics.jsonl" $step $name)" \
      "$(metric "$work/whole/metrics.jsonl" $step $name)" 1e-4
  done
done
equal "balance loss" "$(metric "$work/whole/metrics.jsonl" 12 balance_loss)" 0.0
python3 -c 'import sys; assert float(sys.argv[1]) > 0' "$(metric "$work/whole/metrics.jsonl" 12 consistency_loss)" ||
  fail "the copies do not differ"

# --- the copies are read from half as many samples
expect 0 "$lyceum" "${uniform[@]}" --batch.global=4 "--run.dir=$work/once"
equal "tokens of the data" "$(metric "$work/whole/metrics.jsonl" 12 tokens)" "$(metric "$work/once/metrics.jsonl" 12 tokens)"
equal "targets of a step" "$(metric "$work/whole/metrics.jsonl" 12 targets)" $((2 * $(metric "$work/once/metrics.jsonl" 12 targets)))
! grep -q consistency_loss "$work/once/metrics.jsonl" || fail "there are no copies"

# --- with all experts, both copies have the same predictions
expect 0 "$lyceum" "${thor[@]}" --moe.top_k=5 --moe.experts=5 --run.steps=2 "--run.dir=$work/all"
python3 -c 'import sys; assert abs(float(sys.argv[1])) < 1e-9' "$(metric "$work/all/metrics.jsonl" 2 consistency_loss)" ||
  fail "copies with all experts differ"

# --- the routing of a run: k different experts for each token
"$python" - "$work/whole/routing.h5" <<'END' || fail "wrong routing"
import sys, h5py
with h5py.File(sys.argv[1]) as file:
    layers = [layer for layer in file["layers"].values() if "counts" in layer]
    assert layers
    for layer in layers:
        counts = layer["counts"][-1]  # [k, experts]
        assert len(counts) == 2 and (counts.sum(1) == counts.sum() / 2).all()
        assert counts.sum(0).max() < 2 * counts.sum(0).mean()
END

# --- evaluation repeats the same experts, and may use more of them
# loss_of ARGUMENTS …: prints the loss of an evaluation.
loss_of() {
  expect 0 "$lyceum" eval --batches=2 --json "--checkpoint=$work/whole/$last" "$@"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["loss"])' "$work/out"
}
loss=$(loss_of) again=$(loss_of) of_ones=$(loss_of --batch.micro=1) of_four=$(loss_of --moe.top_k=4)
equal "loss, repeated" "$again" "$loss"
close "loss in other micro-batches" "$of_ones" "$loss" 1e-6
[[ $of_four != "$loss" ]] || fail "moe.top_k has no effect"
expect 0 "$lyceum" generate --checkpoint "$work/whole/$last" --prompt "int " --tokens 5
expect 2 "$lyceum" eval --checkpoint "$work/whole/$last" --skip-top=1
says err "skip-top = 1 with moe.router = uniform"

# --- what is refused
refused() {
  expect 2 "$lyceum" "$@" "--run.dir=$work/never"
  equal "lines of the message" "$(wc -l <"$work/err")" 1
}
refused "${thor[@]}" --batch.micro=1
says err "^lyceum train: model.consistency = 2 needs both copies of a sample in one micro-batch"
refused "${thor[@]}" --model.loss_chunk=8
says err "^lyceum train: model.loss_chunk = 8 with model.consistency"
refused "${thor[@]}" --moe.gates=raw
says err "^lyceum train: moe.gates = raw with moe.router = uniform"
refused "${thor[@]}" --balance.expert=0.1
says err "^lyceum train: balance.expert = 0.1 with moe.router = uniform"
