#!/usr/bin/env bash
# Usage: moments_test.sh LYCEUM SOURCE_DIR. Optimizer states in bf16 (optim.moments): bit-identical resumption, also after a
# kill, other meshes, a change from f32 and back, what checkpoints contain, and the memory that a plan states.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"
make_data
half=(--optim.moments=bf16 --optim.beta2=0.999)

# --- a run that ended early, and one that was killed, continue as one that did not
for rule in adamw muon; do
  pair=("${tiny[@]}" "${half[@]}" --optim.rule=$rule --parallel.expert=2 --parallel.zero=1 --optim.schedule=constant)
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/whole-$rule"
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/parts-$rule" --run.steps=5
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/parts-$rule"
  says out "resumed .*step-00000005"
  same_weights "$work"/{whole,parts}-$rule/checkpoints/step-00000012
  expect 0 ranks 2 "${pair[@]}" "--run.dir=$work/background-$rule" --checkpoint.background=true
  same_weights "$work"/{whole,background}-$rule/checkpoints/step-00000012
done
killed=("${tiny[@]}" "${half[@]}" --optim.schedule=constant --checkpoint.every=20 --run.steps=60)
expect 0 "$lyceum" "${killed[@]}" "--run.dir=$work/undisturbed"
"$lyceum" "${killed[@]}" "--run.dir=$work/killed" >"$work/out" 2>"$work/err" &
job=$!
wait_for 60 test -e "$work/killed/checkpoints/step-00000020/manifest.json" || fail "no checkpoint after 60 s"
kill -KILL "$job"
finish
expect 0 "$lyceum" "${killed[@]}" "--run.dir=$work/killed"
same_weights "$work"/{undisturbed,killed}/checkpoints/step-00000060

# --- another mesh trains alike
expect 0 ranks 2 "${tiny[@]}" "${half[@]}" --optim.schedule=constant --parallel.tensor=2 --parallel.zero=2 "--run.dir=$work/cut"
close "loss on another mesh" "$(metric "$work/cut/metrics.jsonl" 12 loss)" "$(metric "$work/whole-adamw/metrics.jsonl" 12 loss)" 1e-4

# --- what a checkpoint contains: moments in two bytes, which h5py reads and which f32 widens
checkpoint=$work/whole-adamw/checkpoints/step-00000012
grep -q '"type":"bf16"' "$checkpoint/manifest.json" || fail "no types in the manifest"
expect 0 "$lyceum" checkpoint verify "$checkpoint"
expect 0 "$lyceum" checkpoint show "$checkpoint"
says out "^optimizer/exp_avg_sq .* bf16 "
says out "^lm_head/weight .* f32 "
"$python" - "$checkpoint" <<'END' || fail "h5py reads something else"
import sys, h5py, numpy
names = []
with h5py.File(sys.argv[1] + "/index.h5") as file:
    file["optimizer"].visititems(lambda name, item: names.append("optimizer/" + name) if isinstance(item, h5py.Dataset) else None)
    assert len(names) > 100, names
    for name in names:
        assert file[name].id.get_type().get_size() == 2, name
        values = file[name][...]
        bits = values.astype(numpy.float32).view(numpy.uint32)
        assert values.dtype.kind == "f" and not (bits & 0xffff).any() and numpy.isfinite(values).all(), name
    assert any((file[name][...] != 0).any() for name in names)
    assert file["lm_head/weight"].dtype == numpy.float32
END
cp -r "$work/whole-adamw" "$work/changed"
expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2 --optim.schedule=constant --optim.beta2=0.999 "--run.dir=$work/changed" --run.steps=13
says out "^warning: optim.moments = f32 from now on .was bf16."
! grep -q '"type":"bf16"' "$work/changed/checkpoints/step-00000013/manifest.json" || fail "bf16 after a change to f32"
expect 0 "$lyceum" "${tiny[@]}" "${half[@]}" --optim.schedule=constant "--run.dir=$work/changed" --run.steps=14
says out "^warning: optim.moments = bf16 from now on .was f32."
expect 0 "$lyceum" checkpoint show "$work/changed"
says out "^optimizer/exp_avg .* bf16 "
# Conversions and evaluations read the weights of such checkpoints.
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=1
expect 0 "$lyceum" convert reset "$checkpoint" --out "$work/reset"
expect 0 "$lyceum" checkpoint show "$work/reset"

# --- the memory of a plan: 12 bytes per parameter of a model in bf16 become 8
optimizer() {
  expect 0 "$lyceum" plan --config "$source/configs/papers/deepseekmoe-2b.ini" --json --run.precision=bf16 "$@"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["memory_bytes_per_rank"]["optimizer"])' "$work/out"
}
f32=$(optimizer)
close "planned bytes" "$(optimizer --optim.moments=bf16)" "$(python3 -c "print($f32 * 8 / 12)")" 1e-3

# --- wrong values
expect 2 "$lyceum" "${tiny[@]}" --optim.moments=f16 "--run.dir=$work/none"
says err "^lyceum train: .*optim.moments = f16"
equal "lines of the message" "$(wc -l <"$work/err")" 1
