#!/usr/bin/env bash
# Usage: bad_input_test.sh LYCEUM SOURCE_DIR. Every mistake in files or configuration is reported in one line that names it,
# with the exit code of its kind: 2 for usage, 3 for a bad file.
. "$(dirname "$0")/lib.sh" "$@"
make_data

# refused CODE PATTERN ARGUMENTS …: train with one process prints one line and nothing else, and ends with CODE.
refused() {
  expect "$1" "$lyceum" "${tiny[@]}" "--run.dir=$work/refused" "${@:3}"
  says err "^lyceum train: $2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -e $work/refused ]] || fail "a refused run left $work/refused behind"
}

# refused_by_ranks CODE PATTERN ARGUMENTS …: the same with two ranks; mpirun adds its own banner.
refused_by_ranks() {
  expect "$1" ranks 2 "${tiny[@]}" "--run.dir=$work/refused" "${@:3}"
  says err "^lyceum train: rank [01] on [^:]+: $2"
  equal "lines of ours" "$(grep -c '^lyceum train: ' "$work/err")" 1
}

# --- token files
bad=$work/bad
damaged() { mkdir -p "$bad" && cp "$work/data/train.bin" "$work/data/train.idx" "$bad" && "$@"; }
train=--data.train=$bad/train

damaged rm "$bad/train.bin"
refused 3 "$bad/train.bin.*No such file" "$train"
refused_by_ranks 3 "$bad/train.bin.*No such file" "$train"
damaged rm "$bad/train.idx"
refused 3 "$bad/train.idx.*No such file" "$train"
damaged truncate -s -7 "$bad/train.bin"
refused 3 "$bad/train.bin has [0-9]+ bytes, but .*truncated" "$train"
damaged truncate -s -7 "$bad/train.idx"
refused 3 "$bad/train.idx has [0-9]+ bytes, but .*copy it again" "$train"
damaged truncate -s 20 "$bad/train.idx"
refused 3 "$bad/train.idx is truncated" "$train"
damaged truncate -s 0 "$bad/train.bin"
refused 3 "$bad/train.*" "$train"
damaged dd if=/dev/zero of="$bad/train.idx" bs=1 count=4 conv=notrunc status=none
refused 3 "$bad/train.idx is not a Megatron index" "$train"
refused_by_ranks 3 "$bad/train.idx is not a Megatron index" "$train"
refused 2 "data.train is not set" --data.train=

# --- tokenizer and vocabulary
refused 3 "the tokenizer $work/absent.model does not exist" "--data.tokenizer=$work/absent.model"
refused 3 ".*$work/data/train.bin.*" "--data.tokenizer=$work/data/train.bin"
refused 3 "$work/data/tokenizer.model has 384 tokens: set model.vocab = 384 or more \(it is 300\)" --model.vocab=300
# Without a tokenizer to compare with, the first token beyond the vocabulary is named.
late() {
  rm -rf "$work/refused"
  expect 3 "$@" "${tiny[@]}" "--run.dir=$work/refused" --model.vocab=300 --data.tokenizer=
  says err "^lyceum train: .*$work/data/train.bin: token 3[0-9][0-9] at position [0-9]+ is not in the vocabulary of 300"
  equal "lines of ours" "$(grep -c '^lyceum train: ' "$work/err")" 1
  rm -rf "$work/refused"
}
late "$lyceum"
late mpirun -n 2 "$lyceum"

# --- configuration
refused 2 ".*model.hiden.*model.hidden" --model.hiden=64
refused_by_ranks 2 ".*model.hiden.*model.hidden" --model.hiden=64
refused 2 ".*optim.lr.*" --optim.lr=fast
refused 2 "moe.top_k = 9 is more than moe.experts = 8" --moe.top_k=9
refused 2 "optim.train_only: the model has no tensor with this name and these rows: model/\*/gates/\*, x\[1:\]; " \
  "--optim.train_only=model/*/gates/*,*/norm/weight,x[1:]"
refused 2 "optim.train_only: 'x\[1:y\]': write rows as" "--optim.train_only=x[1:y]"
refused 2 "optim.lora_targets: the model has no trained matrix with this name: model/\*/gates/\*, \*/norm/weight; " \
  --optim.lora_rank=2 "--optim.lora_targets=model/*/gates/*,*/norm/weight,lm_head/*"
refused 2 "optim.lora_rank = 2 without optim.lora_targets: name the matrices to adapt" --optim.lora_rank=2
refused 2 "optim.lora_alpha = 0.*must be in \(0, " --optim.lora_alpha=0
refused 2 "optim.rule = sgd.*adamw.*muon" --optim.rule=sgd
refused 2 "optim.moments = f16.*f32.*bf16" --optim.moments=f16
refused 2 "optim.momentum.*" --optim.rule=muon --optim.momentum=1
refused 2 "optim.adamw_only: no tensor of the model has this name: model/\*/gates/\*; docs/checkpoints.md lists the names" \
  --optim.rule=muon "--optim.adamw_only=model/*/gates/*,*/norm/weight"
refused 2 "optim.adamw_only: 'x\[1:\]' names rows of a tensor: name whole tensors" --optim.rule=muon "--optim.adamw_only=x[1:]"
refused 2 "optim.router_penalty_from = 8: routers have 8 rows" --optim.router_penalty=0.1 --optim.router_penalty_from=8
refused 2 "optim.router_penalty = 0.1 with moe.router = random" --optim.router_penalty=0.1 --moe.router=random
refused 2 "model.heads = 3 does not divide model.hidden = 32" --model.heads=3
refused 2 "batch.micro = 3 does not divide" --batch.micro=3
refused_by_ranks 2 "batch.global = 7 cannot be divided among 2" --batch.global=7
refused_by_ranks 2 "parallel.expert = 3 .*does not divide the 2 ranks" --parallel.expert=3
refused 2 "parallel.zero = 4 .*must be in \[0, 3\]" --parallel.zero=4
CUDA_VISIBLE_DEVICES="" refused 2 ".*(this build has no CUDA|sees no GPU).*set run.device = cpu" --run.device=cuda
refused_by_ranks 2 "parallel.pipeline = 2 times parallel.virtual_stages = 1 is more than model.layers = 1" \
  --parallel.pipeline=2 --model.layers=1
refused_by_ranks 2 "parallel.schedule = interleaved takes micro-batches in groups of parallel.pipeline = 2" \
  --parallel.pipeline=2 --parallel.virtual_stages=2 --parallel.schedule=interleaved --model.layers=4
refused_by_ranks 2 "parallel.tensor = 2 does not divide model.heads = 1" --parallel.tensor=2 --model.heads=1
refused_by_ranks 2 "parallel.expert_tensor = 2 is more than moe.expert_hidden = 1" --parallel.expert_tensor=2 \
  --moe.expert_hidden=1
refused 2 "1 rank does not split into parallel.pipeline = 1 times parallel.tensor = 2: start 2 ranks \(mpirun -n 2\)" --parallel.tensor=2
refused 2 "parallel.expert = 2 .*does not divide the 1 rank of a stage: start 2 ranks \(mpirun -n 2\)" --parallel.expert=2
refused 2 "unknown key .optim.learning_rate. on the command line: did you mean optim.lr\?" --optim.learning_rate=1
# A model of petabytes, a batch of terabytes: valid sizes, but too large for this machine.
refused 2 "model.heads = 7 does not divide" --model.hidden=1000000 --model.heads=7
refused 2 "the model has about .* parameters" --model.hidden=2000000000 --model.heads=100
# The cause is in one line, followed by the table of the plan.
too_large() {
  expect 2 "$lyceum" "${tiny[@]}" "--run.dir=$work/refused" "${@:2}"
  says err "^lyceum train: $1"
  says err "^row +rank +blocks +weights +gradients +optimizer +activations +buffers +all +process +resident$"
  equal "lines of stderr" "$(wc -l <"$work/err")" 3
  [[ ! -e $work/refused ]] || fail "a refused run left $work/refused behind"
}
too_large "rank 0 needs [0-9.]+ [TP]B \(weights .*, optimizer .*\), but .* has only .* GB: no change .*: use more ranks or a smaller model$" \
  --model.hidden=1000000 --model.heads=100
too_large "rank 0 needs .*: set batch.seq_len = [0-9]+ \(needs [0-9.]+ .?B\)$" --batch.seq_len=2000000000 --batch.micro=1 --model.recompute=full
refused_by_ranks 2 "rank 0 needs [0-9.]+ [TP]B .* each of this machine's 2 ranks" --model.hidden=1000000 --model.heads=100
# Several mistakes are reported together, one per line after the first line.
expect 2 "$lyceum" "${tiny[@]}" --moe.top_k=9 --model.heads=3 --parallel.zero=4 --sub_dimensions.ffn=5
says err "^lyceum train: 5 mistakes in the configuration:$"
for key in moe.top_k model.heads parallel.zero moe.experts sub_dimensions.ffn; do says err "^  $key = "; done
equal "lines of stderr" "$(wc -l <"$work/err")" 6
# Routers: contradictions, and kinds that do not exist.
expect 2 "$lyceum" "${tiny[@]}" --moe.router=hash --moe.top_k=2 --moe.top_k_start=3 --moe.capacity_factor=1.5 \
  --sub_dimensions.ffn=4 --balance.mutual_information=1 --balance.concentration=-1
says err "^lyceum train: [0-9]+ mistakes in the configuration:$"
says err "^  moe.top_k = 2 with moe.router = hash"
says err "^  moe.top_k_start = 3 is more than moe.top_k = 2$"
says err "^  moe.experts = 8 and moe.shared_experts = [0-9]+ with sub_dimensions: an FFN is divided or has experts"
says err "^  balance.mutual_information = 1 with moe.router = hash"
says err "^  balance.concentration = -1 on the command line: must be in \[0, 10000\]"
refused 2 "moe.capacity_factor = 1.5 with no experts to limit: set moe.capacity_factor = 0, or moe.experts" \
  --moe.experts=0 --moe.capacity_factor=1.5
refused_by_ranks 2 "moe.top_k_start = 5 is more than moe.top_k = 2" --moe.top_k=2 --moe.top_k_start=5
expect 2 "$lyceum" "${tiny[@]}" --moe.topk=2 --model.hiden=64 --batch.globl=4
for pair in moe.topk:moe.top_k model.hiden:model.hidden batch.globl:batch.global; do says err "${pair%:*}.*${pair#*:}"; done
equal "lines that begin an error" "$(grep -c '^lyceum train: ' "$work/err")" 1
# Mistakes in values and contradictions between keys are reported together.
expect 2 "$lyceum" "${tiny[@]}" --moe.topk=2 --optim.lr=fast --parallel.zero=4
says err "^lyceum train: 3 mistakes in the configuration:$"
for key in moe.topk optim.lr parallel.zero; do says err "^  .*$key"; done
equal "lines of stderr" "$(wc -l <"$work/err")" 4

# --- the command line
one_line() {
  expect "$1" "${@:3}"
  says err "$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
}
one_line 2 "^lyceum train: .*$work/absent.ini" "$lyceum" train "--config=$work/absent.ini"
one_line 2 "^lyceum trian: no such command 'trian'" "$lyceum" trian
one_line 2 "^lyceum train: .*--fast" "$lyceum" "${tiny[@]}" --fast
one_line 2 "^lyceum train: .*word" "$lyceum" "${tiny[@]}" word
one_line 2 "^lyceum eval: .*--fast" "$lyceum" eval --fast
one_line 2 "^lyceum eval: --checkpoint is missing" "$lyceum" eval
one_line 3 "^lyceum eval: $work/absent: " "$lyceum" eval "--checkpoint=$work/absent"
one_line 2 "^lyceum generate: .*--fast" "$lyceum" generate --fast
one_line 2 "^lyceum tokenize: .*--fast" "$lyceum" tokenize --fast
one_line 2 "^lyceum tokenize: --json-key text with --chat" "$lyceum" tokenize --input x --tokenizer y --output z --chat plain --json-key text
one_line 2 "^lyceum checkpoint: .*no such command \"look\"" "$lyceum" checkpoint look
one_line 3 "^lyceum checkpoint: $work/absent: " "$lyceum" checkpoint verify "$work/absent"
one_line 2 "^lyceum routing: .*\"look\"" "$lyceum" routing look
one_line 3 "^lyceum routing: .*$work/absent.h5" "$lyceum" routing report "$work/absent.h5"
one_line 2 "^lyceum routing: .*--fast" "$lyceum" routing report "$work/absent.h5" --fast

# --- input of unreasonable size: reported at once, in few words
brief() { # CODE PATTERN ARGUMENTS …
  expect "$1" timeout 20 "$lyceum" train "${@:3}"
  says err "$2"
  (($(wc -c <"$work/err") < 4000)) || fail "$(wc -c <"$work/err") bytes of stderr"
}
python3 - "$work" <<'END'
import sys
def write(name, text):
    open(f"{sys.argv[1]}/{name}.ini", "w").write(text)
write("long", "a" * 100_000_000)
write("key", "a" * 1_000_000 + " = 1\n")
write("keys", "".join(f"k{i}=\n" for i in range(100_000)))
write("more", "".join(f"key{i}=1\n" for i in range(1_600_000)))
END
brief 2 "^lyceum train: $work/long.ini has more than 16777216 bytes: name an INI file$" "--config=$work/long.ini"
brief 2 "^lyceum train: unknown key 'a+… \(1000000 bytes\)' in $work/key.ini line 1: " "--config=$work/key.ini"
brief 2 "^lyceum train: 100000 mistakes in the configuration:$" "--config=$work/keys.ini"
brief 2 "^lyceum train: $work/more.ini has more than 16777216 bytes" "--config=$work/more.ini"
brief 2 "^lyceum train: unknown key 'a\.a+… \(100002 bytes\)' on the command line" \
  "--a.$(head -c 100000 /dev/zero | tr '\0' a)=1"
for key in moe.experts batch.global model.vocab model.layers; do
  brief 2 "^lyceum train: " "--config=$config" "--$key=2147483647" --batch.micro=1
done
mkdir -p "$work/deep/step-00000001"
{ printf '{"tensors":[' && head -c 20000000 /dev/zero | tr '\0' '['; } >"$work/deep/step-00000001/manifest.json"
one_line 3 "manifest.json: damaged: it nests deeper than" timeout 20 "$lyceum" checkpoint show "$work/deep"
rm -r "$work/long.ini" "$work/deep"
printf '\xEF\xBB\xBF' | cat - "$config" >"$work/marked.ini"
expect 0 "$lyceum" train "--config=$work/marked.ini" --print-config

# --- checkpoints
whole=$work/whole
expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2 "--run.dir=$whole"
newest=step-00000012
flip() { # FILE: flips one bit of the byte in the middle
  python3 - "$1" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(0, 2)
    middle = file.tell() // 2
    file.seek(middle)
    byte = file.read(1)[0]
    file.seek(middle)
    file.write(bytes([byte ^ 16]))
END
}

# skipped FILE: train with resume = auto warns of FILE and resumes from step 10; with resume = PATH it fails.
skipped() {
  expect 3 "$lyceum" checkpoint verify "$copy/checkpoints/$newest"
  says err "^lyceum checkpoint: .*$newest/$1"
  expect 3 "$lyceum" "${tiny[@]}" "--run.dir=$work/refused" "--checkpoint.resume=$copy/checkpoints/$newest"
  says err "^lyceum train: cannot resume from .*$newest: .*$1"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  expect 3 "$lyceum" eval "--checkpoint=$copy/checkpoints/$newest"
  says err "^lyceum eval: .*$newest/$1"
  expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2 --run.steps=13 "--run.dir=$copy"
  says out "warning: checkpoint $newest is skipped: .*$1"
  says out "resumed .*step-00000010"
  equal "steps in metrics" "$(steps "$copy/metrics.jsonl" | wc -l)" 13
}
copy=$work/copy
fresh() { rm -rf "$copy" && cp -r "$whole" "$copy"; }
fresh && flip "$copy/checkpoints/$newest/rank-00001.h5" && skipped rank-00001.h5
fresh && rm "$copy/checkpoints/$newest/rank-00000.h5" && skipped rank-00000.h5
fresh && flip "$copy/checkpoints/$newest/manifest.json" && skipped manifest.json
fresh && rm "$copy/checkpoints/$newest/manifest.json"
expect 0 ranks 2 "${tiny[@]}" --parallel.expert=2 --run.steps=13 "--run.dir=$copy"
says out "warning: checkpoint $newest is skipped: .*manifest.json"

fresh
for name in 05 10 12; do flip "$copy/checkpoints/step-000000$name/rank-00000.h5"; done
sum=$(sha256sum "$copy"/checkpoints/*/* "$copy/metrics.jsonl")
expect 3 "$lyceum" "${tiny[@]}" "--run.dir=$copy"
says err "^lyceum train: no checkpoint in $copy/checkpoints is intact"
fresh
expect 3 "$lyceum" "${tiny[@]}" "--run.dir=$copy" --checkpoint.resume=none
says err "^lyceum train: $copy/checkpoints contains checkpoints of an earlier run"
for name in 05 10 12; do flip "$copy/checkpoints/step-000000$name/rank-00000.h5"; done
equal "files of a refused run" "$(sha256sum "$copy"/checkpoints/*/* "$copy/metrics.jsonl")" "$sum"

# A manifest with a correct digest that another build wrote, or that no run can have saved.
forge() { # FROM TO: replaces FROM by TO in the newest manifest of the copy
  fresh
  "$LYCEUM_PYTHON" - "$copy/checkpoints/$newest/manifest.json" "$@" <<'END'
import hashlib, sys
path, old, new = sys.argv[1:]
text = open(path).read()
body = text[: text.rindex('"manifest_sha256"')]
assert old in body, old
body = body.replace(old, new, 1)
open(path, "w").write(body + f'"manifest_sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n')
END
}
forge '"format_version": 3' '"format_version": 4'
sum=$(sha256sum "$copy"/checkpoints/*/*)
one_line 3 "^lyceum train: .*$newest/manifest.json: unknown format_version 4.*set another run.dir" \
  "$lyceum" "${tiny[@]}" "--run.dir=$copy" --run.steps=13 --checkpoint.keep=1
equal "files of a newer lyceum" "$(sha256sum "$copy"/checkpoints/*/*)" "$sum"
forge '\"samples\":96' '\"samples\":-1'
one_line 3 "^lyceum train: the checkpoint's trainer state has samples = -1" \
  "$lyceum" "${tiny[@]}" "--run.dir=$copy" --run.steps=13
forge '\"rank_of_expert\":[0,' '\"rank_of_expert\":[9,'
one_line 3 "^lyceum checkpoint: the checkpoint's placement of the experts of layer 1 fits no mesh" \
  "$lyceum" checkpoint show "$copy/checkpoints/$newest"
forge '"shape":[384,32]' '"shape":[4611686018427387904,32]'
for command in show verify; do
  one_line 3 "^lyceum checkpoint: .*manifest.json: .* has more elements than any memory" \
    "$lyceum" checkpoint $command "$copy/checkpoints/$newest"
done
