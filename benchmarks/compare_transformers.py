#!/usr/bin/env python3
"""Compares `lyceum convert import-hf` and `export-hf` with Hugging Face's transformers, which loads and evaluates the models
on the CPU.

    .venv/bin/python benchmarks/compare_transformers.py [--cases REGEX] [--seed N] [--program PATH] [--json OUT]
    .venv/bin/python benchmarks/compare_transformers.py --write-fixtures tests/end_to_end/hf
    .venv/bin/python benchmarks/compare_transformers.py --write-changes tests/end_to_end/hf

An imported case is a tiny model of transformers with random weights, biases, norms and router biases. Lyceum imports it, and
the losses of all tokens must agree. Lyceum then exports it again, and every tensor must have the same bits as before. An
exported case is a model that Lyceum has trained for some steps; transformers loads the export, and the losses must agree. The
tokenizer of an export must give the same tokens in transformers as in Lyceum, and decode to the same text. The loss of modules
of multi-token prediction in training must be that of exported modules in transformers.

--write-fixtures writes the models that tests/end_to_end/hf_test.sh and tests/convert/hugging_face/architecture_test.cpp import
without transformers. --write-changes writes only the changes of config.json that the latter tries, and positions.json. Needs
`scripts/install-deps.sh --torch` and a built program.
"""
import argparse
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from compare_pytorch import ROOT, conclude, read_tokens, relative, write_tokens
from transformers_keys import fixture
from transformers_positions import write_positions

# Largest relative difference allowed between the mean losses of two programs in f32. Typical is 1e-7.
LIMIT = 2e-5
VOCAB, SEQ_LEN, SAMPLES = 32, 32, 8

SIZES = {"vocab_size": VOCAB, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "max_position_embeddings": SEQ_LEN, "rope_theta": 500.0, "rms_norm_eps": 1e-4,
         "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": 1}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
DEEPSEEK = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_shared_experts": 2,
            "first_k_dense_replace": 1, "intermediate_size": 20}
LINEAR = {"type": "linear", "factor": 2.5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2.0}
MSCALE = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 1.0,
          "original_max_position_embeddings": 16, "truncate": False}
SIGMOID = DEEPSEEK | {"norm_topk_prob": True, "n_group": 2, "topk_group": 1}
LATENT = {"q_lora_rank": 5, "kv_lora_rank": 6, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 3,
          "num_key_value_heads": 2}
GROUPED = DEEPSEEK | LATENT | {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5}
GPT_OSS = {"intermediate_size": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 7,
           "swiglu_limit": 0.5}  # fmt: skip
MINIMAX = {"intermediate_size": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                             "model.embed_tokens", "lm_head"]}  # fmt: skip
# name: (model_type, settings of its config.json in addition to SIZES). The first case of an architecture is also a
# fixture.
IMPORTED = {
    "llama": ("llama", {"intermediate_size": 12, "head_dim": 6}),
    "llama, tied": ("llama", {"intermediate_size": 12, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", {"intermediate_size": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral, BF16": ("mixtral", {"intermediate_size": 8, "num_local_experts": 4, "dtype": "bfloat16"}),
    "deepseek": ("deepseek", DEEPSEEK),
    "llama, biases": ("llama", {"intermediate_size": 12, "attention_bias": True}),
    "qwen2": ("qwen2", {"intermediate_size": 12}),
    "qwen3": ("qwen3", {"intermediate_size": 12, "head_dim": 6, "attention_bias": True}),
    "qwen2_moe": ("qwen2_moe", EXPERTS | {"intermediate_size": 10, "shared_expert_intermediate_size": 16,
                                          "mlp_only_layers": [0]}),
    "qwen2_moe, no biases": ("qwen2_moe", EXPERTS | {"shared_expert_intermediate_size": 16, "norm_topk_prob": True,
                                                     "qkv_bias": False, "head_dim": 6}),
    "qwen3_moe": ("qwen3_moe", EXPERTS | {"intermediate_size": 10, "head_dim": 6, "norm_topk_prob": True,
                                          "mlp_only_layers": [0]}),
    "olmoe": ("olmoe", {"intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 3, "pad_token_id": None}),
    # With the partial rotary positions and the scale of the gates that the published model has.
    "glm4_moe": ("glm4_moe", SIGMOID | {"partial_rotary_factor": 0.5, "use_qk_norm": True, "attention_bias": True,
                                      "num_mtp_layers": 0, "routed_scaling_factor": 2.5}),
    "dots1": ("dots1", SIGMOID | {"sliding_window": None, "norm_topk_prob": False, "n_group": 1, "topk_group": 1,
                                  "routed_scaling_factor": 2.5}),
    "glm4_moe, whole heads": ("glm4_moe", SIGMOID | {"partial_rotary_factor": 1.0, "num_mtp_layers": 0}),
    "glm4_moe, odd dimensions": ("glm4_moe", SIGMOID | {"partial_rotary_factor": 0.5, "head_dim": 6, "num_mtp_layers": 0}),
    "glm4_moe, yarn": ("glm4_moe", SIGMOID | {"rope_scaling": YARN, "partial_rotary_factor": 0.5, "head_dim": 16,
                                            "num_mtp_layers": 0}),
    "llama, linear": ("llama", {"intermediate_size": 12, "head_dim": 16, "rope_scaling": LINEAR}),
    "llama, llama3": ("llama", {"intermediate_size": 12, "head_dim": 16, "rope_scaling": LLAMA3}),
    "llama, yarn": ("llama", {"intermediate_size": 12, "head_dim": 16, "rope_scaling": YARN}),
    "qwen3, yarn of DeepSeek": ("qwen3", {"intermediate_size": 12, "head_dim": 16, "rope_scaling": MSCALE}),
    "qwen2, yarn": ("qwen2", {"intermediate_size": 12, "head_dim": 16, "rope_scaling": YARN}),
    "mixtral, linear": ("mixtral", {"intermediate_size": 8, "num_local_experts": 4, "head_dim": 16, "rope_scaling": LINEAR}),
    "qwen2_moe, llama3": ("qwen2_moe", EXPERTS | {"shared_expert_intermediate_size": 16, "head_dim": 16,
                                                  "rope_scaling": LLAMA3}),
    "qwen3_moe, yarn": ("qwen3_moe", EXPERTS | {"head_dim": 16, "rope_scaling": YARN}),
    "olmoe, llama3": ("olmoe", {"intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 3, "pad_token_id": None,
                                "rope_scaling": LLAMA3}),
    "dots1, yarn": ("dots1", SIGMOID | {"sliding_window": None, "head_dim": 16, "rope_scaling": YARN}),
    "deepseek, linear": ("deepseek", DEEPSEEK | {"rope_scaling": LINEAR}),
    "mixtral, window": ("mixtral", {"intermediate_size": 8, "num_local_experts": 4, "sliding_window": 7}),
    "qwen2, windows": ("qwen2", {"intermediate_size": 12} | WINDOWS | {"max_window_layers": 1}),
    "qwen3, windows": ("qwen3", {"intermediate_size": 12, "num_hidden_layers": 4} | WINDOWS
                       | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}),
    "qwen2_moe, windows": ("qwen2_moe", EXPERTS | {"shared_expert_intermediate_size": 16, "num_hidden_layers": 3} | WINDOWS),
    "qwen3_moe, window": ("qwen3_moe", EXPERTS | {"head_dim": 6} | WINDOWS),
    "dots1, windows": ("dots1", SIGMOID | {"sliding_window": 9, "max_window_layers": 1, "n_group": 1, "topk_group": 1}),
    "deepseek_v2": ("deepseek_v2", GROUPED | {"routed_scaling_factor": 1.5}),
    "deepseek_v3": ("deepseek_v3", SIGMOID | LATENT | {"routed_scaling_factor": 2.5}),
    # As DeepSeek-V2-Lite: queries without a latent, no groups, scaled positions
    "deepseek_v2, greedy": ("deepseek_v2", DEEPSEEK | LATENT | {"q_lora_rank": None, "rope_scaling": MSCALE}),
    "deepseek_v2, single experts": ("deepseek_v2", GROUPED | {"n_group": 4, "topk_group": 3, "n_routed_experts": 4}),
    "deepseek_v2, BF16": ("deepseek_v2", GROUPED | {"dtype": "bfloat16"}),
    "deepseek_v2, linear": ("deepseek_v2", GROUPED | {"rope_scaling": LINEAR}),
    "deepseek_v3, no latent of queries": ("deepseek_v3", SIGMOID | LATENT | {"q_lora_rank": None, "n_group": 1, "topk_group": 1}),
    "deepseek_v3, halves": ("deepseek_v3", SIGMOID | LATENT | {"rope_interleave": False, "norm_topk_prob": False}),
    "deepseek_v3, yarn": ("deepseek_v3", SIGMOID | LATENT | {"rope_scaling": MSCALE | {"mscale": 1.0}, "qk_rope_head_dim": 16}),
    "deepseek_v3, llama3": ("deepseek_v3", SIGMOID | LATENT | {"rope_scaling": LLAMA3, "qk_rope_head_dim": 16}),
    "llama, biases of FFNs": ("llama", {"intermediate_size": 12, "mlp_bias": True}),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "gpt_oss, no biases": ("gpt_oss", GPT_OSS | {"attention_bias": False, "swiglu_limit": 7.0}),
    "gpt_oss, all windows": ("gpt_oss", GPT_OSS | {"layer_types": ["sliding_attention"] * 2, "swiglu_alpha": 1.1}),
    "gpt_oss, three layers, BF16": ("gpt_oss", GPT_OSS | {"num_hidden_layers": 3, "dtype": "bfloat16"}),
    "gpt_oss, yarn": ("gpt_oss", GPT_OSS | {"head_dim": 16, "rope_parameters": YARN | {"truncate": False, "rope_theta": 500.0}}),
    "minimax_m2": ("minimax_m2", MINIMAX | {"partial_rotary_factor": 0.5}),
    "minimax_m2, width": ("minimax_m2", MINIMAX | {"rotary_dim": 4}),
    "minimax_m2, whole heads": ("minimax_m2", MINIMAX | {"num_key_value_heads": 2}),
    "minimax_m2, yarn": ("minimax_m2", MINIMAX | {"head_dim": 16, "rope_scaling": YARN, "partial_rotary_factor": 0.5}),
    "gpt_oss, MXFP4": ("gpt_oss", GPT_OSS | {"hidden_size": 64, "intermediate_size": 32, "dtype": "bfloat16",
                                             "quantization_config": MXFP4}),
    "deepseek, normalised": ("deepseek", DEEPSEEK | {"norm_topk_prob": True, "n_shared_experts": None}),
}

TRAINED = {"run.steps": 4, "run.seed": 5, "run.device": "cpu", "batch.global": 4, "batch.seq_len": SEQ_LEN,
           "model.layers": 2, "model.hidden": 16, "model.heads": 4, "model.kv_heads": 2, "model.vocab": VOCAB,
           "model.ffn_hidden": 24, "model.init_std": 0.3, "optim.lr": 0.05}  # fmt: skip
SPARSE = {"moe.experts": 6, "moe.top_k": 2, "moe.expert_hidden": 12}
MLA = {"model.attention": "mla", "model.kv_heads": 0, "model.rope_layout": "interleaved", "latent_attention.key_value_rank": 8,
       "latent_attention.nope_dim": 6, "latent_attention.rope_dim": 4, "latent_attention.value_dim": 5}
# name: (keys of the trained model, architecture to export to or None for Lyceum's choice, expected architecture).
EXPORTED = {
    "dense": ({}, None, "llama"),
    "renormalized": (SPARSE | {"moe.gates": "renormalized"}, None, "mixtral"),
    "detached, noisy": (SPARSE | {"moe.gates": "detached", "moe.router": "noisy"}, None, "mixtral"),
    "widths 4 to 20": (SPARSE | {"moe.gates": "renormalized", "moe.expert_sizes": "4,8,12,16,20,20"}, None, "mixtral"),
    "dense, biases": ({"model.qkv_bias": "true"}, None, "qwen2"),
    "dense, norms of heads": ({"model.qk_norm": "head", "model.qkv_bias": "true"}, None, "qwen3"),
    "raw": (SPARSE, None, "qwen2_moe"),
    "raw, shared, widths": (SPARSE | {"moe.shared_experts": 2, "moe.expert_sizes": "4,8,12,16,20,20"}, None,
                            "qwen2_moe"),
    "norms of heads": (SPARSE | {"model.qk_norm": "head", "model.qkv_bias": "true"}, None, "qwen3_moe"),
    "norms of all heads": (SPARSE | {"model.qk_norm": "all"}, None, "olmoe"),
    "window": (SPARSE | {"moe.gates": "renormalized", "model.window": 6}, None, "mixtral"),
    "alternating windows": (SPARSE | {"model.window": 6, "model.window_layers": "1,0"}, None, "qwen2_moe"),
    "windows, norms of heads": ({"model.qk_norm": "head", "model.window": 6, "model.window_layers": "0,1"}, None, "qwen3"),
    "sigmoid": (SPARSE | {"moe.router": "sigmoid", "moe.gates": "renormalized", "balance.bias_rate": 0.05,
                          "moe.shared_experts": 1, "moe.group_limit": 2, "balance.device_groups": 3}, None, "glm4_moe"),
    "sigmoid, scaled": (SPARSE | {"moe.router": "sigmoid", "moe.gates": "renormalized", "moe.shared_experts": 1,
                                  "moe.routed_scale": 2.5, "model.rotary_fraction": 0.5, "model.rope_scaling": "yarn",
                                  "model.rope_factor": 4, "model.rope_original_length": 16}, None, "glm4_moe"),
    "dense, llama3": ({"model.rope_scaling": "llama3", "model.rope_factor": 8, "model.rope_original_length": 16,
                       "model.head_dim": 16}, None, "llama"),
    "sigmoid, raw, no shared": (SPARSE | {"moe.router": "sigmoid", "moe.gates": "raw", "balance.bias_rate": 0.05,
                                          "model.first_dense_layers": 1}, None, "glm4_moe"),
    "latents, sigmoid": (SPARSE | MLA | {"moe.router": "sigmoid", "moe.gates": "renormalized", "moe.shared_experts": 1,
                                         "latent_attention.query_rank": 9, "moe.group_limit": 2, "balance.device_groups": 3,
                                         "model.rope_layout": "half"}, None, "deepseek_v3"),
    "latents, softmax": (SPARSE | MLA | {"model.rope_scaling": "yarn", "model.rope_factor": 4, "model.rope_mscale_all_dim": 1,
                                         "model.rope_original_length": 16, "moe.group_limit": 2, "balance.device_groups": 3,
                                         "moe.group_score": "maximum", "moe.shared_experts": 2}, None, "deepseek_v2"),
    "shared, first dense": (SPARSE | {"moe.shared_experts": 2, "model.first_dense_layers": 1}, None, "qwen2_moe"),
    "gpt_oss": (SPARSE | {"model.ffn": "clamped_swiglu", "model.swiglu_limit": 0.5, "model.ffn_bias": "true",
                          "model.qkv_bias": "true", "model.o_bias": "true", "model.sinks": "true", "model.window": 6,
                          "model.window_layers": "1,0", "moe.gates": "renormalized", "moe.router_bias": "true"}, None, "gpt_oss"),
    "gpt_oss without windows": (SPARSE | {"model.ffn": "clamped_swiglu", "model.ffn_bias": "true", "model.sinks": "true",
                                          "moe.gates": "renormalized", "moe.router_bias": "true"}, None, "gpt_oss"),
    "biases of FFNs": ({"model.ffn_bias": "true"}, None, "llama"),
    "the same by name": (SPARSE | {"moe.shared_experts": 2, "model.first_dense_layers": 1}, "deepseek", "deepseek"),
}


class SwiGlu(nn.Module):
    def __init__(self, hidden: int, width: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DeepseekMoe(nn.Module):
    """DeepSeekMoE [eq. 9-11], with the tensor names of DeepseekForCausalLM, which transformers lacks."""

    def __init__(self, config):
        super().__init__()
        width, shared = config.moe_intermediate_size, config.n_shared_experts or 0
        self.gate = nn.Linear(config.hidden_size, config.n_routed_experts, bias=False)
        self.experts = nn.ModuleList(SwiGlu(config.hidden_size, width) for _ in range(config.n_routed_experts))
        self.shared_experts = SwiGlu(config.hidden_size, shared * width) if shared else None
        self.top_k = config.num_experts_per_tok
        self.normalised = config.norm_topk_prob and self.top_k > 1  # like MoEGate of DeepSeek

    def forward(self, x):
        gates, chosen = self.gate(x).softmax(-1).topk(self.top_k)
        if self.normalised:
            gates = gates / gates.sum(-1, keepdim=True)
        y = self.shared_experts(x) if self.shared_experts else torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            y = y + (gates * (chosen == index)).sum(-1, keepdim=True) * expert(x)
        return y


def deepseek(settings: dict) -> nn.Module:
    """Returns a Llama model whose FFNs after the first first_k_dense_replace layers are DeepseekMoe."""
    more = {"norm_topk_prob": False} | {key: settings.get(key) for key in DEEPSEEK}
    known = {key: value for key, value in settings.items() if key not in ("model_type", "architectures", "dtype")}
    config = transformers.LlamaConfig(**known | more | {"norm_topk_prob": settings.get("norm_topk_prob", False)})
    model = transformers.LlamaForCausalLM(config)
    for layer in model.model.layers[config.first_k_dense_replace:]:
        layer.mlp = DeepseekMoe(config)
    return model


def new_model(kind: str, settings: dict, seed: int) -> nn.Module:
    """Returns a model of transformers with random weights. Norms and biases differ from their usual initial values."""
    settings = copy.deepcopy(settings)  # transformers adds keys to dictionaries of rotary positions
    if kind == "deepseek":
        model = deepseek(SIZES | settings)
    else:
        known = {key: value for key, value in settings.items() if key not in ("dtype", "quantization_config")}
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **SIZES | known))
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if "inv_freq" in name:
                continue
            noise = 0.3 * torch.randn(value.shape, generator=random)
            value.copy_(1 + noise if "norm" in name else noise)
    return model.to(getattr(torch, settings.get("dtype", "float32"))).eval()


def quantize(folder: Path, settings: dict) -> None:
    """Replaces the matrices of experts of a saved gpt_oss by random ones in MXFP4."""
    found, random = tensors(folder), torch.Generator().manual_seed(3)
    for name in [name for name in found if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, cols, rows = found.pop(name).shape
        shape = (experts, rows, cols // 32)
        found[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), generator=random, dtype=torch.uint8)
        found[f"{name}_scales"] = torch.randint(118, 124, shape, generator=random, dtype=torch.uint8)
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings["quantization_config"]}))


def save(model: nn.Module, kind: str, settings: dict, folder: Path) -> None:
    if kind != "deepseek":
        model.save_pretrained(folder)
        if "quantization_config" in settings:
            quantize(folder, settings)
        return
    folder.mkdir(parents=True)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "model.safetensors")
    named = {"architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(named | SIZES | settings, indent=2) + "\n")


def load(folder: Path) -> nn.Module:
    """Loads a saved model. Raises unless its files have exactly the tensors of the model."""
    settings = json.loads((folder / "config.json").read_text())
    if settings["model_type"] != "deepseek":
        quantized = {"quantization_config": transformers.Mxfp4Config(dequantize=True)} if settings.get("quantization_config") else {}
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                                                        **quantized)  # fmt: skip
        wrong = {kind: sorted(map(str, names)) for kind, names in info.items() if names}
        if wrong:
            raise RuntimeError(f"{folder}: {wrong}")
        return model.eval()
    model = deepseek(settings)
    missing = model.load_state_dict(tensors(folder), strict=False)
    if missing.unexpected_keys or set(missing.missing_keys) - {"lm_head.weight"}:
        raise RuntimeError(f"{folder}: {missing}")
    return model.float().eval()


def tensors(folder: Path) -> dict:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def differing(a: Path, b: Path) -> list:
    """Returns the names of the tensors that differ in bits, type or shape between two folders, or are missing in one."""
    one, other = tensors(a), tensors(b)
    return [name for name in one.keys() | other.keys()
            if name not in one or name not in other or one[name].dtype != other[name].dtype
            or one[name].shape != other[name].shape
            or not torch.equal(one[name].view(torch.uint8), other[name].view(torch.uint8))]  # fmt: skip


def dequantized(source: Path, back: Path) -> list:
    """Returns the names of the tensors of which transformers reads other values from the export than from a quantised model."""
    ours = load(back).state_dict()
    return [name for name, value in load(source).state_dict().items() if not torch.equal(ours[name], value)]


@torch.no_grad()
def losses(model: nn.Module, tokens: np.ndarray) -> np.ndarray:
    """Returns the loss of every token, each predicted from those before it in its sample."""
    count = (len(tokens) - 1) // SEQ_LEN * SEQ_LEN
    rows = torch.tensor(tokens[: count + 1].astype(np.int64))
    logits = model.float()(rows[:-1].view(-1, SEQ_LEN)).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), rows[1:], reduction="none").numpy()


class Lyceum:
    def __init__(self, program: str, folder: Path):
        self.program, self.folder = program, folder
        self.tokens = write_tokens(folder / "valid", SAMPLES * SEQ_LEN + 1, VOCAB)

    def run(self, *words) -> str:
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode} of {words}")
        return done.stdout

    def losses(self, run: Path) -> np.ndarray:
        log = self.folder / "tokens.h5"
        self.run("eval", f"--checkpoint={run}", f"--data.valid={self.folder / 'valid'}", f"--token-log={log}",
                 f"--batch.seq_len={SEQ_LEN}", "--batch.global=4", "--run.threads=1", "--run.device=cpu")  # fmt: skip
        with h5py.File(log) as file:
            return file["loss"][...]


def compare(ours: np.ndarray, theirs: np.ndarray) -> dict:
    return {"loss": relative(float(ours.astype(np.float64).mean()), float(theirs.astype(np.float64).mean())),
            "token": float(np.abs(ours - theirs).max())}


def imported(case: tuple, lyceum: Lyceum, seed: int) -> dict:
    kind, settings = case
    source, run, back = (lyceum.folder / name for name in ("source", "run", "back"))
    save(new_model(kind, settings, seed), kind, settings, source)
    lyceum.run("convert", "import-hf", source, "--out", run)
    result = compare(lyceum.losses(run), losses(load(source), lyceum.tokens))
    dtype = "BF16" if settings.get("dtype") == "bfloat16" else "F32"
    lyceum.run("convert", "export-hf", run, "--out", back, f"--architecture={kind}", f"--dtype={dtype}")
    result["again"] = compare(lyceum.losses(run), losses(load(back), lyceum.tokens))["loss"]
    result["differing"] = dequantized(source, back) if "quantization_config" in settings else differing(source, back)
    return result | {"host": kind}


def exported(case: tuple, lyceum: Lyceum) -> dict:
    keys, architecture, host = case
    run, out = lyceum.folder / "run", lyceum.folder / "out"
    write_tokens(lyceum.folder / "train", 40 * SEQ_LEN, VOCAB, seed=3)
    settings = TRAINED | keys | {"run.dir": run, "data.train": lyceum.folder / "train"}
    lyceum.run("train", *(f"--{key}={value}" for key, value in settings.items()))
    lyceum.run("convert", "export-hf", run, "--out", out, "--shard-size=20KB",
               *([f"--architecture={architecture}"] if architecture else []))  # fmt: skip
    chosen = json.loads((out / "config.json").read_text())["model_type"]
    if chosen != host:
        raise RuntimeError(f"it is exported to {chosen}, not to {host}")
    return compare(lyceum.losses(run), losses(load(out), lyceum.tokens)) | {"host": chosen, "differing": []}


@torch.no_grad()
def modules_case(lyceum: Lyceum) -> dict:
    """Compares the loss of modules of multi-token prediction: a run is exported and then makes another step, whose losses
    transformers computes from the export and the samples of that step."""
    from transformers.modeling_layers import MtpModel

    depth, weight, batch, steps = 2, 0.5, TRAINED["batch.global"], TRAINED["run.steps"]
    keys = TRAINED | SPARSE | {
        "moe.router": "sigmoid", "moe.gates": "renormalized", "moe.shared_experts": 1, "balance.bias_rate": 0.05,
        "moe.routed_scale": 2.5, "model.rotary_fraction": 0.5, "model.first_dense_layers": 1, "mtp.depth": depth,
        "mtp.weight": weight, "run.dir": "run", "data.train": "train", "data.order": "sequential",
    }  # fmt: skip
    tokens = write_tokens(lyceum.folder / "train", 40 * SEQ_LEN, VOCAB, seed=3)
    train = lambda changes: lyceum.run("train", *(f"--{key}={value}" for key, value in (keys | changes).items()))
    train({})
    lyceum.run("convert", "export-hf", "run", "--out", "out")
    train({"run.steps": steps + 1})
    ours = [json.loads(line) for line in (lyceum.folder / "run/metrics.jsonl").read_text().splitlines()][-1]

    # transformers knows the layers of modules only of the published models.
    layers = range(keys["model.layers"], keys["model.layers"] + depth)
    kind = transformers.Glm4MoeForCausalLM
    kind._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{layer}\..*" for layer in layers]
    model = load(lyceum.folder / "out")
    modules = MtpModel.from_pretrained(model).float().eval()
    rows = torch.tensor(tokens[steps * batch * SEQ_LEN :][: batch * SEQ_LEN + 1].astype(np.int64))
    inputs, targets = rows[:-1].view(batch, -1), rows[1:].view(batch, -1)
    result = model(inputs, output_hidden_states=True)
    loss = nn.functional.cross_entropy(result.logits.flatten(0, 1), targets.flatten())
    h, total = result.hidden_states[-1], 0
    positions = torch.arange(SEQ_LEN)[None].expand_as(inputs)
    for k in range(1, depth + 1):
        ahead = nn.functional.pad(inputs[:, k:], (0, k))
        h = modules.forward_layer(k - 1, h, positions, None, input_ids=ahead)
        logits = modules.shared_head(h[:, :-k])
        total += nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, k:].flatten(), reduction="sum") / targets.numel()
    return {"loss": relative(ours["loss"], loss.item()), "mtp_loss": relative(ours["mtp_loss"], (weight / depth * total).item())}


TEXTS = ("", " ", "  a\n\n\n b\t\tc ", "int main() {\n\treturn 0;  // na\u00efve \U0001F600 \u4f60\u597d\n}", "\n" * 19 + "end",
         "-" * 41 + " " * 67 + "=" * 13, "\u00a0\u200b\r\n x", "caf\u0065\u0301 \uFB01 ABC\u0130", "a" * 3000)  # fmt: skip


def tokenizer_case(lyceum: Lyceum) -> dict:
    """Compares the tokenizer of an export, as loaded by each class of transformers, with SentencePiece itself."""
    sources = [ROOT / name for name in ("docs", "apps", "lib/core")]
    lyceum.run("tokenize", *(f"--input={path}" for path in sources), "--vocab=1024", "--model=tokenizer.model",
               "--output=text", "--sample-mb=1", "--threads=2")  # fmt: skip
    keys = TRAINED | {"model.vocab": 1024, "run.steps": 1, "run.dir": "run", "data.train": "text",
                      "data.tokenizer": "tokenizer.model"}  # fmt: skip
    lyceum.run("train", *(f"--{key}={value}" for key, value in keys.items()))
    out = lyceum.folder / "out"
    lyceum.run("convert", "export-hf", "run", "--out", out)
    texts = list(TEXTS)
    for path in sources:
        # Without the character that transformers replaces by a space, and without a control token.
        texts += [file.read_text().replace("\u2581", "").replace("<|endoftext|>", "")
                  for file in sorted(path.rglob("*")) if file.suffix in (".md", ".cpp", ".h")]
    known = {"fast": transformers.AutoTokenizer.from_pretrained(out),
             "slow": transformers.AutoTokenizer.from_pretrained(out, use_fast=False),
             "file": transformers.PreTrainedTokenizerFast(tokenizer_file=str(out / "tokenizer.json"))}  # fmt: skip
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
    wrong = []
    for index, text in enumerate(texts):
        wanted = pieces.encode(text)
        for name, tokenizer in known.items():
            ids = tokenizer(text, add_special_tokens=True)["input_ids"]
            if ids != wanted or tokenizer.decode(ids) != text:
                wrong.append(f"{name} {type(tokenizer).__name__}: text {index}")
    classes = {name: type(tokenizer).__name__ for name, tokenizer in known.items()}
    return {"texts": len(texts), "classes": classes, "wrong": wrong}


def write_fixtures(folder: Path, seed: int) -> None:
    """Writes one folder per architecture: the model as saved by transformers, and its losses in losses.json."""
    for kind, settings in dict(reversed(IMPORTED.values())).items():  # the first case of each architecture
        shutil.rmtree(folder / kind, ignore_errors=True)
        save(new_model(kind, settings, seed), kind, settings, folder / kind)
        tokens = write_tokens(folder / "valid", 2 * SEQ_LEN + 1, VOCAB)
        contents = {"transformers": transformers.__version__, "loss": [round(float(x), 7) for x in losses(load(folder / kind), tokens)]}
        (folder / kind / "losses.json").write_text(json.dumps(contents) + "\n")


def write_changes(folder: Path) -> None:
    """Writes keys.json: the losses of the fixtures after changes of config.json, see transformers_keys.py."""
    tokens = read_tokens(folder / "valid", 2 * SEQ_LEN + 1)
    loss_of = lambda model: float(losses(load(model), tokens).astype(np.float64).mean())
    models = {kind: fixture(kind, folder / kind, loss_of) for kind, _ in dict(IMPORTED.values()).items()}
    lines = []
    for kind, model in models.items():
        cases = ",\n".join(json.dumps(case) for case in model["cases"])
        lines.append(f'"{kind}": {{"loss": {model["loss"]}, "cases": [\n{cases}\n]}}')
    text = ",\n".join(lines)
    (folder / "keys.json").write_text(f'{{"transformers": "{transformers.__version__}", "models": {{\n{text}\n}}}}\n')


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="only cases whose names begin with a match")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--program", default=str(ROOT / "build/cuda/apps/lyceum"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write-fixtures", type=Path, metavar="FOLDER")
    parser.add_argument("--write-changes", type=Path, metavar="FOLDER", help="keys.json and positions.json of the fixtures that are there")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.write_fixtures:
        write_fixtures(arguments.write_fixtures, arguments.seed)
    if folder := arguments.write_fixtures or arguments.write_changes:
        write_changes(folder)
        write_positions(folder)
        return 0
    program = str(Path(arguments.program).resolve())
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
    print(f"{version}, transformers {transformers.__version__}, PyTorch {torch.__version__}, seed {arguments.seed}")
    print(f"relative differences of the mean loss, allowed {LIMIT:.0e}, and the largest of a token's loss\n")
    cases = [(f"import {name}", lambda lyceum, case=case: imported(case, lyceum, arguments.seed))
             for name, case in IMPORTED.items()]
    cases += [(f"export {name}", lambda lyceum, case=case: exported(case, lyceum)) for name, case in EXPORTED.items()]
    cases = [(name, call) for name, call in cases if re.match(arguments.cases, name)]
    print(f"{'case':<42}{'architecture':<14}{'loss':>10}{'token':>10}{'exported':>10}  tensors")
    results = {}
    for name, call in cases:
        with tempfile.TemporaryDirectory(prefix="lyceum-transformers-") as folder:
            try:
                result = call(Lyceum(program, Path(folder)))
            except Exception as error:  # of Lyceum, or one of the many types that transformers raises
                print(f"{name:<42}FAILED: {error}")
                results[name] = {"equal": False, "error": str(error)}
                continue
        bits = "" if "again" not in result else "same bits" if not result["differing"] else f"differ: {result['differing']}"
        equal = max(result["loss"], result.get("again", 0)) <= LIMIT and not result["differing"]
        again = f"{result['again']:10.1e}" if "again" in result else " " * 10
        print(f"{name:<42}{result['host']:<14}{result['loss']:10.1e}{result['token']:10.1e}{again}  {bits}"
              f"{'' if equal else '  FAILED'}", flush=True)  # fmt: skip
        results[name] = result | {"equal": equal}
    if re.match(arguments.cases, "modules"):
        with tempfile.TemporaryDirectory(prefix="lyceum-transformers-") as folder:
            result = modules_case(Lyceum(program, Path(folder)))
        equal = max(result.values()) <= LIMIT
        print(f"modules: loss {result['loss']:.1e}, mtp_loss {result['mtp_loss']:.1e}{'' if equal else '  FAILED'}", flush=True)
        results["modules"] = result | {"equal": equal}
    if re.match(arguments.cases, "tokenizer"):
        with tempfile.TemporaryDirectory(prefix="lyceum-transformers-") as folder:
            result = tokenizer_case(Lyceum(program, Path(folder)))
        print(f"tokenizer: {result['texts']} texts by {result['classes']}: {result['wrong'][:5] or 'same tokens and text'}")
        results["tokenizer"] = result | {"equal": not result["wrong"]}
    head = {"lyceum": version, "transformers": transformers.__version__, "torch": torch.__version__, "limit": LIMIT}
    return conclude(results, head, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
