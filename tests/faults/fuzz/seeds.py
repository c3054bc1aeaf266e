"""The seeds of the fuzz targets: inputs that are made from this file and other sources. Those named seed-* are well-formed,
those named odd-* are likely to cause errors. corpus.py writes them next to the inputs of the archives. recordings.py makes
inputs that need programs.
"""
import gzip
import hashlib
import json
import struct
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]
DEEP = 30000  # levels of nesting: overflows the stack of a recursive parser

SMALL_RUN = """[run]
dir = run
steps = 2
[data]
train = data/train
tokenizer = data/tokenizer.model
[batch]
global = 1
seq_len = 8
[model]
vocab = 320
layers = 1
hidden = 4
heads = 1
[moe]
experts = 4
top_k = 2
expert_hidden = 2
expert_sizes = 1,2,2,3
capacity_factor = 1.5
[checkpoint]
every = 1
[routing]
every = 2
"""


ALL = defaultdict(dict)  # target -> name -> bytes


def seed(target, name, content):
    ALL[target][name] = content if isinstance(content, bytes) else content.encode()


def mixture(site, **more):
    return {"layer": 1, "top_k": 2, "experts": 4, "counts": [1, 2, 3, 4] * 2, "dropped": [0, 1, 2, 3] * 2} | \
        ({"site": "attention"} if site else {}) | more


def tokenizer_json(**parts):
    """Returns a small tokenizer.json in which `parts` replace the default parts."""
    vocab = {"</s>": 0} | {chr(c): c - 31 for c in range(33, 127)} | {"Ġ": 96, "in": 97, "int": 98, "Ã": 99, "¯": 100, "Ċ": 101}
    token = {"id": 0, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "added_tokens": [token], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": None, "model": {"type": "BPE", "vocab": vocab, "merges": [["i", "n"], ["in", "t"]]}} | parts


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def seed_tokenizers():
    def put(name, **parts):
        seed("tokenizer_json", name, json.dumps(tokenizer_json(**parts), ensure_ascii=False))
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    put("seed-gpt2", pre_tokenizer=bytes_only | {"use_regex": True, "add_prefix_space": True}, decoder=bytes_only,
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", 0], "cls": ["</s>", 0]})
    put("seed-llama3", pre_tokenizer={"type": "Sequence", "pretokenizers": [
        split({"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}), bytes_only]},
        normalizer={"type": "NFC"}, decoder=bytes_only, post_processor={"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]})
    put("seed-words", pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "Digits", "individual_digits": True}, split({"String": "a"}, "MergedWithNext", True)]},
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "_"}]})
    put("seed-unigram", model={"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab":
                               [["</s>", 0.0], ["▁", -2.0], ["▁in", -3.5], ["t", -4.0], ["<0x41>", -9.0], ["int", -5.0]]},
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "Metaspace", "replacement": "▁"}]})
    put("odd-backtracking", pre_tokenizer=split({"Regex": "(a|a|[^x])*(aa|.)*(?<=q)~"}))
    put("odd-repeats", pre_tokenizer=split({"Regex": "((((a{100}){100}){100}){100}){100}"}))
    put("odd-recursion", pre_tokenizer=split({"Regex": r"(?<x>a|\(\g<x>*\)|\g<x>b)"}))
    put("odd-ids", model={"type": "BPE", "vocab": {"</s>": 4294967295, "a": -1}, "merges": []})
    put("odd-empty-match", normalizer={"type": "Replace", "pattern": {"Regex": ""}, "content": "aa"})
    seed("tokenizer_json", "odd-deep", "[" * DEEP + "]" * DEEP)


def seed_corpus():
    seed("records", "seed-text", '{"id": 3, "text": "na\\u00efve \\ud83d\\ude42\\n", "tags": [1, {"a": null}]}')
    seed("records", "odd-nan", b'\xef\xbb\xbf{"n": [NaN, -Infinity, 1e999], "s": "\\udc80\xff", "text": "a\\ud83d\\ude42"}\r')
    seed("json", "seed-escapes", '{"a\\udce9": ["\\udcff\\u0041\\ud83d\\ude42", 1.5, true, null, {}], "b": []}')
    seed("json", "seed-python", '{"a": [NaN, -Infinity, 1e999], "b": "\\ud83d\\n"}')
    seed("json", "odd-bytes", b"caf\xe9 \xf0\x9f\x99 \xed\xa0\x80")
    seed("records", "odd-surrogate", '{"text": "\\ud83d"}')
    seed("records", "odd-deep", '{"text": ' + "[" * DEEP + "]" * DEEP + "}")
    item = {"context": "int na\u00efve ", "choices": ["x;", "= 1"], "answer": 1}
    seed("tasks", "seed-items", json.dumps(item) + "\r\n\n" + json.dumps(item | {"context": "", "id": [None]}, ensure_ascii=False))
    seed("tasks", "seed-gzip", gzip.compress(json.dumps(item).encode(), mtime=0))
    seed("tasks", "odd-spaces", json.dumps(item | {"context": "\u2028\u00a0 \x1f", "choices": [" ", "\n", "\u3000"]}))
    for name, answer in ("odd-negative", -1), ("odd-large", 2 ** 64 - 1), ("odd-real", 0.5), ("odd-huge", 2 ** 70):
        seed("tasks", name, json.dumps(item | {"answer": answer}))
    seed("tasks", "odd-deep", '{"context": "a", "answer": 0, "choices": ' + "[" * DEEP + "]" * DEEP + "}")
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "na\u00efve?"},
            {"role": "assistant", "content": "Yes."}, {"role": "user", "content": ""}, {"role": "assistant", "content": "No."}]
    seed("chat", "seed-messages", json.dumps({"messages": chat}))
    seed("chat", "seed-prompt", json.dumps({"prompt": "one", "completion": " two"}))
    marked = [{"role": "user", "content": [{"type": "text", "text": "\u2003x "}], "train": True},
              {"role": "assistant", "content": "A", "weight": 0}, {"role": "assistant", "content": " B ", "masked": False}]
    seed("chat", "seed-marks", json.dumps({"system": "S", "messages": marked}))
    seed("chat", "seed-asks", json.dumps({"messages": [{"role": "user", "content": "Q"}]}))
    seed("chat", "seed-lists", json.dumps({"prompt": chat[:2], "completion": chat[2:3], "tools": [], "weight": 1}))
    seed("chat", "odd-tool-calls", json.dumps({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}))
    seed("chat", "odd-deep", '{"messages": [{"role": "user", "content": ' + "[" * DEEP + "]" * DEEP + "}]}")
    seed("chat", "odd-surrogate", '{"messages": [{"role": "assistant", "content": "\\ud83d"}]}')
    text = b"some text, some text\n" * 20
    packed = gzip.compress(text, mtime=0)
    seed("text_stream", "seed-plain", text)
    seed("text_stream", "seed-gzip", packed + packed)
    seed("text_stream", "odd-cut-gzip", packed[:-5])
    seed("text_stream", "odd-zeros-gzip", packed + bytes(9) + packed + bytes(3))
    # zstd: a frame with one raw block, one with a block of a repeated byte, a skippable frame.
    head = bytes.fromhex("28b52ffd2005")
    seed("text_stream", "seed-zstd", head + bytes.fromhex("290000") + b"hello" + head + bytes.fromhex("2b0000") + b"x" + bytes.fromhex("502a4d1803000000") + b"abc")
    seed("text_stream", "odd-skippable-zstd", bytes.fromhex("5f2a4d1803000000") + b"abc" + head + bytes.fromhex("290000") + b"hello")
    seed("text_stream", "odd-cut-zstd", head + bytes.fromhex("290000") + b"he")


def seed_texts():
    deep = "[" * DEEP + "]" * DEEP
    seed("config", "seed-small", SMALL_RUN)
    seed("config", "seed-quickstart", (SOURCE / "configs/quickstart.ini").read_bytes())
    seed("config", "seed-stages", (SOURCE / "configs/stages.ini").read_bytes())
    seed("arguments", "seed-stages", "--stage.2.from_step=5\n--stage.2.batch.global\n8\n--stage.4.from_step=7\n--stage.1.from_step=1\n--stage.2.run.dir=x")
    for file in (SOURCE / "configs/clusters").glob("*.ini"):
        seed("cluster", "seed-" + file.stem, file.read_bytes())
    seed("arguments", "seed-keys", "--run.steps=5\n--moe.experts\n8\n--data.train=\n--no-such\nword\n--\n--run.dir=x")
    seed("arguments", "seed-mistakes", "--optim.lr=1e999\n--run.steps=-1\n--lr=1\n--model.hidden\n--batch.global=many\n--help")
    seed("text", "seed-words", "int main() {\n\t return 0;  }  // na\u00efve \u2581 \U0001F600\r\n\n\n  end")
    seed("text", "seed-bytes", bytes(range(256)) + b"\xe2\x96\xf0\x9f\x98")
    seed("metrics", "seed-nonfinite", '{"step":1,"loss":null,"nonfinite":["loss"]}\n{"step":7,"loss":1e308}\n{"step":8')
    seed("starts", "seed-two", "".join(json.dumps({"step": s, "date": "2026-03-01T12:00:00Z", "program": "0.1.0", "mesh": "",
                                                   "config": "[run]\nsteps = 2\n"}) + "\n" for s in (0, 5)))
    seed("tensor_pattern", "seed-rows", "model/layers/*/mlp/experts/[0-9]*/gate_proj/weight[8:12]\nmodel/norm/weight")
    seed("tensor_pattern", "seed-stars", "m?d*[!a-f]\\*[[:alpha:]][:8]\nmodel")
    seed("tensor_pattern", "odd-many-stars", "*e" * 40 + "\n" + "e" * 200)
    seed("latest", "seed-newest", "step-00000020\n")
    seed("latest", "odd-elsewhere", "../step-00000020\n")
    seed("latest", "odd-long-number", "step-99999999999999999999\n")
    choice = {"device": "H100", "sizes": [64, 128, 256], "strides": [256, 256, 128], "transpose": [False, True],
              "accumulate": False, "types": ["bf16", "f32"], "alignments": [16, 16, 256], "proposal": 1,
              "algorithm": list(range(8))}
    for name, choices in ("seed-one", [choice]), ("seed-batch", [choice | {"batch": 8}]):
        gemm = {"format": "lyceum-gemm-choices", "version": 1, "choices": choices}
        text = json.dumps(choices, sort_keys=True, separators=(",", ":"))
        seed("gemm_file", name, json.dumps(gemm | {"sha256": hashlib.sha256(text.encode()).hexdigest()}))
    seed("gemm_file", "odd-deep", '{"format":"lyceum-gemm-choices","version":1,"sha256":"","choices":%s}' % deep)
    holder = {"token": "00ff", "host": "n1", "pid": 4711, "job": "17", "restarts": 1, "since": 1700000000,
              "cluster": "c", "kernel": "k", "pid_namespace": "pid:[1]", "pid_start": 99}
    seed("lock", "seed-other-machine", json.dumps(holder, indent=2))
    seed("lock", "odd-times", json.dumps(holder | {"since": -(1 << 63), "pid": -1}))
    seed("peak", "seed-kept", json.dumps({"cpu": {"flops": 1e11, "date": "2026-11-22", "build": "build"}}))
    seed("peak", "odd-deep", '{"a":%s}' % deep)
    seed("token_meta", "odd-reals", '{"bytes":1e300,"documents":1.5,"tokens":-1,"vocab":18446744073709551615,'
                                    '"tokenizer":"","tokenizer_sha256":""}')
    soundness = {"steps": 2, "left_out": 1, "smoothed_loss": 5.5, "lowest_loss": 5.25}
    state = {"updates": 2, "samples": 8, "schedule_steps": 9, "skipped": 0, "skipped_in_a_row": 0, "routing_tokens": 32,
             "routing": [mixture(site, probability=[0.25] * 4, entropy=1.5) for site in (1, 0)],
             "unwritten_routing": [{"step": 1, "layers": [mixture(site, mean_probability=[0.25] * 4, mean_entropy=None)
                                                          for site in (1, 0)]}],
             "soundness": soundness,
             "expert_load": [{"layer": 1, "tokens": [0.5, 1, 2, 3]}],
             "idle_experts": [{"layer": 1, "site": "attention", "steps": [0] * 4}, {"layer": 1, "steps": [0, 1, 2, 3]}],
             "placement": [{"layer": 1, "rank_of_expert": [0, 1, 1, 0]}],
             "data": [{"key": "data.train", "prefix": "data/train", "fingerprint": "00"}]}
    seed("trainer_state", "seed-all", json.dumps(state))
    seed("trainer_state", "odd-deep", json.dumps(state | {"expert_load": "deep"}).replace('"deep"', deep))
    files = [{"name": "rank-00000.h5", "bytes": 96, "sha256": "00"}, {"name": "tokenizer.model", "bytes": 5, "sha256": "01"}]
    manifest = {"format": "lyceum-checkpoint", "format_version": 1, "run_uuid": "f00d", "step": 2, "mesh": "dp 1",
                "sound": False, "unsound": "loss", "config": "[run]\n", "trainer_state": "{}", "files": files,
                "job": {"cluster": "c", "id": "1", "name": "n", "partition": "p", "user": "u", "nodes": "n1", "restarts": 1},
                "tensors": [{"name": "w", "shape": [4, 4], "boxes": [[0, "w", [0, 0], [2, 4]], [0, "w", [2, 0], [2, 4]]]}]}
    seed("manifest", "seed-all", json.dumps(manifest)[:-1] + ',\n"manifest_sha256": "')
    seed("manifest", "odd-sizes", json.dumps(manifest | {"tensors": [
        {"name": "w", "shape": [1 << 62, 1 << 62], "boxes": [[0, "w", [0, 0], [1 << 62, 1 << 62]]]}]})[:-1] + ",")


def token_file(lengths, boundaries, width, tokens, code=8):
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(boundaries)) + \
        struct.pack(f"<{len(lengths)}i{len(lengths)}q{len(boundaries)}q", *lengths, *offsets, *boundaries)
    return struct.pack("<H", len(index)) + index + tokens


def seed_token_files():
    seed("token_file", "seed-u16", token_file([3, 0, 9], [0, 1, 3], 2, bytes(range(24))))
    seed("token_file", "seed-i32", token_file([8], [0, 1], 4, b"\1\0\0\0" * 8, 4))
    seed("token_file", "seed-i64", token_file([8], [0, 0, 1], 8, b"\xff" * 64, 5))
    seed("token_file", "odd-sums", token_file([1 << 30, 1 << 30], [0, 2], 8, b"", 5))


def safetensors_file(tensors, data, **more):
    header = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}
                         for name, (dtype, shape, offsets) in tensors.items()} | more).encode()
    return struct.pack("<Q", len(header)) + header + data


def seed_hugging_face():
    two = {"model.norm.weight": ("F32", [2], [0, 8]), "a": ("BF16", [1, 3], [8, 14]), "b": ("F16", [2, 0], [14, 14])}
    seed("safetensors", "seed-three", safetensors_file(two, bytes(range(14)), __metadata__={"format": "pt"}))
    seed("safetensors", "seed-bytes", safetensors_file({"a_blocks": ("U8", [2, 1, 1, 3], [0, 6]), "b": ("F32", [1], [6, 10])}, bytes(10)))
    seed("safetensors", "odd-overlap", safetensors_file(two | {"c": ("F16", [2], [4, 8])}, bytes(14)))
    seed("safetensors", "odd-extents", safetensors_file({"a": ("F32", [1 << 62, 1 << 62, 0], [0, 0])}, b""))
    seed("safetensors", "odd-length", struct.pack("<Q", (1 << 64) - 1) + b"{}")
    seed("safetensors", "odd-deep", struct.pack("<Q", DEEP) + b"[" * DEEP)
    fixtures = SOURCE / "tests/end_to_end/hf"
    for file in sorted(fixtures.glob("*/config.json")):
        seed("hf_config", "seed-" + file.parent.name, file.read_text())
    llama = json.loads((fixtures / "llama/config.json").read_text())
    yarn = {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1.5,
            "mscale": 0.7, "mscale_all_dim": 1.0, "truncate": False, "attention_factor": None}
    llama3 = {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1e6}
    seed("hf_config", "seed-yarn", json.dumps(llama | {"rope_scaling": yarn, "original_max_position_embeddings": 8}))
    seed("hf_config", "seed-llama3", json.dumps(llama | {"rope_parameters": llama3, "partial_rotary_factor": 0.5}))
    gpt_oss = json.loads((fixtures / "gpt_oss/config.json").read_text())
    del gpt_oss["rope_parameters"], gpt_oss["layer_types"]
    seed("hf_config", "seed-mxfp4", json.dumps(gpt_oss | {"quantization_config": {"quant_method": "mxfp4"}, "experts_per_token": 4}))
    weights = "model.safetensors"
    seed("hf_index", "seed-one", json.dumps({"metadata": {"total_size": 14}, "weight_map": {"a": weights, "b": weights}}, indent=1))
    seed("hf_index", "odd-folder", '{"weight_map": {"a": ".."}}')
    seed("hf_index", "odd-missing", '{"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}')
    seed("hf_index", "odd-deep", '{"weight_map": %s}' % ("[" * DEEP + "]" * DEEP))
    seed("hf_config", "odd-deep", '{"model_type":"llama","rope_scaling":%s}' % ("[" * DEEP + "]" * DEEP))
    seed("hf_config", "odd-numbers", json.dumps(llama | {"num_attention_heads": 0, "hidden_size": 1 << 63, "rope_theta": 1e308}))


seed_texts()
seed_tokenizers()
seed_corpus()
seed_token_files()
seed_hugging_face()
