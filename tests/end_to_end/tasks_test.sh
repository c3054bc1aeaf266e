#!/usr/bin/env bash
# Usage: tasks_test.sh LYCEUM SOURCE_DIR. `lyceum eval --tasks` gives the scores of lm-evaluation-harness's rules applied to
# the exported model, with both kinds of tokenizers, and the same on any mesh; bad files are refused with their line.
. "$(dirname "$0")/lib.sh" "$@"
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with transformers: scripts/install-deps.sh"
make_data

# Cloze items, some of whose contexts are too long, and items with odd spaces, long and short choices, and no context.
expect 0 python3 "$source/scripts/tasks/cloze.py" "$source/docs" --out "$work/cloze.jsonl" --items 40 --words 20
equal "cloze items" "$(wc -l <"$work/cloze.jsonl")" 40
cat >"$work/odd.jsonl" <<'END'
{"context": "the mesh \t\n", "choices": ["of ranks", "a"], "answer": 1}
{"context": "", "choices": ["The weights of a layer", "the", " weights"], "answer": 0, "id": "no context"}

{"context": "  ", "choices": ["ranks", "layers"], "answer": 1}
{"context": "größer als ", "choices": ["größer größer größer", "é"], "answer": 0}
{"context": "for each", "choices": [" expert", "expert", "\nexpert", ", that is, for each of them"], "answer": 0}
END

# score RUN TASK [option …]: evaluates $work/TASK.jsonl.
score() {
  expect 0 "$lyceum" eval "--checkpoint=$work/$1" --tasks "$work/$2.jsonl" --task-log "$work/log.jsonl" --json "${@:3}"
  cp "$work/out" "$work/result"
}
# check RUN: compares the scores of both tasks with those of the exported model.
check() {
  expect 0 "$lyceum" convert export-hf "$work/$1" --out "$work/exported/$1"
  for task in cloze odd; do
    score "$1" "$task"
    expect 0 "$python" "$source/tests/end_to_end/tasks_oracle.py" "$work/exported/$1" "$work/$task.jsonl" \
      "$work/log.jsonl" "$work/result" 32
    says out "^tokens"
  done
}

dense=(--moe.experts=0 --moe.shared_experts=0 --model.ffn_hidden=96 --model.init_std=0.1)
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/dense" "${dense[@]}"
check dense
python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["tasks"][0]["items"] != 5)' "$work/result" || fail "items"

# The same with a tokenizer.json.
"$python" - "$source" "$work/tokenizer.json" <<'END'
import pathlib, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=["<|endoftext|>"], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train(sorted(map(str, pathlib.Path(sys.argv[1], "docs").glob("*.md"))), trainer)
tokenizer.save(sys.argv[2])
END
expect 0 "$lyceum" tokenize --input "$source/docs" --model "$work/tokenizer.json" --output "$work/data/json"
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/json" "${dense[@]}" "--data.train=$work/data/json" --data.valid= \
  "--data.tokenizer=$work/tokenizer.json"
check json

# A model that no export represents, on several meshes and with a limited capacity of experts.
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/special" --moe.zero_experts=2 --model.attention=moa \
  --attention_experts.count=3 --attention_experts.top_k=2 --model.init_std=0.1
for options in "" "--moe.capacity_factor=0.5"; do
  score special cloze $options
  cp "$work/log.jsonl" "$work/serial.jsonl"
  for mesh in "2 --parallel.expert=2" "2 --parallel.tensor=2 --parallel.sequence=true" "4 --parallel.pipeline=2 --batch.micro=1"; do
    read -r -a words <<<"$mesh"
    expect 0 ranks "${words[0]}" eval "--checkpoint=$work/special" --tasks "$work/cloze.jsonl" --task-log "$work/log.jsonl" \
      $options "${words[@]:1}"
    python3 - "$work/serial.jsonl" "$work/log.jsonl" <<'END' || fail "other log-probabilities with $mesh $options"
import json, sys
a, b = ([json.loads(line)["log_probabilities"] for line in open(file)] for file in sys.argv[1:])
sys.exit(not (len(a) == len(b) and all(abs(x - y) <= 1e-4 for i, j in zip(a, b) for x, y in zip(i, j))))
END
  done
done

# Several files make a table with a row each.
expect 0 "$lyceum" eval "--checkpoint=$work/special" --tasks "$work/cloze.jsonl" "$work/odd.jsonl" --skip-top=1
says out "^checkpoint +.*step-00000012 \(step 12\)$"
says out "^changed +--skip-top = 1$"
says out "^task +items +acc +stderr +acc_norm +stderr$"
says out "^.*cloze.jsonl +40 +[01]\.[0-9]{4} +0\.[0-9]{4} +[01]\.[0-9]{4} +0\.[0-9]{4}$"
says out "^.*odd.jsonl +5 "
says out "^.*cloze.jsonl: the context of [0-9]+ choices was cut to fit batch.seq_len$"

# Errors are one line.
refused() {
  expect "$1" "$lyceum" eval "--checkpoint=$work/dense" "${@:3}"
  says err "^lyceum eval: .*$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
echo '{"context": "a", "choices": ["b", "c"], "answer": 2}' >>"$work/odd.jsonl"
refused 3 "odd.jsonl:7: a record whose \"answer\" is not the index of a choice: a number from 0 to 1" --tasks "$work/odd.jsonl"
printf '{"context": "a", "choices": ["b", "%0400d"], "answer": 0}\n' 5 >"$work/long.jsonl"
refused 3 "long.jsonl:1: choice 1 has [0-9]+ tokens: this model accepts at most 32 \(batch.seq_len\)" --tasks "$work/long.jsonl"
refused 3 "none.jsonl" --tasks "$work/none.jsonl"
refused 2 "--batches and --tasks: give only one" --tasks "$work/cloze.jsonl" --batches=1
refused 2 "--task-log needs --tasks" --task-log "$work/log"
refused 4 "none" --tasks "$work/cloze.jsonl" --task-log /dev/null/none/log
