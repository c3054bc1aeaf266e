#!/usr/bin/env bash
# Usage: averages_test.sh LYCEUM SOURCE_DIR. `lyceum convert average` computes the mean of checkpoints, and optim.ema the moving
# average of the weights, as numpy does; both can be evaluated, trained and exported.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"
make_data

loss() {
  expect 0 "$lyceum" eval "--checkpoint=$1" --batches=1 --json "${@:2}"
  python3 -c 'import json, sys; print(repr(json.load(open(sys.argv[1]))["loss"]))' "$work/out"
}

# --- a moving average, kept by two ranks that share it, then by one
run=(--optim.ema=0.75 --checkpoint.every=1 --run.steps=4 --optim.schedule_steps=6)
expect 0 ranks 2 "${tiny[@]}" "${run[@]}" --parallel.expert=2 --parallel.zero=1
expect 0 "$lyceum" "${tiny[@]}" "${run[@]}" --run.steps=6
checkpoints=$work/run/checkpoints
"$python" - "$checkpoints" <<'END' || fail "another average than numpy's"
import sys, h5py, numpy
compared = 0
def files(step):
    return h5py.File(f"{sys.argv[1]}/step-{step:08d}/index.h5")
for step in range(1, 6):
    with files(step) as before, files(step + 1) as after:
        names = []
        after["optimizer/ema"].visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert "lm_head/weight" in names and "model/layers/1/mlp/gate/weight" in names, names
        for name in names:
            weights = after[name][...].astype(float)
            expected = 0.75 * before["optimizer/ema/" + name][...].astype(float) + 0.25 * weights
            found = after["optimizer/ema/" + name][...]
            assert (abs(found - expected) <= 2e-7 * (1e-2 + abs(expected) + abs(weights))).all(), (step, name)
            compared += 1
            assert step < 5 or (found != weights).any(), name
assert compared > 100, compared
END
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/plain" --run.steps=6
# Averaging does not change training, which here began on two ranks.
close "loss with an average" "$(metric "$work/run/metrics.jsonl" 4 loss)" "$(metric "$work/plain/metrics.jsonl" 4 loss)" 1e-4

last=$(loss "$work/run") mean=$(loss "$work/run" --ema)
[[ $last != "$mean" ]] || fail "--ema changes nothing"
equal "--ema in the JSON" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ema"])' "$work/out")" True
expect 0 ranks 2 eval "--checkpoint=$work/run" --batches=1 --ema --parallel.tensor=2
says out "^changed +--ema: moving average of the weights$"
close "loss of the average on two ranks" "$(grep -oP '^loss +\K[0-9.]+' "$work/out")" "$mean" 1e-5
expect 0 "$lyceum" convert reset "$work/run" --ema --out "$work/reset"
equal "loss of a run made from the average" "$(loss "$work/reset")" "$mean"
expect 0 "$lyceum" generate --checkpoint "$work/run" --ema --prompt "the" --tokens 8 --temperature 0
cp "$work/out" "$work/text"
expect 0 "$lyceum" generate --checkpoint "$work/reset" --prompt "the" --tokens 8 --temperature 0
cmp -s "$work/out" "$work/text" || fail "another text of the same weights"
for name in run reset; do
  ema=(); [[ $name == reset ]] || ema=(--ema)
  expect 0 "$lyceum" convert export-hf "$work/$name" "${ema[@]}" --out "$work/exported/$name"
done
cmp "$work"/exported/{run,reset}/model.safetensors || fail "another export of the same weights"

expect 2 "$lyceum" eval "--checkpoint=$work/plain" --ema
says err "^lyceum eval: .* has no average of its weights: only runs with optim.ema save one"
expect 2 "$lyceum" "${tiny[@]}" --optim.ema=1
says err "optim.ema = 1"
# A run that turns it on later starts from the weights.
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/plain" --run.steps=7 --optim.ema=0.5
says out "^average +starts from the weights: the checkpoint has none$"
"$python" - "$work/plain/checkpoints" <<'END' || fail "another start than the weights"
import sys, h5py
with h5py.File(f"{sys.argv[1]}/step-00000006/index.h5") as before, h5py.File(f"{sys.argv[1]}/step-00000007/index.h5") as after:
    a, b, mean = before["lm_head/weight"][...], after["lm_head/weight"][...], after["optimizer/ema/lm_head/weight"][...]
    assert (abs(mean - (a.astype(float) + b) / 2) <= 1e-7).all()
END

# --- the mean of checkpoints that different meshes saved
expect 0 ranks 2 convert average "$checkpoints"/step-0000000{2,4,6} --weights 1,0.5,-0.25 --out "$work/mean"
says out "^averaged +.*step-00000004 \(step 4\), weight 0.5$"
expect 0 "$lyceum" checkpoint verify "$work/mean"
expect 0 "$lyceum" convert average "$checkpoints"/step-0000000{2,4,6} --out "$work/equal"
"$python" - "$checkpoints" "$work" <<'END' || fail "another mean than numpy's"
import sys, h5py, numpy
steps = [h5py.File(f"{sys.argv[1]}/step-{step:08d}/index.h5") for step in (2, 4, 6)]
for folder, weights in ("mean", (1, 0.5, -0.25)), ("equal", (1, 1, 1)):
    made = h5py.File(f"{sys.argv[2]}/{folder}/checkpoints/step-00000000/index.h5")
    names = []
    made.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    assert len(names) > 60 and not any(name.startswith("optimizer") for name in names), names
    for name in names:
        mean = sum(w * file[name][...].astype(float) for w, file in zip(weights, steps)) / sum(weights)
        found = made[name][...]
        assert (abs(found - mean) <= numpy.spacing(abs(mean).astype(numpy.float32))).all(), (folder, name)
END
[[ $(loss "$work/equal") != "$(loss "$work/mean")" ]] || fail "the weights have no effect"
expect 0 ranks 2 train --config "$work/equal/config.ini" --run.steps=2 --parallel.expert=2
says out "^optimizer +new: the checkpoint contains only weights"
expect 0 "$lyceum" convert average "$work/run" "$work/reset" --out "$work/one" --optim.lr=1e-5 --dry-run
[[ ! -e $work/one ]] || fail "--dry-run wrote"

# Keys and tensors that differ are printed. So are keys of later checkpoints that the new run does not have.
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/short" --run.steps=1 --batch.seq_len=16 --run.log_every=5
expect 0 "$lyceum" convert average "$work/run" "$work/short" --out "$work/one" --dry-run --moe.shared_experts=0
says out "^differs +batch.seq_len = 16 in $work/short/.*step-00000001: the new run has 32$"
equal "keys that differ" "$(grep -c ^differs "$work/out")" 1
says out "^changed +moe.shared_experts = 0 \(was 1\)$"
says out "^left over +model/layers/#/mlp/shared_experts/.* \(2 tensors\)$"

# The number of open files does not grow with the number of files of a checkpoint.
mkdir "$work/copies"  # each of two files with weights
for i in {1..130}; do cp -r "$work/mean/checkpoints/step-00000000" "$work/copies/$i"; done
few_files() { (ulimit -n 200 && exec "$lyceum" "$@"); }
expect 0 few_files convert average "$work"/copies/* --out "$work/many"
equal "loss of the mean of copies" "$(loss "$work/many")" "$(loss "$work/mean")"
rm -r "$work/copies"

refused() {
  expect "$1" "$lyceum" convert average "${@:3}" --out "$work/none"
  says err "^lyceum convert: .*$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -e $work/none ]] || fail "something was written: $(find "$work/none")"
}
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/wide" --run.steps=1 --model.hidden=48
refused 2 "have different models: model.hidden = 32 and 48" "$work/run" "$work/wide"
refused 2 "weights has 1 number for 2 checkpoints" "$work/run" "$work/reset" --weights=1
refused 2 "their sum is 0" "$work/run" "$work/reset" --weights=0.5,-0.5
refused 2 "weights has 1 number for 2 checkpoints" "$work/run" "$work/reset" --weights ""
refused 2 "their sum is too large" "$work/run" "$work/reset" --weights=1e308,1e308
refused 2 "'x' is not a number" "$work/run" "$work/reset" --weights=1,x
refused 2 "average needs checkpoints or runs"
refused 2 "has no average of its weights" "$work/run" "$work/reset" --ema
cp -r "$work/run" "$work/damaged"
shard=$work/damaged/checkpoints/step-00000004/$(ls "$work/damaged/checkpoints/step-00000004" | grep -m1 rank)
printf 'damage' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") / 2)) conv=notrunc status=none
refused 3 "${shard##*/}.* SHA-256" "$work/run" "$work/damaged/checkpoints/step-00000004"
expect 3 ranks 2 convert average "$work/run" "$work/damaged/checkpoints/step-00000004" --out "$work/none"
says err "^lyceum convert: .*${shard##*/}.* SHA-256"
full() { (ulimit -f 20 && exec "$lyceum" "$@"); }
expect 4 full convert average "$work/run" "$work/reset" --out "$work/none"
says err "^lyceum convert: checkpoint step-00000000 was not saved: .*File too large"
[[ ! -e $work/none/config.ini ]] || fail "a run was written on a full disk"
rm -rf "$work/none"
expect 2 "$lyceum" convert reset "$work/run" --out "$work/none" --weights=1
says err "weights does not apply to reset"
expect 2 "$lyceum" convert average "$work/run" "$work/reset" --out "$work/equal"
says err "contains checkpoints: name another folder"
