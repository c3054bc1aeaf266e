#!/usr/bin/env bash
# Usage: mtp_test.sh LYCEUM SOURCE_DIR. Modules of multi-token prediction are trained beside the model, resumed, converted and
# planned; evaluation and generation do not run them.
. "$(dirname "$0")/lib.sh" "$@"
make_data
modules=(--mtp.depth=2 --mtp.weight=0.5)

# refused PATTERN ARGUMENTS …: train prints one line and ends with code 2.
refused() {
  expect 2 "$lyceum" "${tiny[@]}" "--run.dir=$work/refused" "${@:2}"
  says err "^lyceum train: $1"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -e $work/refused ]] || fail "a refused run left $work/refused behind"
}
refused "mtp.depth = -1 on the command line: must be in \[0, 10000\]" --mtp.depth=-1
refused "mtp.depth = 32 with batch.seq_len = 32 leaves the last module no token to predict" --mtp.depth=32
refused "mtp.weight = -0.5 on the command line: must be in \[0, 10000\]" --mtp.depth=1 --mtp.weight=-0.5

# --- training, with the loss of the modules apart from that of the model
expect 0 "$lyceum" "${tiny[@]}" "${modules[@]}"
says out "^modules +2 modules of multi-token prediction with [0-9.]+ k parameters"
says out "^ *12/12 .*  mtp [0-9]\.[0-9]{4}$"
cp "$work/out" "$work/trained"
of() { metric "$work/$1/metrics.jsonl" "$2" "$3"; }
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/plain" --run.steps=1 --checkpoint.every=0
equal "the first loss without modules" "$(of plain 1 loss)" "$(of run 1 loss)"
equal "the balance loss counts the routers of modules" \
  "$(python3 -c "print($(of run 1 balance_loss) > 1.3 * $(of plain 1 balance_loss))")" True
# With untrained modules, each of two losses is about log 384, for 31 and 30 of 32 tokens.
close "the first loss of the modules" "$(of run 1 mtp_loss)" "$(python3 -c 'import math; print(0.5 * (31 + 30) / 64 * math.log(384))')" 0.02
python3 -c "import sys; sys.exit(not $(of run 12 mtp_loss) < 0.95 * $(of run 1 mtp_loss))" || fail "the modules have learned nothing"

for mesh in "2 --parallel.pipeline=2 --batch.micro=2" "2 --parallel.tensor=2 --parallel.sequence=true --parallel.zero=1" \
  "4 --parallel.pipeline=2 --parallel.expert=2 --parallel.zero=3 --model.recompute=full"; do
  read -ra arguments <<<"$mesh"
  expect 0 ranks "${arguments[0]}" "${tiny[@]}" "${modules[@]}" "--run.dir=$work/mesh" --run.steps=4 --checkpoint.every=0 \
    "${arguments[@]:1}"
  for key in loss mtp_loss grad_norm; do
    close "$key on ranks $mesh" "$(of mesh 4 $key)" "$(of run 4 $key)" 1e-4
  done
  rm -rf "$work/mesh"
done

# --- resuming
from=(--checkpoint.resume="$work/run/checkpoints/step-00000005" "--run.dir=$work/resumed")
expect 0 "$lyceum" "${tiny[@]}" "${modules[@]}" "${from[@]}"
same_weights "$work"/{run,resumed}/checkpoints/step-00000012
expect 2 "$lyceum" "${tiny[@]}" "${from[@]}" "--run.dir=$work/other" --mtp.depth=1
says err "contains another model .this model has no model/mtp/1/enorm/weight.: set these keys as in its run:"
says err "mtp.depth = 1 .was 2."
expect 0 "$lyceum" "${tiny[@]}" "${from[@]}" "--run.dir=$work/lighter" --run.steps=6 --checkpoint.every=0 --mtp.depth=2 --mtp.weight=0.1
close "the loss with another weight" "$(of lighter 6 mtp_loss)" "$(python3 -c "print($(of run 6 mtp_loss) / 5)")" 1e-6

# --- reading: the modules are not there
expect 0 "$lyceum" checkpoint show "$work/run" --all
says out "^model/mtp/1/proj/weight +f32 +\[32, 64\]"
value() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1"; }
expect 0 "$lyceum" eval "--checkpoint=$work/run" --batches=2 --json
close "loss against training's own" "$(value loss)" "$(of run 12 valid_loss)" 1e-6
equal "changes" "$(value changed)" "{}"
loss=$(value loss)
expect 0 ranks 2 eval "--checkpoint=$work/run" --batches=2 --json --parallel.pipeline=2 --batch.micro=2
close "loss on two stages" "$(value loss)" "$loss" 1e-6
expect 2 "$lyceum" eval "--checkpoint=$work/run" --mtp.depth=1
says err "mtp.depth applies to training only"
expect 0 "$lyceum" generate "--checkpoint=$work/run" --prompt "The" --temperature 0 --tokens 8
expect 0 "$lyceum" eval "--checkpoint=$work/run" --batches=1 --routing "$work/routing.h5"
expect 0 "$lyceum" routing report "$work/routing.h5"
! grep -Eq '^layer[34] ' "$work/out" || fail "an evaluation reports the routers of modules"
expect 0 "$lyceum" routing report "$work/run/routing.h5" --html "$work/page.html"
says out '^layer4 '
grep -q "Loss of multi-token prediction" "$work/page.html" || fail "the page has no loss of the modules"

# --- conversions
expect 0 "$lyceum" convert reset "$work/run" --out "$work/kept"
expect 0 "$lyceum" train --config "$work/kept/config.ini" --run.steps=1
expect 0 "$lyceum" convert reset "$work/run" --out "$work/without" --mtp.depth=0
expect 0 "$lyceum" eval "--checkpoint=$work/without" --batches=2 --json
equal "loss without modules" "$(value loss)" "$loss"
expect 0 "$lyceum" convert insert "$work/run" --out "$work/grown" --experts=2
says out "model/mtp/\*/mlp/gate/weight\[8:\]"
expect 0 ranks 2 train --config "$work/grown/config.ini" --run.steps=1 --parallel.expert=2
expect 2 "$lyceum" convert prune "$work/run" --out "$work/pruned" --routing "$work/run" --threshold=0.5
says err "mtp.depth = 2: prune cannot change the modules of multi-token prediction"
expect 0 "$lyceum" convert prune "$work/run" --out "$work/pruned" --routing "$work/run" --threshold=0.5 --mtp.depth=0

# --- models of transformers: in the layout of GLM-4.5 and back, and without the modules
glm=(--moe.router=sigmoid --moe.gates=renormalized --model.qkv_bias=true --model.qk_norm=head)
expect 0 "$lyceum" "${tiny[@]}" "${modules[@]}" "${glm[@]}" "--run.dir=$work/glm" --run.steps=2 --checkpoint.every=0
expect 0 "$lyceum" convert export-hf "$work/glm" --out "$work/model" --dtype F32
says out "^model\.layers\.#\.eh_proj\.weight +2 .*model/mtp/#/proj/weight$"
grep -q '"num_nextn_predict_layers": 2' "$work/model/config.json" || fail "config.json does not describe the modules"
rm "$work/model/tokenizer.json"  # the tokens of the test were made with the same tokenizer in another file
expect 0 "$lyceum" convert import-hf "$work/model" --out "$work/imported"
expect 0 "$lyceum" convert export-hf "$work/imported" --out "$work/again" --dtype F32
cmp "$work/model/model.safetensors" "$work/again/model.safetensors" || fail "an imported model has other tensors"
expect 0 "$lyceum" convert reset "$work/glm" --out "$work/same"
expect 0 "$lyceum" train --config "$work/same/config.ini" --run.steps=1
expect 0 "$lyceum" train --config "$work/imported/config.ini" --run.steps=1 "--data.train=$work/data/train" --batch.global=8 --mtp.weight=0.5
for key in loss mtp_loss; do
  close "$key of the imported model" "$(of imported 1 $key)" "$(of same 1 $key)" 1e-6
done
expect 0 "$lyceum" convert import-hf "$work/model" --out "$work/alone" --mtp.depth=0
expect 0 "$lyceum" checkpoint show "$work/alone" --all
! grep -q mtp/ "$work/out" || fail "modules were imported"
expect 0 "$lyceum" convert export-hf "$work/run" --out "$work/other"
says out "^left out +modules of multi-token prediction"

# --- plan
expect 0 "$lyceum" plan --config "$work/kept/config.ini" --json
planned=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["parameters"]["modules_total"])' "$work/out")
equal "parameters of modules" "$planned" "$(python3 - "$work/run/checkpoints/step-00000012/manifest.json" <<'END'
import json, math, sys
shapes = {}
def visit(node):
    if isinstance(node, dict):
        if str(node.get("name", "")).startswith("model/mtp/") and "shape" in node:
            shapes[node["name"]] = node["shape"]
        for child in node.values(): visit(child)
    elif isinstance(node, list):
        for child in node: visit(child)
visit(json.load(open(sys.argv[1])))
print(sum(math.prod(shape) for shape in shapes.values()))
END
)"
