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
  local compared=()
  for task in cloze odd; do
    score "$1" "$task"
    cp "$work/log.jsonl" "$work/$task.log"
    cp "$work/result" "$work/$task.result"
    compared+=("$work/$task.jsonl" "$work/$task.log" "$work/$task.result")
  done
  expect 0 "$python" "$source/tests/end_to_end/tasks_oracle.py" "$work/exported/$1" 32 "${compared[@]}"
  equal "compared tasks" "$(grep -c '^tokens' "$work/out")" 2
}
# same_scores LOG LOG: whether the log-probabilities of $work/LOG.jsonl agree. Micro-batches of other sizes round differently.
same_scores() {
  python3 - "$work/$1.jsonl" "$work/$2.jsonl" <<'END'
import json, sys
a, b = ([json.loads(line)["log_probabilities"] for line in open(file)] for file in sys.argv[1:])
sys.exit([len(i) for i in a] != [len(i) for i in b] or any(abs(x - y) > 1e-4 for i, j in zip(a, b) for x, y in zip(i, j)))
END
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
trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=["<|endoftext|>", "<|begin|>"], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train(sorted(map(str, pathlib.Path(sys.argv[1], "docs").glob("*.md"))), trainer)
tokenizer.save(sys.argv[2])
END
expect 0 "$lyceum" tokenize --input "$source/docs" --model "$work/tokenizer.json" --output "$work/data/json"
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/json" "${dense[@]}" "--data.train=$work/data/json" --data.valid= \
  "--data.tokenizer=$work/tokenizer.json"
check json
python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["bos"] != "")' "$work/result" || fail "bos"

# An imported model whose tokenizer adds two tokens before each text. Without it, the scores are those of the same weights above.
cp -r "$work/exported/json" "$work/model"
python3 - "$work/model" <<'END'
import json, sys
folder = sys.argv[1]
def change(name, **members):
    content = json.load(open(f"{folder}/{name}"))
    json.dump(content | members, open(f"{folder}/{name}", "w"))
text = lambda name: {"Sequence": {"id": name, "type_id": 0}}
special = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
begin = [special("<|begin|>"), special("<|endoftext|>")]
change("tokenizer.json", post_processor={"type": "TemplateProcessing", "single": begin + [text("A")],
       "pair": begin + [text("A"), text("B")],
       "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}
                          for id, name in enumerate(("<|endoftext|>", "<|begin|>"))}})
change("tokenizer_config.json", bos_token="<|begin|>")
END
expect 0 "$lyceum" convert import-hf "$work/model" --out "$work/imported" --batch.seq_len=32
cat >>"$work/odd.jsonl" <<'END'
{"context": "<|begin|>the mesh", "choices": [" of ranks", " a"], "answer": 1}
{"context": "", "choices": ["<|begin|>The weights", "the"], "answer": 0}
END
check imported
sed -i '$d' "$work/odd.jsonl" && sed -i '$d' "$work/odd.jsonl"
whole=--batch.seq_len=256  # so that no context is cut
score json cloze "$whole"
cp "$work/log.jsonl" "$work/without.jsonl"
score imported cloze "$whole" --no-bos
same_scores without log || fail "other scores without the first tokens"
score imported cloze "$whole"
! same_scores without log || fail "the first tokens have no effect"
expect 0 "$lyceum" eval "--checkpoint=$work/imported" --tasks "$work/cloze.jsonl"
says out "^contexts +begin with <\|begin\|><\|endoftext\|>$"
# generate begins prompts with them, too: the text is that of the same weights without them, after a prompt that has them.
# tokens RUN PROMPT: prints the generated tokens.
tokens() {
  expect 0 "$lyceum" generate "--checkpoint=$work/$1" --prompt "$2" --temperature=0 --tokens=12 --json
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"])' "$work/out"
}
both="<|begin|><|endoftext|>"
for prompt in "the mesh" "${both}the mesh" ""; do
  ours=$(tokens imported "$prompt") plain=$(tokens json "$both${prompt#"$both"}")
  equal "tokens after '$prompt'" "$ours" "$plain"
done

# The same with a tokenizer.model, whose export has a tokenizer.json that adds the token.
rm "$work/model/tokenizer.json"
"$python" - "$source" "$work/model" <<'END'
import json, pathlib, sys
import sentencepiece
source, folder = sys.argv[1:]
sentencepiece.SentencePieceTrainer.train(
    input=sorted(map(str, pathlib.Path(source, "docs").glob("*.md"))), model_prefix=f"{folder}/tokenizer", vocab_size=384,
    model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
json.dump(config, open(f"{folder}/tokenizer_config.json", "w"))
END
expect 0 "$lyceum" convert import-hf "$work/model" --out "$work/pieces" --batch.seq_len=32
check pieces
python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["bos"] != "<s>")' "$work/result" || fail "bos of a tokenizer.model"
sed -i 's/"add_bos_token"/"add_eos_token": true, "add_bos_token"/' "$work/model/tokenizer_config.json"
expect 0 "$lyceum" convert import-hf "$work/model" --out "$work/both-ends" --batch.seq_len=32
expect 3 "$lyceum" eval "--checkpoint=$work/both-ends" --tasks "$work/cloze.jsonl"
says err "^lyceum eval: --tasks: the tokenizer of the imported model adds </s> after each text, .*: --no-bos scores without"
# It does not replace a tokenizer.json that has other tokens and that Lyceum cannot read.
cat >"$work/model/tokenizer.json" <<'END'
{"model": {"type": "WordPiece"}, "added_tokens": [{"id": 2, "content": "</s>"}, {"id": 384, "content": "<|user|>"}]}
END
expect 0 "$lyceum" convert import-hf "$work/model" --out "$work/other" --dry-run
says out "^tokenizer +skipped: .*tokenizer.model does not have the added token <\|user\|> \(384\) of tokenizer.json: load"
says out "^tokenizer +none found: data.tokenizer is not set$"

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
    same_scores serial log || fail "other log-probabilities with $mesh $options"
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
refused 2 "--no-bos needs --tasks" --no-bos
refused 4 "none" --tasks "$work/cloze.jsonl" --task-log /dev/null/none/log

# A log is replaced at the end. It never replaces a task, and the scores are printed even if it cannot be written.
echo earlier >"$work/kept.jsonl"
refused 3 "odd.jsonl:7" --tasks "$work/odd.jsonl" --task-log "$work/kept.jsonl"
full() { (ulimit -f 4 && exec "$lyceum" eval "--checkpoint=$work/dense" "$@"); }
expect 4 full --tasks "$work/cloze.jsonl" --task-log "$work/kept.jsonl"
says out "^.*cloze.jsonl +40 "
says err "^lyceum eval: .*kept.jsonl cannot be written: File too large"
equal "the earlier log" "$(cat "$work/kept.jsonl")" earlier
[[ ! -e $work/kept.jsonl.partial ]] || fail "a part of a log remains"
cp "$work/cloze.jsonl" "$work/kept.jsonl.partial"
ln -s cloze.jsonl "$work/link.jsonl"
for log in cloze link kept; do
  refused 2 "--task-log .*/$log.jsonl would replace .*, which is read" --task-log "$work/$log.jsonl" \
    --tasks "$work/long.jsonl" "$work/cloze.jsonl" "$work/kept.jsonl.partial"
done
cmp "$work/cloze.jsonl" "$work/kept.jsonl.partial" || fail "a task was replaced"

# Ranks whose files differ.
tac "$work/cloze.jsonl" >"$work/other.jsonl"
eval_on_rank=("$lyceum" eval "--checkpoint=$work/special" --parallel.expert=2 --tasks)
expect 3 mpirun -n 1 "${eval_on_rank[@]}" "$work/cloze.jsonl" : -n 1 "${eval_on_rank[@]}" "$work/other.jsonl"
says err "^lyceum eval: .*--tasks: rank 1 has other items than rank 0: give all ranks the same task files and tokenizer"
