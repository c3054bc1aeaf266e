#!/usr/bin/env bash
# Usage: eval_generate_test.sh LYCEUM SOURCE_DIR. `lyceum eval` gives the validation loss of training on any number of ranks;
# `lyceum generate` reproduces the text that the model has learned.
. "$(dirname "$0")/lib.sh" "$@"
make_data

# --- eval
expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2
checkpoint=$work/run/checkpoints
value() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1"; }

expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --json
equal "keys" "$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])))' "$work/out")" \
  "checkpoint step loss standard_error perplexity bits_per_byte tokens chosen_width skip_top ema changed"
loss=$(value loss)
equal "step" "$(value step)" 12
equal "tokens" "$(value tokens)" $((2 * 8 * 32))
close "perplexity" "$(value perplexity)" "$(python3 -c "import math; print(math.exp($loss))")" 1e-12
bits=$(python3 -c "
import json, math
meta = json.load(open('$work/data/valid.json'))
print($loss / math.log(2) * meta['tokens'] / meta['bytes'])")
close "bits per byte" "$(value bits_per_byte)" "$bits" 1e-12
# timed: checks the times and the memory of the last evaluation, of two batches.
timed() {
  python3 - "$work/out" <<'END' || fail "--timing: $(cat "$work/out")"
import json, sys
timing = json.load(open(sys.argv[1]))["timing"]
weights = 4 * 10_000  # bytes: fewer than a rank has
assert abs(timing["seconds"] * timing["tokens_per_second"] / (2 * 8 * 32) - 1) < 1e-6
assert weights < timing["memory_peak_bytes"] < timing["resident_peak_bytes"]
END
}
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --json --timing
equal "loss with --timing" "$(value loss)" "$loss"
timed
expect 2 "$lyceum" eval "--checkpoint=$checkpoint" --timing --tasks none.jsonl
says err "^lyceum eval: --timing and --tasks: give only one of them$"
expect 2 "$lyceum" eval "--checkpoint=$checkpoint" --timing --token-log log.h5
says err "^lyceum eval: --timing and --token-log: give only one of them$"
# Only targets of the last sample count, which is not in the warm-up batch.
python3 - "$work/data" <<'END'
import json, os, shutil, sys
os.chdir(sys.argv[1])
for file in os.listdir("."):
    if file.startswith("valid."):
        shutil.copyfile(file, file.replace("valid", "masked", 1))
tokens = json.load(open("valid.json"))["tokens"]
end = (tokens - 1) // 32 * 32 + 1
open("masked.mask", "wb").write(bytes(end - 32) + bytes([1] * 32) + bytes(tokens - end))
END
expect 3 "$lyceum" eval "--checkpoint=$checkpoint" --batches=1 "--data.valid=$work/data/masked"
says err "none of the tokens in the 8 samples to evaluate counts in the loss"
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" "--data.valid=$work/data/masked" --timing
says out "^memory +peak [0-9.]+ [a-zA-Z]+ of tensors, [0-9.]+ [a-zA-Z]+ of the process$"
close "loss against training's own" "$loss" "$(metric "$work/run/metrics.jsonl" 12 valid_loss)" 1e-6

expect 0 ranks 2 eval "--checkpoint=$checkpoint" --batches=2 --json --parallel.expert=2 --timing
close "loss on two ranks" "$(value loss)" "$loss" 1e-6
timed
equal "tokens on two ranks" "$(value tokens)" $((2 * 8 * 32))

# With some of the experts: the weights of the others, also of shared ones, are loaded but not used.
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --skip-top 2 --moe.top_k=3 --moe.shared_experts=0
says out '^changed +moe.shared_experts = 0 \(trained with 1\), moe.top_k = 3 \(trained with 2\), --skip-top = 2$'
says err '^warning: .* has weights that this configuration does not use: model/layers/#/mlp/shared_experts/down_proj/weight, '
few=$(grep -oP '^loss +\K[0-9.]+' "$work/out")
expect 0 ranks 2 eval "--checkpoint=$checkpoint" --batches=2 --skip-top=2 --moe.top_k=3 --moe.shared_experts=0 \
  --parallel.expert=2 --json
close "loss with some of the experts on two ranks" "$(value loss)" "$few" 1e-6
python3 -c "import sys; sys.exit(not abs($few - $loss) > 2e-6)" || fail "the same loss $loss with some of the experts"
expect 2 "$lyceum" eval "--checkpoint=$checkpoint" --skip-top=7
says err "^lyceum eval: --skip-top = 7 and moe.top_k = 2 are more than moe.experts = 8: skip 6 at most"

# The capacity of experts is limited only on request, and equally on every mesh.
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --moe.capacity_factor=0.5
says out '^changed +moe.capacity_factor = 0.5 \(trained with 0\)$'
tight=$(grep -oP '^loss +\K[0-9.]+' "$work/out")
python3 -c "import sys; sys.exit(not abs($tight - $loss) > 2e-6)" || fail "the same loss $loss with a limited capacity"
expect 0 ranks 2 eval "--checkpoint=$checkpoint" --batches=2 --moe.capacity_factor=0.5 --parallel.expert=2 --json
close "loss with little room on two ranks" "$(value loss)" "$tight" 1e-6
expect 2 "$lyceum" eval "--checkpoint=$checkpoint" --moe.top_k_start=1
says err "moe.top_k_start applies to training only: set moe.top_k"

# A sliding window, equally on every mesh. A window of the whole sequence changes nothing.
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --model.window=4 --model.window_layers=0,1
says out '^changed +model.window = 4 \(trained with 0\), model.window_layers = 0,1 \(trained with none\)$'
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --json --model.window=1
narrow=$(value loss)
python3 -c "import sys; sys.exit(not abs($narrow - $loss) > 2e-6)" || fail "a loss of $loss, however narrow the window"
expect 0 ranks 2 eval "--checkpoint=$checkpoint" --batches=2 --model.window=1 --json \
  --parallel.tensor=2 --parallel.sequence=true
close "loss in a window on two ranks" "$(value loss)" "$narrow" 1e-6
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2 --json --model.window=32
close "loss in a window of all tokens" "$(value loss)" "$loss" 1e-6
expect 2 "$lyceum" eval "--checkpoint=$checkpoint" --model.window=33
says err "^lyceum eval: model.window = 33 is more than batch.seq_len = 32: set model.window = 0"

expect 0 ranks 2 eval "--checkpoint=$checkpoint" --batches=2 --json --parallel.tensor=2 --parallel.sequence=true
close "loss on two tensor ranks" "$(value loss)" "$loss" 1e-6
equal "tokens on two tensor ranks" "$(value tokens)" $((2 * 8 * 32))

expect 0 ranks 2 eval "--checkpoint=$checkpoint" --batches=2 --json --parallel.pipeline=2 --batch.micro=2
close "loss on two stages" "$(value loss)" "$loss" 1e-6
equal "tokens on two stages" "$(value tokens)" $((2 * 8 * 32))

# All of the validation data, which no number of ranks divides evenly.
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --json
loss=$(value loss) tokens=$(value tokens)
((tokens > 2 * 8 * 32 && tokens % 32 == 0)) || fail "$tokens tokens"
expect 0 ranks 3 eval "--checkpoint=$checkpoint" --json --batch.global=9
close "loss of all on three ranks" "$(value loss)" "$loss" 1e-6
equal "tokens of all on three ranks" "$(value tokens)" "$tokens"
expect 0 ranks 4 eval "--checkpoint=$checkpoint" --json --parallel.pipeline=2 --batch.micro=2
close "loss of all on two stages of two ranks" "$(value loss)" "$loss" 1e-6
equal "tokens of all on two stages of two ranks" "$(value tokens)" "$tokens"
# The ranks share a rounded-up batch; --batches still counts the batches of training.
expect 0 ranks 3 eval "--checkpoint=$checkpoint" --json --batches=2
equal "tokens of two batches on three ranks" "$(value tokens)" $((2 * 8 * 32))
expect 0 ranks 3 eval "--checkpoint=$checkpoint" --print-config
says out "^batch.global += 9 +# derived"
says out "^model.hidden += 32 +# .*step-00000012:config:"

# --config and the command line override the configuration in the checkpoint.
expect 0 "$lyceum" eval "--config=$config" --batches=2 --json
equal "tokens of the configured run" "$(value tokens)" $((2 * 8 * 32))
expect 0 ranks 3 eval "--config=$config" --batches=2 --json
equal "tokens of the configured run on three ranks" "$(value tokens)" $((2 * 8 * 32))
expect 2 ranks 3 eval "--config=$config" --batch.global=8
says err "batch.global = 8 cannot be divided among 3"
printf '[batch]\nglobal = 4\n' >"$work/four.ini"
expect 0 "$lyceum" eval --config "$work/four.ini" "--checkpoint=$checkpoint" --batches=2 --json
equal "tokens of smaller batches" "$(value tokens)" $((2 * 4 * 32))
expect 0 "$lyceum" eval --config "$work/four.ini" "--checkpoint=$checkpoint" --print-config --batch.seq_len=16
says out "^batch.global += 4 +# $work/four.ini:2"
says out "^batch.seq_len += 16 +# command line"
for command in eval generate; do
  expect 0 "$lyceum" "$command" --list-keys
  says out "^batch|^\\[batch\\]"
  expect 2 "$lyceum" "$command" "--config=$config" --moe.topk=2 --optim.lr=fast
  says err "^lyceum $command: 2 mistakes"
done
expect 0 "$lyceum" eval "--checkpoint=$checkpoint" --batches=2
says out "^perplexity +[0-9.]+$"

# --- generate, with a model that has memorised one sentence, so that the continuation is known
sentence="one two three four five six seven eight nine ten "
python3 -c "print('$sentence' * 1000, end='')" >"$work/count.txt"
expect 0 "$lyceum" tokenize --input "$work/count.txt" --model "$work/data/tokenizer.model" --output "$work/data/count"
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/count" "--data.train=$work/data/count" --data.valid= --run.steps=150 \
  --checkpoint.every=0 --optim.lr=1e-2 --batch.global=4 --batch.seq_len=64 --moe.experts=4
write() { expect 0 "$lyceum" generate "--checkpoint=$work/count/checkpoints" "$@"; }
expect 2 "$lyceum" generate "--checkpoint=$work/count/checkpoints"
says err "^lyceum generate: --prompt is missing"

# Greedy, with prompts of several lengths: decoding n tokens with the cache gives the text of reading them as a prompt.
whole="one two three four five six seven"
for prompt in "one two three" "one two three four" "one two three four five"; do
  write --prompt "$prompt" --temperature 0 --tokens 24
  says out "^$whole"
  says err '^[1-9][0-9]* tokens in [0-9.]+ s, [0-9.]+ tokens/s$'
done
cp "$work/out" "$work/greedy"
write --prompt "one two three four five" --temperature 0 --tokens 24 --seed 9
cmp -s "$work/out" "$work/greedy" || fail "greedy text depends on the seed"
write --prompt "one two three four five" --top-k 1 --temperature 3 --tokens 24
cmp -s "$work/out" "$work/greedy" || fail "sampling from the most likely token alone is not greedy"

# Random: a seed always gives the same text, other seeds give others; with a high temperature the text deviates.
write --prompt "one two" --temperature 3 --top-k 0 --tokens 40 --seed 1 && cp "$work/out" "$work/drawn"
write --prompt "one two" --temperature 3 --top-k 0 --tokens 40 --seed 1
cmp -s "$work/out" "$work/drawn" || fail "the same seed gives another text"
write --prompt "one two" --temperature 3 --top-k 0 --tokens 40 --seed 2
! cmp -s "$work/out" "$work/drawn" || fail "another seed gives the same text"

write --prompt "one two three four five" --temperature 0 --tokens 24 --timing
cmp -s "$work/out" "$work/greedy" || fail "--timing changes the text"
says err '^prompt +[0-9]+ tokens in [0-9.]+ s, [0-9.]+ tokens/s$'
says err '^decoding +23 tokens in [0-9.]+ s, [0-9.]+ tokens/s, [0-9.]+ ms per token \(median\)$'
says err '^memory +peak [0-9.]+ [a-zA-Z]+ of tensors, [0-9.]+ [a-zA-Z]+ of the process$'
write --prompt "" --tokens 5 --temperature 0
equal "tokens 0" "$(write --prompt "one two" --tokens 0 && cat "$work/out")" "one two"

# If the model has more tokens than its tokenizer, these are never drawn.
expect 0 "$lyceum" "${tiny[@]}" "--run.dir=$work/padded" --model.vocab=768 --run.steps=1
expect 0 "$lyceum" generate "--checkpoint=$work/padded" --prompt one --temperature 100 --top-k 0 --tokens 30

expect 2 "$lyceum" generate "--checkpoint=$work/count/checkpoints" --prompt "$sentence$sentence$sentence$sentence"
says err "^lyceum generate: a prompt of [0-9]+ tokens: this model accepts 1 to 63"
[[ ! -s $work/out ]] || fail "a refused prompt was printed"
expect 2 ranks 2 generate "--checkpoint=$work/count/checkpoints" --prompt one
says err "^lyceum generate: .*generate runs on one rank"
