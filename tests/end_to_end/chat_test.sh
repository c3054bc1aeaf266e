#!/usr/bin/env bash
# Usage: chat_test.sh LYCEUM SOURCE_DIR. A tokenizer and a model are trained on chats. `generate` renders prompts as training
# did, and stops at the end of the answer.
. "$(dirname "$0")/lib.sh" "$@"
mkdir -p "$work/data"
python3 - "$work/chats.jsonl" <<'CHAT'
import json, sys
colors = {"apple": "red", "sky": "blue", "grass": "green", "sun": "yellow", "coal": "black", "snow": "white"}
with open(sys.argv[1], "w") as file:
    for i in range(300):
        thing = list(colors)[i % 6]
        messages = [{"role": "user", "content": f"Which color has {thing}?"},
                    {"role": "assistant", "content": f"It is {colors[thing]}."}]
        if i % 10 == 9:  # wrong answers, which are context and not trained
            messages[1:1] = [{"role": "assistant", "content": "It is pink.", "weight": 0}, {"role": "user", "content": "Really?"}]
        file.write(json.dumps({"system": "Short answers.", "messages": messages}) + "\n")
    file.write(json.dumps({"messages": [{"role": "assistant", "content": "A", "tool_calls": [{"id": "1"}]}]}) + "\n")
CHAT
expect 0 "$lyceum" tokenize --input "$work/chats.jsonl" --chat chatml --model "$work/data/chat.model" --vocab 400 \
  --output "$work/data/chat" --threads 1
says out "1 records?: 1 with \"tool_calls\", which no supported chat template has \($work/chats.jsonl:301\)"
grep -q '"chat": "chatml"' "$work/data/chat.json" || fail "the token files do not name their template"
expect 3 "$lyceum" tokenize --input "$work/chats.jsonl" --chat llama3 --model "$work/data/chat.model" --output "$work/data/other"
says err "has no token <\|begin_of_text\|>"

cat >"$config" <<CHAT
[run]
dir = $work/run
steps = 200
device = cpu
threads = 1
[data]
train = $work/data/chat
tokenizer = $work/data/chat.model
samples = packed
document_mask = true
[batch]
global = 4
seq_len = 96
[model]
vocab = 400
layers = 2
hidden = 64
heads = 2
init_std = 0.02
[moe]
experts = 4
top_k = 2
expert_hidden = 24
[optim]
lr = 3e-3
schedule = cosine
warmup_steps = 3
CHAT
expect 2 "$lyceum" "${tiny[@]}" --data.chat=llama3
says err "data.chat = llama3, but the chats of $work/data/chat are in the format chatml"
expect 0 "$lyceum" "${tiny[@]}"
expect 0 "$lyceum" checkpoint show "$work/run"
says out "^chat = chatml$"
ask() { expect 0 "$lyceum" generate --checkpoint "$work/run" --temperature 0 "$@"; }
answer() { equal "answer to $1" "$(cat "$work/out")" "$2"; }

# --- the trained answers are learned, including their ends
for pair in apple:red sky:blue coal:black; do
  ask --chat --system "Short answers." --prompt "Which color has ${pair%:*}?"
  answer "$pair" "It is ${pair#*:}."
done
ask --chat --system "Short answers." --prompt "Which color has snow?" --show-special
answer "snow, with all tokens" "<|im_start|>system
Short answers.<|im_end|>
<|im_start|>user
Which color has snow?<|im_end|>
<|im_start|>assistant
It is white.<|im_end|>"
ask --chat --system "Short answers." --prompt "Which color has snow?" --stop whi
answer "snow, stopped" "It is "
expect 0 "$lyceum" generate --checkpoint "$work/run" --chat --system "Short answers." --prompt "Which color has snow?" --top-p 0.9 --temperature 0.5
answer "snow, drawn" "It is white."

# --- a prompt has the same tokens as in training, given as text and in files
python3 - "$work" <<'CHAT'
import json, sys
work = sys.argv[1]
with open(f"{work}/prompts.jsonl", "w") as file:
    for line in open(f"{work}/chats.jsonl").readlines()[:6]:
        record = json.loads(line)
        record["messages"].pop()
        file.write(json.dumps(record) + "\n")
CHAT
ask --chat --prompts "$work/prompts.jsonl" --json
python3 - "$work" <<'CHAT' || fail "--prompts gives other tokens or answers"
import json, struct, sys
work = sys.argv[1]
stream = open(f"{work}/data/chat.bin", "rb").read()
stream = struct.unpack(f"<{len(stream) // 2}H", stream)
answers = [json.loads(line) for line in open(f"{work}/out")]
assert len(answers) == 6
for answer, color in zip(answers, ["red", "blue", "green", "yellow", "black", "white"]):
    assert (answer["text"], answer["end"]) == (f"It is {color}.", "token"), answer
    given = answer["tokens"] + [answer["end_token"]]
    assert any(list(stream[i:i + len(given)]) == given for i in range(len(stream))), answer
CHAT
printf 'Which color has sun?\n\nWhich color has grass?\n' >"$work/prompts.txt"
ask --chat --system "Short answers." --prompts "$work/prompts.txt"
answer "lines" "It is yellow.
It is green."

# Bytes that are not UTF-8 are replaced, a control character gives valid JSON, and the name of a byte token is no stop text.
ask --chat --prompt $'Which color\xff has snow?' --json
ask --prompt $'a\x7fb\xc2\x85' --tokens 1 --json
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["prompt"] == "a\x7fb\x85"' "$work/out" || fail "the output is not JSON"
ask --chat --system "Short answers." --prompt "Which color has snow?" --stop "<0x0A>" --stop "▁is"
answer "stops" "It is white."

# --- refused chats and options
printf '{"prompt": "x"}\n{"messages": [{"role": "tool", "content": "x"}]}\n' >"$work/roles.jsonl"
expect 3 "$lyceum" generate --checkpoint "$work/run" --chat --prompts "$work/roles.jsonl"
says err "^lyceum generate: $work/roles.jsonl:2: a record with a role that is not system, user or assistant"
python3 -c 'print("x\n" + "word " * 5000)' >"$work/long.txt"
expect 3 "$lyceum" generate --checkpoint "$work/run" --chat --prompts "$work/long.txt"
says err "^lyceum generate: $work/long.txt:2: a prompt of [0-9]+ tokens"
expect 2 "$lyceum" generate --checkpoint "$work/run" --prompt x --prompts "$work/prompts.txt"
says err "^lyceum generate: --prompt and --prompts: give only one of them"
expect 2 "$lyceum" generate --checkpoint "$work/run" --prompt x --system y
says err "^lyceum generate: --system needs --chat"
expect 3 "$lyceum" generate --checkpoint "$work/run" --prompt x --chat --data.chat=llama3
says err "has no token <\|begin_of_text\|>, which the chat template llama3 needs"
expect 0 "$lyceum" tokenize --input "$source/docs" --tokenizer "$work/data/chat.model" --output "$work/data/text"
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/plain" --data.train="$work/data/text" --run.steps=1
expect 2 "$lyceum" generate --checkpoint "$work/plain" --prompt x --chat
says err "^lyceum generate: --chat: the run was not trained on chats"
