#!/usr/bin/env bash
# Usage: fine_tuning_test.sh LYCEUM SOURCE_DIR. Fine-tunes a model on packed documents with attention within documents and a
# mask of trained tokens, and trains on mixtures of sources. Both give the same bits after a resume, and the same losses on
# other meshes.
. "$(dirname "$0")/lib.sh" "$@"
make_data

# Makes documents of 10 to 70 tokens from $work/data/train: $work/data/chat and $work/data/chat-valid, in which the first
# third of each document is not trained, and chat-silent, in which only the last document is trained.
python3 - "$work/data" <<'END'
import json, struct, sys
folder = sys.argv[1]
tokens = open(f"{folder}/train.bin", "rb").read()
meta = json.load(open(f"{folder}/train.json"))
def write(name, first, documents, trained):
    lengths = [10 + 37 * d % 61 for d in range(documents)]
    offsets = [2 * sum(lengths[:d]) for d in range(documents)]
    with open(f"{folder}/{name}.bin", "wb") as file:
        file.write(tokens[2 * first : 2 * (first + sum(lengths))])
    with open(f"{folder}/{name}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        file.write(struct.pack(f"<{documents}i", *lengths) + struct.pack(f"<{documents}q", *offsets))
        file.write(struct.pack(f"<{documents + 1}q", *range(documents + 1)))
    mask = b"".join(bytes([0] * (n // 3) + [int(d >= trained)] * (n - n // 3)) for d, n in enumerate(lengths))
    open(f"{folder}/{name}.mask", "wb").write(mask)
    described = dict(meta, tokens=sum(lengths), documents=documents, trained=sum(mask))
    json.dump(described, open(f"{folder}/{name}.json", "w"))
write("chat", 0, 150, 0)
write("chat-valid", 9000, 30, 0)
write("chat-silent", 0, 150, 149)
END

# --- fine-tuning as in DeepSeekMoE, at a small size
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/base"
chat=(--data.train="$work/data/chat" --data.valid="$work/data/chat-valid" --data.samples=packed
  --data.document_mask=true --optim.schedule=constant --optim.warmup_steps=0 --optim.lr=1e-3 --eval.batches=0)
expect 0 "$lyceum" convert reset "$work/base" --out "$work/tuned" "${chat[@]}"
tune=(train --config "$work/tuned/config.ini")
from=--checkpoint.resume=$work/tuned/checkpoints/step-00000000
before=$("$lyceum" eval --checkpoint="$work/tuned" --json)
expect 0 "$lyceum" "${tune[@]}" "--run.dir=$work/whole" "$from" --run.steps=8
says out "^packing    $work/data/chat: 150 documents in [0-9]+ sequences of 32, [0-9.]+ % padding, [1-9][0-9]* split$"
targets=$(metric "$work/whole/metrics.jsonl" 1 targets)
((targets > 0 && targets < 8 * 32 * 7 / 8)) || fail "$targets targets of 256 tokens count"
python3 - "$before" "$(metric "$work/whole/metrics.jsonl" 8 valid_loss)" <<'END' || fail "fine-tuning does not lower the loss"
import json, sys
before = json.loads(sys.argv[1])
assert before["bits_per_byte"] is None and before["tokens"] < 30 * 70
sys.exit(not float(sys.argv[2]) < before["loss"])
END
expect 0 "$lyceum" "${tune[@]}" "--run.dir=$work/part" "$from" --run.steps=3
expect 0 "$lyceum" "${tune[@]}" "--run.dir=$work/part" --run.steps=8
same_weights "$work"/{whole,part}/checkpoints/step-00000008
for mesh in "--parallel.tensor=2 --parallel.sequence=true" "--parallel.pipeline=2" "--parallel.zero=3"; do
  rm -rf "$work/mesh"
  # shellcheck disable=SC2086
  expect 0 ranks 2 "${tune[@]}" "--run.dir=$work/mesh" "$from" --run.steps=3 $mesh
  for step in 1 2 3; do
    equal "targets of step $step by $mesh" "$(metric "$work/mesh/metrics.jsonl" $step targets)" \
      "$(metric "$work/whole/metrics.jsonl" $step targets)"
    close "step $step by $mesh" "$(metric "$work/mesh/metrics.jsonl" $step loss)" \
      "$(metric "$work/whole/metrics.jsonl" $step loss)" 1e-4
  done
done
expect 0 "$lyceum" generate --checkpoint="$work/whole" --prompt "the file" --tokens 4 --temperature 0

# --- a batch without trained tokens changes no weight, and a run that has only such batches fails
expect 3 "$lyceum" "${tune[@]}" "--run.dir=$work/silent" "$from" --run.steps=2 --data.train="$work/data/chat-silent" \
  --data.order=sequential --optim.weight_decay=0.1
says err "all 2 steps were skipped, since no token of their batches counts in the loss"
says out "step 1 skipped on all ranks: no token of its batch counts in the loss"
expect 3 "$lyceum" "${tune[@]}" "--run.dir=$work/silent" --run.steps=2 --data.train="$work/data/chat-silent" \
  --data.order=sequential --optim.weight_decay=0.1 # the second start fails, too
says err "all 2 steps were skipped, since no token of their batches counts in the loss"
equal "skipped steps" "$(metric "$work/silent/metrics.jsonl" 2 skipped)" 2
equal "loss of weights that no step has changed" "$(metric "$work/silent/metrics.jsonl" 2 valid_loss)" \
  "$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["loss"])' "$before")"
grep -q '"sound": true' "$work/silent/checkpoints/step-00000002/manifest.json" || fail "batches without targets made the run unsound"

# --- a mask that is missing
mv "$work/data/chat.mask" "$work/data/kept.mask"
expect 3 "$lyceum" "${tune[@]}" "--run.dir=$work/refused" "$from"
says err "$work/data/chat.mask is missing, and according to $work/data/chat.json only [0-9]+ of [0-9]+ tokens are trained"
mv "$work/data/kept.mask" "$work/data/chat.mask"

# --- a mixture
mixed=("${tiny[@]}" --data.train="3 $work/data/train 1 $work/data/chat" --data.valid= --data.valid_fraction=0.1
  --data.document_mask=true --eval.batches=1 --optim.schedule=constant)
expect 0 "$lyceum" "${mixed[@]}" "--run.dir=$work/mixed" --run.steps=9
says out "^ +$work/data/train +[0-9]+ +[0-9]+ +0.7500 +[0-9.]+$"
says out "^ +$work/data/chat: loss [0-9.]+ ± [0-9.]+, [0-9]+ tokens$"
metric "$work/mixed/metrics.jsonl" 9 "valid_loss/$work/data/chat" >/dev/null || fail "no loss of a source"
expect 0 "$lyceum" "${mixed[@]}" "--run.dir=$work/mixed-part" --run.steps=4
expect 0 ranks 2 "${mixed[@]}" "--run.dir=$work/mixed-part" --run.steps=9
close "resumed mixture" "$(metric "$work/mixed-part/metrics.jsonl" 9 loss)" "$(metric "$work/mixed/metrics.jsonl" 9 loss)" 1e-4
expect 0 "$lyceum" eval --checkpoint="$work/mixed" --data.valid="$work/data/valid $work/data/chat-valid" --json
python3 - "$work" <<'END' || fail "eval --json lacks the sources"
import json, sys
work = sys.argv[1]
whole = json.load(open(f"{work}/out"))
sources = whole["sources"]
assert list(sources) == [f"{work}/data/valid", f"{work}/data/chat-valid"]
tokens = sum(source["tokens"] for source in sources.values())
loss = sum(source["loss"] * source["tokens"] for source in sources.values()) / tokens
sys.exit(not (tokens == whole["tokens"] and abs(loss - whole["loss"]) < 1e-9))
END
cp "$work/data/chat-valid.mask" "$work/data/mask" && head -c -1 "$work/data/mask" >"$work/data/chat-valid.mask"
expect 3 "$lyceum" eval --checkpoint="$work/mixed" --data.valid="$work/data/valid $work/data/chat-valid"
says err "$work/data/chat-valid.mask has [0-9]+ bytes"
python3 - "$work/data/chat.mask" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    first = file.read(1)[0]
    file.seek(0)
    file.write(bytes([first ^ 1]))
END
expect 3 "$lyceum" "${mixed[@]}" "--run.dir=$work/mixed" --run.steps=10
says err "data.train = $work/data/chat: the files have changed since $work/mixed/checkpoints/step-00000009 was saved"
expect 2 "$lyceum" "${tiny[@]}" "--run.dir=$work/refused" --data.train="0.5 $work/data/train $work/data/chat"
says err "give every source a weight and a prefix"
