"""Changes of config.json for every key of every architecture that `lyceum convert import-hf` reads, and their effect in
transformers. compare_transformers.py --write-fixtures writes them to tests/end_to_end/hf/keys.json.

A change is either read, and then Lyceum must compute the same loss as transformers, or it is refused: because transformers
cannot load it, Lyceum has no such model, or the weights do not fit.
"""
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import transformers

ABSENT = "(absent)"
OLD_ROPE = "rope_scaling"

# Values that do not affect the loss.
IGNORED = {
    "architectures": [["Other"], ABSENT], "transformers_version": ["4.40.0", ABSENT], "dtype": ["bfloat16", ABSENT],
    "torch_dtype": ["float16"], "use_cache": [False], "bos_token_id": [1, None, ABSENT],
    "eos_token_id": [3, [1, 2], None, ABSENT], "pad_token_id": [2, ABSENT], "attention_dropout": [0.5, ABSENT],
    "output_router_logits": [True], "router_aux_loss_coef": [0.5], "aux_loss_alpha": [0.1], "seq_aux": [False],
    "router_jitter_noise": [0.5], "pretraining_tp": [2], "_name_or_path": ["x"], "initializer_range": [0.5, ABSENT],
    "tokenizer_class": ["LlamaTokenizer"], "ep_size": [2], "return_dict": [True], "output_hidden_states": [False],
    "output_attentions": [False], "id2label": [{"0": "a"}], "label2id": [{"a": 0}], "problem_type": [None],
    "max_position_embeddings": [64, 32], "some_other_key": [None, False],
}  # fmt: skip
# Values that are refused for every architecture.
REFUSED = {
    "model_type": ["bert", None, ABSENT], "vocab_size": [31, 33, "32", 32.5, None, ABSENT], "hidden_size": [10, 0, -8, None, ABSENT],
    "num_hidden_layers": [1, 3, None, ABSENT], "num_attention_heads": [1, 3, 0, None, ABSENT],
    "num_key_value_heads": [2, 0, None, ABSENT], "max_position_embeddings": [None, ABSENT, "32"],
    "rms_norm_eps": ["1e-5", None], "tie_word_embeddings": [True, None, 1], "hidden_act": ["gelu", "relu", None],
    "intermediate_size": [11, 0, None, ABSENT], "is_causal": [False], "some_other_key": [1, True, "x"],
    "quantization_config": [{"quant_method": "fp8"}], "text_config": [{"hidden_size": 8}],
    "transformers_weights": ["other.safetensors"], "per_layer_config": [{"0": {"rms_norm_eps": 1.0}}],
    "chunk_size_feed_forward": [4], "is_encoder_decoder": [True],
    "tie_last_hidden_states": [True],
}  # fmt: skip
BIAS = {"attention_bias": [True, None]}
EXPERTS = {"num_experts_per_tok": [0, 5, None, ABSENT], "moe_intermediate_size": [4, 16, None, ABSENT],
           "norm_topk_prob": [None, 1]}  # fmt: skip
LISTED = {"decoder_sparse_step": [2, 0, None], "mlp_only_layers": [[], [1], [1, 0], ABSENT], "num_experts": [3, 5],
          "num_local_experts": [3]}  # fmt: skip
SIGMOID = EXPERTS | {"n_routed_experts": [3, 5, None, ABSENT], "num_local_experts": [3, None],
                     "routed_scaling_factor": [None, "2.5", 0], "n_group": [3, 4, 0],
                     "topk_group": [0, 3], "first_k_dense_replace": [0, 2], "n_shared_experts": [1, 3, 0, None]}  # fmt: skip
WINDOW = {"sliding_window": [], "use_sliding_window": [None], "layer_types": [["sliding_attention"] * 2, ["full_attention"]],
          "max_window_layers": []}  # fmt: skip
OF_CLASS = {
    "llama": BIAS | {"mlp_bias": [True, None], "head_dim": [4, None, 7, ABSENT]},
    "qwen2": WINDOW | {"head_dim": [6]},
    "qwen3": WINDOW | {"attention_bias": [False, None, ABSENT], "head_dim": [4, None, ABSENT]},
    "mixtral": EXPERTS | {"num_local_experts": [3, 5, None, ABSENT], "num_experts": [3, None], "head_dim": [6],
                          "sliding_window": [0], "moe_intermediate_size": [16], "norm_topk_prob": [True]},
    "deepseek": BIAS | EXPERTS | {"n_routed_experts": [3, 5, None, ABSENT], "first_k_dense_replace": [0, 2, ABSENT],
                                  "n_shared_experts": [1, 3, None, ABSENT], "moe_layer_freq": [2],
                                  "scoring_func": ["sigmoid"]},
    "qwen3_moe": BIAS | EXPERTS | LISTED | {"num_experts": [], "num_local_experts": [3, None], "use_sliding_window": [None],
                                            "sliding_window": [], "head_dim": [4, None, ABSENT]},
    "olmoe": BIAS | EXPERTS | {"num_experts": [3, 5, None, ABSENT], "num_local_experts": [3, None], "clip_qkv": [1.0],
                               "moe_intermediate_size": [16]},
    "qwen2_moe": WINDOW | EXPERTS | LISTED | {"shared_expert_intermediate_size": [8, 12, 0, None, ABSENT],
                                              "qkv_bias": [False, None], "head_dim": [6]},
    "glm4_moe": SIGMOID | {"attention_bias": [False, None, ABSENT], "use_qk_norm": [False, None, ABSENT],
                           "num_nextn_predict_layers": [-1, None], "num_mtp_layers": [-1], "head_dim": [6]},
    "dots1": SIGMOID | BIAS | {"first_k_dense_replace": [0, 2, ABSENT], "layer_types": [["sliding_attention"] * 2],
                               "n_shared_experts": [1, 3, None, ABSENT], "head_dim": [6]},
    "gpt_oss": EXPERTS | {"num_local_experts": [3, 5, None, ABSENT], "num_experts": [3, None], "attention_bias": [False, None],
                          "head_dim": [4, None, ABSENT], "swiglu_alpha": [None, "1"], "swiglu_limit": [None, 0, "7"],
                          "sliding_window": [0, None], "layer_types": [["full_attention"], ["chunked_attention"] * 2],
                          "moe_intermediate_size": [16], "norm_topk_prob": [True]},
}  # fmt: skip
OF_CLASS["minimax_m2"] = EXPERTS | {
    "num_local_experts": [3, 5, None, ABSENT], "num_experts": [3, None], "head_dim": [4, None, ABSENT], "moe_intermediate_size": [16],
    "norm_topk_prob": [True], "rotary_dim": [2, 3, 0, "4"], "qk_norm_type": ["per_head"], "scoring_func": ["softmax"],
    "shared_intermediate_size": [8], "use_qk_norm": [False], "use_routing_bias": [False], "attn_type_list": [[0, 1]],
}  # fmt: skip
MLA = {"q_lora_rank": [None, 6, "5", ABSENT], "kv_lora_rank": [4, 0, None, ABSENT], "qk_nope_head_dim": [3, 0, None, ABSENT],
       "qk_rope_head_dim": [2, 3, 0, None, ABSENT], "v_head_dim": [2, 0, None, ABSENT], "qk_head_dim": [7], "head_dim": [3, 8],
       "num_key_value_heads": [1, 4, 0], "attention_bias": [True, None], "moe_layer_freq": [2]}  # fmt: skip
OF_CLASS |= {
    "deepseek_v2": MLA | EXPERTS | {"n_routed_experts": [3, 5, None, ABSENT], "num_experts": [3, None], "n_group": [3, 0, None],
                                    "topk_group": [0, 3, None], "topk_method": ["noaux_tc", None],
                                    "routed_scaling_factor": [None, "2.5", 0], "first_k_dense_replace": [0, 2, ABSENT],
                                    "n_shared_experts": [1, 3, 0, None], "mlp_bias": [True, None], "scoring_func": ["sigmoid"]},
    "deepseek_v3": MLA | SIGMOID | {"rope_interleave": [None, 1], "topk_method": ["greedy"], "scoring_func": ["softmax"],
                                    "num_nextn_predict_layers": [-1, None], "num_mtp_layers": [-1]},
}  # fmt: skip
# Changes that are read, for the architectures that have the first key of the change.
READ = [
    {"rms_norm_eps": 0.01}, {"rms_norm_eps": ABSENT}, {"hidden_act": ABSENT}, {"tie_word_embeddings": ABSENT},
    {"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}, {"num_experts_per_tok": 4}, {"norm_topk_prob": True},
    {"norm_topk_prob": False}, {"norm_topk_prob": ABSENT}, {"norm_topk_prob": True, "num_experts_per_tok": 1},
    {"decoder_sparse_step": ABSENT}, {"clip_qkv": ABSENT}, {"clip_qkv": None},
    {"mlp_bias": ABSENT}, {"routed_scaling_factor": ABSENT}, {"routed_scaling_factor": 1.5}, {"n_group": 1, "topk_group": 1}, {"n_group": 2, "topk_group": 2},
    {"n_group": 2, "topk_group": 1}, {"topk_group": ABSENT}, {"n_group": ABSENT, "topk_group": ABSENT},
    {"use_sliding_window": False, "sliding_window": 16}, {"use_sliding_window": ABSENT, "sliding_window": 16},
    {"use_sliding_window": True, "sliding_window": 32},
    {"layer_types": ABSENT}, {"layer_types": None}, {"max_window_layers": 0},
    {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention"] * 2},
    {"max_window_layers": ABSENT}, {"is_causal": True}, {"num_nextn_predict_layers": ABSENT}, {"moe_layer_freq": 1},
    {"scoring_func": "softmax"}, {"qkv_bias": ABSENT},
]  # fmt: skip
WINDOWED = {"use_sliding_window": True, "sliding_window": 5}
# Windows of some layers, for classes that have layer_types.
LAYERS = [WINDOWED | {"layer_types": ABSENT, "max_window_layers": first} for first in (0, 1, 2)]
LAYERS += [WINDOWED | {"layer_types": types}
           for types in (["sliding_attention", "full_attention"], ["full_attention", "sliding_attention"],
                         ["sliding_attention"] * 2)]  # fmt: skip
READ_OF_CLASS = {
    "qwen2": LAYERS + [{"num_attention_heads": 4, "num_key_value_heads": 2}],
    "qwen3": LAYERS,
    "qwen2_moe": LAYERS + [{"num_attention_heads": 4, "num_key_value_heads": 2}],
    "mixtral": [{"sliding_window": 32}, {"sliding_window": None}, {"sliding_window": ABSENT}, {"head_dim": 4}, {"head_dim": ABSENT},
                {"sliding_window": 16}, {"sliding_window": 3}, {"sliding_window": 1}, {"sliding_window": 16, "use_sliding_window": False},
                {"sliding_window": 16, "layer_types": ["full_attention"] * 2},
                {"num_attention_heads": 4, "num_key_value_heads": 2}, {"num_experts": 4}, {"num_experts": 4, "num_local_experts": 8}],
    "gpt_oss": [{"num_experts": 4}, {"swiglu_alpha": 1.1}, {"swiglu_alpha": ABSENT}, {"swiglu_limit": 1.5}, {"swiglu_limit": ABSENT},
                {"sliding_window": 3}, {"sliding_window": 16}, {"sliding_window": 32}, {"sliding_window": ABSENT}, {"layer_types": ABSENT},
                {"layer_types": ["full_attention"] * 2}, {"layer_types": ["sliding_attention"] * 2},
                {"layer_types": ["full_attention", "sliding_attention"]}, {"layer_types": ["full_attention"] * 2, "sliding_window": 5},
                {"initial_context_length": 16}, {"experts_per_token": 3}, {"quantization_config": None}],
    "deepseek": [{"num_attention_heads": 4, "num_key_value_heads": 2}],
    "olmoe": [{"num_local_experts": 4}, {"num_local_experts": 4, "num_experts": 8}, {"num_attention_heads": 4, "num_key_value_heads": 2}],
    "qwen3_moe": [{"num_experts": 4}, {"num_experts": 9}, {"use_sliding_window": True, "sliding_window": 16},
                  {"use_sliding_window": True, "sliding_window": 5},
                  {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention"] * 2},
                  {"max_window_layers": 1}, {"max_window_layers": 1, "use_sliding_window": True, "sliding_window": 5}],
    "glm4_moe": [{"num_local_experts": 4}, {"num_local_experts": 4, "n_routed_experts": 8}, {"num_mtp_layers": 0}, {"num_nextn_predict_layers": 1}, {"head_dim": 4}],
    "dots1": [{"num_local_experts": 4}, {"sliding_window": 16}, {"sliding_window": ABSENT}, {"head_dim": 4},
              {"sliding_window": 16, "layer_types": ABSENT, "max_window_layers": 2}, {"sliding_window": 16, "layer_types": ABSENT},
              {"sliding_window": 16, "layer_types": ABSENT, "max_window_layers": 0},
              {"sliding_window": 5, "layer_types": ABSENT, "max_window_layers": 1},
              {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
              {"sliding_window": ABSENT, "layer_types": ABSENT, "max_window_layers": 0, "max_position_embeddings": 8192},
              {"scoring_func": "noaux_tc"}, {"moe_layer_freq": 1}],
}  # fmt: skip
PLAIN = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "partial_rotary_factor": ABSENT}
READ_OF_CLASS["minimax_m2"] = [
    {"num_experts": 4}, {"num_experts": 4, "num_local_experts": 8}, {"rotary_dim": 4}, {"rotary_dim": None},
    *[PLAIN | {"rotary_dim": width} for width in (2, 4, 8)],
    # As the published model has them.
    {"attn_type_list": [1, 1], "qk_norm_type": "per_layer", "scoring_func": "sigmoid", "shared_intermediate_size": 0,
     "use_qk_norm": True, "use_routing_bias": True, "mlp_intermediate_size": 8192, "mtp_transformer_layers": 1, "num_mtp_modules": 3,
     "use_mtp": True, "shared_moe_mode": "sigmoid", "rope_parameters": ABSENT, "partial_rotary_factor": ABSENT, "rotary_dim": 4,
     "rope_theta": 500.0},
]  # fmt: skip
READ_OF_CLASS |= {
    "deepseek_v2": [{"num_key_value_heads": None}, {"num_key_value_heads": ABSENT}, {"topk_method": "greedy"}, {"topk_method": ABSENT},
                    {"topk_method": "greedy", "n_group": None, "topk_group": None}, {"num_experts": 4}, {"moe_layer_freq": 1},
                    {"head_dim": ABSENT}, {"qk_head_dim": ABSENT}, {"rope_theta": 100.0, "rope_parameters": ABSENT},
                    {"rms_norm_eps": 0.1}, {"topk_method": "greedy", "num_experts_per_tok": 3}],
    "deepseek_v3": [{"num_key_value_heads": None}, {"rope_interleave": False}, {"rope_interleave": ABSENT}, {"moe_layer_freq": 1},
                    {"num_local_experts": 4}, {"num_nextn_predict_layers": 1}, {"num_mtp_layers": 2}, {"topk_method": "noaux_tc"},
                    {"scoring_func": "sigmoid"}, {"head_dim": ABSENT}, {"qk_head_dim": ABSENT}, {"rms_norm_eps": 0.1}],
}  # fmt: skip
REFUSED_OF_CLASS = {
    # Groups have two experts, and other implementations of DeepSeek-V2 than transformers divide gates by their sum.
    "deepseek_v2": [{"num_experts_per_tok": 3}, {"num_experts_per_tok": 4}, {"norm_topk_prob": True}, {"topk_group": ABSENT},
                    {"norm_topk_prob": True, "num_experts_per_tok": 1}, {"n_group": ABSENT, "topk_group": ABSENT}],
    # The class has 8 groups, of which 4 are chosen, if config.json does not say otherwise.
    "deepseek_v3": [{"num_experts_per_tok": 3}, {"num_experts_per_tok": 4}, {"topk_group": ABSENT},
                    {"n_group": ABSENT, "topk_group": ABSENT}],
    # Groups have two experts, so a limit of one group leaves only two to choose from.
    "glm4_moe": [{"num_experts_per_tok": 3}, {"num_experts_per_tok": 4}],
    "qwen2_moe": [{"use_sliding_window": True, "sliding_window": None}],
    "mixtral": [{"sliding_window": 16, "layer_types": ["sliding_attention"] * 2}],
    "dots1": [{"n_group": 1, "topk_group": 2}, {"scoring_func": "softmax"}, {"moe_layer_freq": 2}],
}  # fmt: skip


PARTIAL = ("glm4_moe", "minimax_m2")  # classes that may rotate only a part of each head


def rope_changes(kind: str) -> tuple[list, list]:
    whole = {"partial_rotary_factor": 1.0} if kind in PARTIAL else {}
    plain = {"rope_type": "default"} | whole
    beside = {"rope_theta": ABSENT}
    read = [
        {"rope_parameters": plain | {"rope_theta": 100.0}} | beside, {"rope_parameters": ABSENT, "rope_theta": 100.0} | whole,
        {"rope_parameters": plain, "rope_theta": 100.0}, {"rope_parameters": plain | {"rope_theta": 300.0}, "rope_theta": 100.0},
        {"rope_parameters": None, "rope_theta": 100.0} | whole, {"rope_parameters": ABSENT} | beside | whole,
        {"rope_parameters": plain | {"rope_theta": 500.0}, OLD_ROPE: {"type": "default"} | whole} | beside,
        {"rope_parameters": plain | {"rope_theta": 500.0}, OLD_ROPE: plain | {"rope_theta": 100.0}} | beside,
        {"rope_parameters": plain | {"rope_theta": 500.0}, OLD_ROPE: plain, "rope_theta": 200.0},
        {"rope_parameters": plain | {"rope_theta": 500.0}, OLD_ROPE: None}, {"rope_parameters": plain | {"rope_theta": 500.0}, OLD_ROPE: {}},
        {"rope_theta": 100.0, "rope_parameters": ABSENT, OLD_ROPE: None} | whole, {"partial_rotary_factor": 1.0},
    ]  # fmt: skip
    length = "original_max_position_embeddings"
    linear, llama3 = {"rope_type": "linear", "factor": 2.0}, {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0,
                                                             "high_freq_factor": 4.0, length: 16}
    yarn = {"rope_type": "yarn", "factor": 3.0, length: 16}
    scaled = [linear, {"type": "linear", "factor": 3}, llama3, yarn, {"rope_type": "yarn", "factor": 2.0},
              {"type": "yarn", "factor": 2.0, length: 16, "truncate": False}, yarn | {"factor": None},
              yarn | {"beta_fast": 1.5, "beta_slow": 0.5, "truncate": None}, yarn | {"attention_factor": 0.8, "mscale": 2.0},
              yarn | {"mscale": 0.7, "mscale_all_dim": 1.5}, yarn | {"mscale": 0.7, "beta_fast": None}]
    unlike = [{"rope_type": "dynamic", "factor": 2.0}, linear | {"factor": 0.5}, linear | {"factor": None}, {"rope_type": "linear"},
              linear | {"low_freq_factor": 1.0}, llama3 | {"high_freq_factor": 1.0}, llama3 | {length: None},
              {"rope_type": "llama3", "factor": 2.0}, yarn | {"attention_factor": 0.0}, yarn | {"beta_slow": 50.0},
              {"rope_type": None}]  # fmt: skip
    spellings = [lambda each: {"rope_parameters": plain | {"rope_theta": 500.0}, OLD_ROPE: each | whole},
                 lambda each: {"rope_parameters": each | {"rope_theta": 500.0} | whole},
                 lambda each: {"rope_parameters": ABSENT, "rope_theta": 500.0, OLD_ROPE: each} | whole]  # fmt: skip
    # With yarn, transformers cannot load a Mixtral without head_dim.
    sized = {"head_dim": 4} if kind == "mixtral" else {}
    read += [spelling(each) | sized for spelling in spellings for each in scaled]
    read += [{"rope_parameters": each, length: 8} | whole | sized for each in (yarn, llama3, plain)]
    refused = [spelling(each) for spelling in spellings for each in unlike]
    refused += [{"rope_parameters": {"full_attention": plain | {"rope_theta": 100.0}}}, {"rope_parameters": 1},
                {"rope_parameters": plain, "rope_theta": None}, {"rope_parameters": plain | {"rope_theta": None}},
                {"rope_parameters": ABSENT, "rope_theta": "500", **whole}, {"rope_parameters": yarn, length: None}]  # fmt: skip
    partial = [{"rope_parameters": plain | {"rope_theta": 500.0, "partial_rotary_factor": 0.5}},
               {"rope_parameters": ABSENT, "rope_theta": 500.0, "partial_rotary_factor": 0.5},
               {"rope_parameters": yarn | {"partial_rotary_factor": 0.5}, "rope_theta": 500.0},
               {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "partial_rotary_factor": 0.75}]
    if kind in PARTIAL:
        read += [*partial, {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}]
        refused += [{"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": value}}
                    for value in (0.0, 0.1, 1.5, None)]  # fmt: skip
    else:
        refused += partial
    return read, refused


def keys_of(kind: str, config: dict) -> set:
    """Returns all keys that config.json of this architecture may have, in any version of transformers."""
    if kind == "deepseek":
        return set(config) | {"num_key_value_heads", "attention_bias", "norm_topk_prob", "moe_layer_freq", "scoring_func"}
    known = transformers.AutoConfig.for_model(kind)
    return {field.name for field in dataclasses.fields(known)} | set(known.attribute_map) | set(config)


def changes(kind: str, config: dict) -> list:
    keys = keys_of(kind, config)
    everywhere = set(IGNORED) | set(REFUSED)
    read = [{key: value} for key, values in IGNORED.items() for value in values]
    read += [change for change in READ if next(iter(change)) in keys]
    read += READ_OF_CLASS.get(kind, [])
    refused = [{key: value} for key, values in (REFUSED | OF_CLASS[kind]).items() for value in values]
    refused += REFUSED_OF_CLASS.get(kind, [])
    rope_read, rope_refused = rope_changes(kind)
    read, refused = read + rope_read, refused + rope_refused
    read = [change for change in read if change not in REFUSED_OF_CLASS.get(kind, [])]
    covered = everywhere.union(*read, *refused)
    if missing := keys - covered:
        raise RuntimeError(f"no change of {sorted(missing)} of {kind}")
    refused = [change for change in refused if change not in read]
    base = lambda change: all(config.get(key, ABSENT) == value for key, value in change.items())
    return [(change, True) for change in read] + [(change, False) for change in refused if not base(change)]


def changed(config: dict, change: dict) -> dict:
    return {key: value for key, value in (config | change).items() if value != ABSENT}


def fixture(kind: str, folder: Path, loss_of) -> dict:
    """Returns the outcomes of all changes for one architecture. loss_of(folder) must return the mean loss of a model in
    transformers, and raise if the model cannot be loaded completely."""
    config = json.loads((folder / "config.json").read_text())
    cases, problems = [], []
    with tempfile.TemporaryDirectory(prefix="lyceum-keys-") as temporary:
        other = Path(temporary) / "model"
        shutil.copytree(folder, other)

        def outcome(change):
            (other / "config.json").write_text(json.dumps(changed(config, change)))
            try:
                return round(loss_of(other), 7)
            except Exception as error:
                return str(error).strip().split("\n")[0][:120]

        base = outcome({})
        for change, read in changes(kind, config):
            case = {"change": change}
            if read:
                case["loss"] = outcome(change)
                if isinstance(case["loss"], str):
                    problems.append(f"{kind}: {change}: {case['loss']}")
            else:
                case["refused"] = True
            cases.append(case)
    for problem in problems:
        print(problem)
    return {"loss": base, "cases": cases}
