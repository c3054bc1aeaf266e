#!/usr/bin/env bash
# Usage: hf_test.sh LYCEUM SOURCE_DIR. Models that the transformers library saved (hf/, by benchmarks/compare_transformers.py)
# have the same losses in Lyceum, are exported with the same bits, and can be trained. Unsupported models are refused, and
# nothing is written.
. "$(dirname "$0")/lib.sh" "$@"
trap '' XFSZ # so that a write beyond the limit is an error, as on a full disk
models=$source/tests/end_to_end/hf
python=${LYCEUM_PYTHON:-$source/.venv/bin/python}
[[ -x $python ]] || fail "LYCEUM_PYTHON must name a Python with h5py: scripts/install-deps.sh"

# tensors FOLDER: prints name, type, shape and bytes of each tensor, one per line.
tensors() {
  python3 - "$1" <<'END'
import json, pathlib, struct, sys
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    data = file.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    for name, tensor in sorted(json.loads(data[8:begin]).items()):
        if name != "__metadata__":
            first, last = tensor["data_offsets"]
            print(name, tensor["dtype"], tensor["shape"], data[begin + first : begin + last].hex())
END
}

# same_losses FILE.json LOG.h5: succeeds if the losses of all tokens agree.
same_losses() {
  "$python" - "$@" <<'END'
import json, sys, h5py
theirs, ours = json.load(open(sys.argv[1]))["loss"], h5py.File(sys.argv[2])["loss"][...]
assert len(theirs) == len(ours), (len(theirs), len(ours))
worst = max(abs(a - b) / abs(a) for a, b in zip(theirs, ours))
sys.exit(f"losses differ by {worst}") if not worst <= 2e-5 else None
END
}

for folder in "$models"/*/; do
  name=$(basename "$folder")
  expect 0 "$lyceum" convert import-hf "$folder" --out "$work/$name"
  expect 0 "$lyceum" eval --checkpoint "$work/$name" "--data.valid=$models/valid" --batch.global=2 --run.threads=1 \
    --token-log "$work/$name.h5"
  same_losses "$folder/losses.json" "$work/$name.h5" || fail "$name has other losses than transformers"
  expect 0 "$lyceum" convert export-hf "$work/$name" --out "$work/back/$name" --architecture "$name"
  cmp <(tensors "$folder") <(tensors "$work/back/$name") || fail "$name has other tensors after export and import"
  [[ $(tensors "$folder" | wc -l) -gt 10 ]] || fail "$name has no tensors"
done

# Weights in FP8 with a factor for each block: the import equals that of the same numbers in F32. The blocks divide no matrix
# evenly. NAME.py OLD NEW FORM writes the deepseek_v3 model in a form: fp8, f32, or fp8 with one fault.
cat >"$work/quantize.py" <<'END'
import json, pathlib, random, shutil, struct, sys
old, new, form = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
rows, cols = 3, 5
shutil.rmtree(new, ignore_errors=True)
shutil.copytree(old, new)
config = json.loads((old / "config.json").read_text())
data = (old / "model.safetensors").read_bytes()
begin = 8 + struct.unpack("<Q", data[:8])[0]
random.seed(3)
def e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -value if byte & 128 else value
f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
tensors = {}
for name, tensor in json.loads(data[8:begin]).items():
    if name == "__metadata__":
        continue
    first, last = tensor["data_offsets"]
    if "_proj" not in name:
        tensors[name] = tensor["dtype"], tensor["shape"], data[begin + first : begin + last]
        continue
    height, width = tensor["shape"]
    numbers = [random.choice([i for i in range(256) if i & 127 != 127 and i & 127 < 100]) for _ in range(height * width)]
    across = -(-width // cols)
    scales = [f32(random.uniform(0.001, 0.01)) for _ in range(-(-height // rows) * across)]
    if form == "f32":
        values = [f32(e4m3(n) * scales[i // width // rows * across + i % width // cols]) for i, n in enumerate(numbers)]
        tensors[name] = "F32", [height, width], struct.pack(f"<{len(values)}f", *values)
        continue
    if form == "nan" and "kv_b_proj" in name:
        numbers[7] = 127
    tensors[name] = "F8_E4M3", [height, width], bytes(numbers)
    shape = [len(scales) // across, across]
    if form == "shape" and "kv_b_proj" in name:
        scales, shape = scales[: across], [1, across]
    if form != "scales" or "kv_b_proj" not in name:
        tensors[name + "_scale_inv"] = "F32", shape, struct.pack(f"<{len(scales)}f", *scales)
if form == "later":
    tensors["model.layers.2.eh_proj.weight"] = "F32", [1], bytes(4)
if form not in ("f32", "config"):
    config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e5m2" if form == "format" else "e4m3",
                                     "quant_method": "fp8", "weight_block_size": [rows, cols]}
header, at = {}, 0
for name, (dtype, shape, content) in tensors.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
    at += len(content)
text = json.dumps(header).encode()
(new / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(each[2] for each in tensors.values()))
(new / "config.json").write_text(json.dumps(config))
END
for form in fp8 f32; do
  python3 "$work/quantize.py" "$models/deepseek_v3" "$work/$form-model" "$form"
  expect 0 "$lyceum" convert import-hf "$work/$form-model" --out "$work/$form"
done
same_weights "$work"/{fp8,f32}/checkpoints/step-00000000

# The additional files of a chat model are exported again after training, with the end tokens of the run.
chat=$work/chat-model
cp -r "$models/llama" "$chat"
python3 - "$chat" <<'END'
import json, sys
folder = sys.argv[1]
def write(name, value):
    with open(f"{folder}/{name}", "w") as file:
        json.dump(value, file)
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
write("tokenizer.json", {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
    "added_tokens": [{"id": 24 + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for i, token in enumerate(special)],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwx")}, "merges": []}})
config = json.load(open(f"{folder}/config.json"))
write("config.json", config | {"eos_token_id": 26, "bos_token_id": 25, "pad_token_id": 24})
write("generation_config.json", {"eos_token_id": [26, 24], "pad_token_id": 24, "temperature": 0.7})
named = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
write("special_tokens_map.json", named)
write("tokenizer_config.json", named | {"tokenizer_class": "PreTrainedTokenizerFast"})
open(f"{folder}/chat_template.jinja", "w").write("{% for m in messages %}{{ m['content'] }}{% endfor %}")
END
expect 0 "$lyceum" convert import-hf "$chat" --out "$work/chat"
grep -qx "end_tokens = 26,24" "$work/chat/config.ini" || fail "the run lacks its end tokens"
expect 0 "$lyceum" train --config "$work/chat/config.ini" "--data.train=$models/valid" --batch.seq_len=8 --batch.global=2 \
  --run.steps=2
expect 0 "$lyceum" convert export-hf "$work/chat" --out "$work/back/chat/"
python3 - "$chat" "$work/back/chat" <<'END' || fail "side files of the model changed"
import json, sys
a, b = ({name: open(f"{folder}/{name}").read() for name in
         ("generation_config.json", "special_tokens_map.json", "tokenizer_config.json", "chat_template.jinja", "config.json")}
        for folder in sys.argv[1:])
for name in a:
    one, other = (text if name.endswith("jinja") else json.loads(text) for text in (a[name], b[name]))
    if name == "config.json":
        one, other = ({key: value for key, value in each.items() if key.endswith("_token_id")} for each in (one, other))
    assert one == other, (name, one, other)
END

# A tokenizer may have more tokens than the model; a prompt with one of these is refused before anything is printed.
cp -r "$chat" "$work/more-tokens"
python3 - "$work/more-tokens" <<'END'
import json, sys
file = f"{sys.argv[1]}/tokenizer.json"
tokenizer = json.load(open(file))
tokenizer["added_tokens"] += [tokenizer["added_tokens"][0] | {"id": i, "content": f"<|{i}|>"} for i in range(27, 100)]
json.dump(tokenizer, open(file, "w"))
END
expect 0 "$lyceum" convert import-hf "$work/more-tokens" --out "$work/more"
says out "^tokenizer +has 100 tokens, the model only 32: texts must not contain the others$"
expect 3 "$lyceum" generate --checkpoint "$work/more" --prompt "a<|99|>"
says err "^lyceum generate: a prompt with the token 99 \(<.99.>\): this model has only 32 tokens \(model.vocab\)$"
[[ ! -s $work/out ]] || fail "a refused prompt was printed"

# Two ranks divide the work, weights are split into several files, and the model can be trained.
expect 0 ranks 2 convert import-hf "$models/mixtral" --out "$work/shared"
same_weights "$work"/{shared,mixtral}/checkpoints/step-00000000
expect 0 ranks 2 convert export-hf "$work/shared" --out "$work/back/shared" --shard-size=5KB
says out "^exported   MixtralForCausalLM"
[[ -s $work/back/shared/model.safetensors.index.json ]] || fail "no index of several files"
cmp <(tensors "$models/mixtral") <(tensors "$work/back/shared" | sort) || fail "the model in several files has other tensors"
expect 0 "$lyceum" convert import-hf "$work/back/shared" --out "$work/again"
same_weights "$work"/{again,mixtral}/checkpoints/step-00000000
expect 0 ranks 2 train --config "$work/mixtral/config.ini" "--data.train=$models/valid" --batch.seq_len=8 --batch.global=2 \
  --run.steps=2 --parallel.expert=2
says out "^optimizer  new: the checkpoint contains only weights"

# refused CODE PATTERN argument …: expects one line, and that $work/none does not exist.
refused() {
  expect "$1" "$lyceum" convert "${@:3}" --out "$work/none"
  says err "^lyceum convert: .*$2"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -e $work/none && ! -e $work/none.partial ]] || fail "something was written"
}
# with SED-EXPRESSION: makes $work/odd, a copy of llama with a changed config.json.
with() {
  rm -rf "$work/odd"
  cp -r "$models/llama" "$work/odd"
  sed -i "$1" "$work/odd/config.json"
}
with 's/"silu"/"gelu"/'
refused 3 'hidden_act = "gelu"' import-hf "$work/odd"
cp -r "$models/llama" "$work/pointers"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 42\n' >"$work/pointers/tokenizer.json"
refused 3 'pointers/tokenizer.json is a pointer of Git LFS; .git lfs pull. replaces it by the file' import-hf "$work/pointers"
with 's/"default"/"dynamic"/'
refused 3 'rope_parameters has rope_type = "dynamic": Lyceum supports' import-hf "$work/odd"
with 's/"default"/"linear", "factor": 0.5/'
refused 3 'the model that it describes is impossible: model.rope_factor = 0.5: must be in' import-hf "$work/odd"
refused 2 'model.rope_factor = 2 with model.rope_scaling = none: set' import-hf "$models/llama" --model.rope_factor=2
with 's/"llama"/"gpt2"/'
refused 3 'model_type = "gpt2": must be one of qwen2, llama, ' import-hf "$work/odd"
with 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
refused 3 "Lyceum's models have no tensor model.layers.1" import-hf "$work/odd"
with ''
truncate -s -1 "$work/odd/model.safetensors"
refused 3 "is not a valid safetensors file: tensor .* are outside the data" import-hf "$work/odd"
with ''
python3 - "$work/odd/model.safetensors" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-2:] = b"\xc0\xff"  # the last value is a NaN
open(sys.argv[1], "wb").write(data)
END
refused 3 "odd/model.safetensors: .* is not finite: element [0-9]* is NaN$" import-hf "$work/odd"
# odd_fp8 FORM PATTERN: expects that a faulty model in FP8 is refused.
odd_fp8() {
  python3 "$work/quantize.py" "$models/deepseek_v3" "$work/odd" "$1"
  refused 3 "$2" import-hf "$work/odd"
}
odd_fp8 nan "kv_b_proj.weight is not finite: element 7 is NaN$"
odd_fp8 scales "kv_b_proj.weight has the type F8_E4M3, but there is no tensor .*kv_b_proj.weight_scale_inv$"
odd_fp8 shape "kv_b_proj.weight_scale_inv is F32 .1, .., but the factors of .* must be "
odd_fp8 format 'quantization_config has fmt = "e5m2": Lyceum reads quantized weights only with fmt = "e4m3"'
odd_fp8 config "has the type F8_E4M3, but config.json has no quantization_config$"
odd_fp8 later "has no tensor model.layers.2.[a-z_.]*, which its config.json describes: --mtp.depth=0 imports the model without modules"
# Finite weights that give logits that are not finite.
with ''
python3 - "$work/odd/model.safetensors" <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
begin = 8 + struct.unpack("<Q", data[:8])[0]
first, last = json.loads(data[8:begin])["lm_head.weight"]["data_offsets"]
data[begin + first : begin + last] = struct.pack("<f", 3e38) * ((last - first) // 4)
open(sys.argv[1], "wb").write(data)
END
expect 0 "$lyceum" convert import-hf "$work/odd" --out "$work/huge"
for json in "" --json; do
  expect 4 "$lyceum" eval --checkpoint "$work/huge" "--data.valid=$models/valid" --batch.global=2 $json
  says err "the loss is not finite: the checkpoint is unusable"
  equal "lines of stderr" "$(wc -l <"$work/err")" 1
  [[ ! -s $work/out ]] || fail "eval prints a result that is not finite"
done
refused 3 "config.json does not exist" import-hf "$work"
refused 3 "q_proj.weight has the shape .12, 8., but the configuration requires .18, 8." import-hf "$models/llama" --model.heads=3
refused 2 "dtype = F64: must be F32 or BF16" export-hf "$work/llama" --dtype=F64
refused 2 "shard-size = 5XB" export-hf "$work/llama" --shard-size=5XB
refused 2 "architecture does not apply to import-hf" import-hf "$models/llama" --architecture=llama
refused 2 "LlamaForCausalLM cannot represent this model exactly: .*moe.experts = 4" export-hf "$work/mixtral" --architecture=llama
expect 2 "$lyceum" convert export-hf "$work/llama" --out "$work/back/llama"
touch "$work/empty" && expect 2 "$lyceum" convert export-hf "$work/llama" --out "$work/empty"
says err "already exists: name another folder"
(ulimit -f 4 && exec "$lyceum" convert export-hf "$work/llama" --out "$work/none") >"$work/out" 2>"$work/err" &&
  fail "the error does not report the full disk"
says err "model.safetensors cannot be written: File too large"
[[ ! -e $work/none && ! -e $work/none.partial ]] || fail "files are left after an export to a full disk"
