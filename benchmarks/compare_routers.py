#!/usr/bin/env python3
"""Compares Lyceum with PyTorch in float64 (reference_model.py) on the CPU: every router, gate, loss and baseline, every kind
of attention, sub-dimensions, modules of multi-token prediction, and Muon, also on meshes of up to 8 ranks.

    .venv/bin/python benchmarks/compare_routers.py [--cases REGEX] [--seed N] [--program PATH] [--json OUT]

Both sides train tiny models for 16 steps from the weights of one checkpoint. The losses and the gradient norm of every step,
the validation loss, the final weights and the counts of the routers' choices must agree. Needs
`scripts/install-deps.sh --torch` and a built program.
"""
import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import torch
from torch import Tensor

from compare_pytorch import ROOT, conclude, relative, write_tokens
from reference_model import Router, Training, Weights

# Largest relative difference allowed between f32 and float64. Typical are 1e-6 and no choice that differs.
LIMIT = 1e-5
COLUMNS = ("loss", "router losses", "gradient norm", "max logit", "validation", "weights")

# The configuration of both sides. A step consists of two passes of two sequences, so the cases distinguish counts over
# a sequence, a pass and a batch. AdamW's eps is larger than its usual 1e-8: otherwise, in some cases, one of tens of
# thousands of weights has a gradient that is pure rounding error, and would move by the whole learning rate.
BASE = {
    "run.steps": 16, "run.seed": 7,
    "batch.global": 4, "batch.micro": 2, "batch.seq_len": 32,
    "model.layers": 2, "model.hidden": 32, "model.heads": 4, "model.kv_heads": 2, "model.head_dim": 0,
    "model.ffn_hidden": 48, "model.vocab": 64, "model.norm_eps": 1e-6, "model.init_std": 0.2,
    "model.tie_embeddings": 0, "model.first_dense_layers": 0, "model.ffn": "swiglu", "model.attention": "mha",
    "model.attention_weights": "softmax", "model.qkv_bias": 0, "model.qk_norm": "none",
    "model.rope_base": 10000, "model.rope_scaling": "none", "model.rope_factor": 1, "model.rope_original_length": 0,
    "model.rope_low_freq_factor": 1, "model.rope_high_freq_factor": 4, "model.rope_beta_fast": 32, "model.rope_beta_slow": 1,
    "model.rope_truncate": 1, "model.rope_attention_factor": 0, "model.rope_mscale_all_dim": 0, "model.rotary_fraction": 1, "model.rope_layout": "half",
    "model.window": 0, "model.window_layers": "", "model.sinks": 0, "model.z_loss": 0, "model.consistency": 0,
    "model.dropout": 0, "model.dropout_kind": "plain", "model.dropout_block": 7, "model.dropout_regularizer": 1e-5, "model.dropout_weight_regularizer": 1e-6,
    "model.swiglu_alpha": 1.702, "model.swiglu_limit": 7, "model.ffn_bias": 0, "model.o_bias": 0,
    "latent_attention.query_rank": 0, "latent_attention.key_value_rank": 0, "latent_attention.nope_dim": 0,
    "latent_attention.rope_dim": 0, "latent_attention.value_dim": 0, "latent_attention.norm_eps": 1e-6,
    "attention_experts.count": 0, "attention_experts.top_k": 1, "attention_experts.gates": "detached",
    "moe.experts": 8, "moe.shared_experts": 0, "moe.shared_gate": 0, "moe.top_k": 2, "moe.top_k_start": 0, "moe.expert_hidden": 24,
    "moe.zero_experts": 0, "moe.copy_experts": 0, "moe.latent_hidden": 0,
    "moe.router": "softmax", "moe.router_bias": 0, "moe.router_hidden": 16, "moe.gates": "raw", "moe.routed_scale": 1,
    "moe.group_limit": 0, "moe.group_score": "top2", "moe.capacity_factor": 0,
    "sub_dimensions.attention": 0, "sub_dimensions.ffn": 0, "sub_dimensions.active": 1, "sub_dimensions.shared": 0,
    "sub_dimensions.scaling": "restore", "sub_dimensions.gates": "raw", "sub_dimensions.input_gates": 0, "sub_dimensions.fusion_width": 0,
    "mtp.depth": 0, "mtp.weight": 0.3,
    "balance.expert": 0, "balance.device": 0, "balance.device_groups": 1, "balance.scope": "sequence",
    "balance.z_loss": 0, "balance.mutual_information": 0, "balance.concentration": 0, "balance.bias_rate": 0,
    "balance.sub_dimension": 0,
    "optim.lr": 5e-3, "optim.min_lr": 5e-4, "optim.schedule": "step", "optim.schedule_steps": 0,
    "optim.rule": "adamw", "optim.momentum": 0.95, "optim.adamw_only": "", "optim.warmup_steps": 4, "optim.warmup_from": 0, "optim.decay_steps": 5, "optim.beta1": 0.9, "optim.beta2": 0.95, "optim.eps": 1e-5,
    "optim.weight_decay": 0.1, "optim.clip_norm": 1,
    "optim.lora_rank": 0, "optim.lora_alpha": 8, "optim.lora_targets": "",
    "optim.qk_clip": 0, "optim.train_only": "", "optim.router_penalty": 0, "optim.router_penalty_from": 0, "optim.router_penalty_from_attention": -1,
}  # fmt: skip


def keys(**changes) -> dict:
    """Converts keyword arguments to configuration keys: moe_top_k=3 becomes {"moe.top_k": 3}."""
    return {key.replace("_", ".", 1): value for key, value in changes.items()}


def attention_experts(**changes) -> dict:
    own = {f"attention_experts.{key}": value for key, value in changes.items()}
    return keys(model_attention="moa") | own


def latents(**changes) -> dict:
    """Latent attention, by default as in DeepSeek-V3: with a latent of queries, and positions of neighbouring columns."""
    paper = {"query_rank": 12, "key_value_rank": 10, "nope_dim": 6, "rope_dim": 4, "value_dim": 5}
    own = {f"latent_attention.{key}": value for key, value in (paper | changes).items()}
    return keys(model_attention="mla", model_kv_heads=0, model_rope_layout="interleaved") | own


def sub_dimensions(**changes) -> dict:
    """Sub-dimensions in both halves, by default 4 active ones of 8, 3 of them shared, with fusion and balance loss.

    A sub-dimension may count 8 times as much as in a dense half. With initial weights as large as in other cases, rounding
    would therefore show in the gradients."""
    paper = {"attention": 8, "ffn": 8, "active": 4, "shared": 3, "fusion_width": -1}
    own = {f"sub_dimensions.{key}": value for key, value in (paper | changes).items()}
    return keys(moe_experts=0, model_init_std=0.1, balance_sub_dimension=0.05) | own


# A bias of keys adds the same number to all scores of a query, which changes nothing. With slowly rotating positions,
# its gradient is therefore almost only rounding error, so eps is larger.
BIASES = keys(model_qkv_bias=1, optim_eps=1e-3)
EVEN = keys(balance_expert=0.05)
# A limit that clamps many inputs of these models.
CLAMPED = keys(model_ffn="clamped_swiglu", model_swiglu_limit=0.7, model_swiglu_alpha=1.5)
ALL_BIASES = BIASES | keys(model_o_bias=1, model_ffn_bias=1, moe_router_bias=1)
EVEN_BATCH = keys(balance_expert=0.05, balance_scope="batch")
GLOBAL = keys(balance_scope="global")
GROUPS = keys(balance_device_groups=4, moe_group_limit=2, moe_top_k=3)
BIAS = keys(moe_router="sigmoid", moe_gates="renormalized", balance_bias_rate=0.02)
SIZES = keys(moe_expert_sizes="40,8, 36,12, 30,18, 24,24")
HASH = keys(moe_router="hash", moe_top_k=1, moe_gates="ones")
UNIFORM = keys(moe_router="uniform", moe_top_k=3, moe_gates="renormalized")
LLAMA3 = keys(model_rope_scaling="llama3", model_rope_factor=8, model_rope_original_length=16, model_rope_base=100)
YARN = keys(model_rope_scaling="yarn", model_rope_factor=4, model_rope_original_length=16, model_rope_beta_fast=2, model_rope_base=100)
LOSSES = {
    "expert loss": keys(balance_expert=0.05),
    "device loss": keys(balance_device=0.1, balance_device_groups=3),
    "z-loss": keys(balance_z_loss=0.02),
    "mutual information": keys(balance_mutual_information=0.3),
    "concentration": keys(balance_concentration=0.1),
}
SUB_DIMENSION_LOSSES = {key: value for name in LOSSES if name != "device loss" for key, value in LOSSES[name].items()}
ALL_LOSSES = {key: value for loss in LOSSES.values() for key, value in loss.items()}

MODULES = keys(mtp_depth=2, mtp_weight=0.6)
MUON = EVEN | keys(optim_rule="muon", model_hidden=24, model_head_dim=10, moe_experts=6, moe_expert_hidden=20,
                   moe_shared_experts=1, model_layers=3, model_first_dense_layers=1, batch_global=8)
MUON_SIZES = MUON | keys(moe_expert_sizes="40,8, 36,12, 26,22", model_qkv_bias=1, optim_eps=1e-3)

THOR = UNIFORM | keys(moe_experts=8, moe_top_k=4, model_consistency=2)
CONCRETE = keys(moe_experts=0, model_dropout=0.2, model_dropout_kind="concrete", model_dropout_regularizer=1e-3,
                model_dropout_weight_regularizer=1e-4)


def adapters(rank: int, targets: str, **changes) -> dict:
    """Adapters of some matrices. Gradients of A are small at first, since B is zero, and so eps is larger."""
    return keys(optim_lora_rank=rank, optim_lora_alpha=12, optim_lora_targets=targets, optim_eps=1e-3, **changes)


def on_ranks(ranks: int, **parallel) -> dict:
    """A mesh; every rank computes one sequence at a time."""
    return {"ranks": ranks, "batch.micro": 1} | {f"parallel.{key}": value for key, value in parallel.items()}


# Muon on the ranks of every axis, with every ZeRO stage.
MESHES = {
    **{f"data, ZeRO {zero}": on_ranks(ranks, zero=zero) for ranks, zero in ((2, 0), (4, 1), (2, 2), (8, 3))},
    "tensor": on_ranks(2, tensor=2),
    "tensor, ZeRO 0": on_ranks(4, tensor=2, zero=0),
    "tensor, ZeRO 3": on_ranks(4, tensor=2, zero=3, sequence=1),
    "expert, ZeRO 1": on_ranks(4, expert=2, zero=1),
    "expert tensor": on_ranks(4, expert_tensor=2, zero=0),
    "expert and expert tensor, ZeRO 2": on_ranks(8, expert=2, expert_tensor=2, tensor=2, zero=2),
    "pipeline, ZeRO 1": on_ranks(4, pipeline=2, zero=1),
    "all": on_ranks(8, pipeline=2, tensor=2, expert=2, zero=3, sequence=1),
}  # fmt: skip

# A limit that many steps exceed, some in all heads and some in a few.
QK_CLIP = EVEN | keys(optim_qk_clip=1, run_layer_metrics_every=1)

GPT_OSS = EVEN_BATCH | ALL_BIASES | CLAMPED | YARN | keys(
    moe_gates="renormalized", model_sinks=1, model_window=8, model_window_layers="1,0", model_rope_truncate=0)

CASES = {
    "softmax": EVEN,
    "softmax, groups": EVEN | GROUPS,
    "sigmoid": EVEN | keys(moe_router="sigmoid"),
    "sigmoid, bias": BIAS,
    "softmax, groups by maximum": EVEN | GROUPS | keys(moe_group_score="maximum"),
    "sigmoid, bias, groups": BIAS | GROUPS,
    "sigmoid, bias, groups by maximum": BIAS | GROUPS | keys(moe_group_score="maximum"),
    "sqrt_softplus": EVEN | keys(moe_router="sqrt_softplus"),
    "sqrt_softplus, bias": BIAS | keys(moe_router="sqrt_softplus"),
    "sqrt_softplus, bias, groups": BIAS | GROUPS | keys(moe_router="sqrt_softplus", moe_gates="raw"),
    "mlp": EVEN | keys(moe_router="mlp"),
    "noisy": EVEN | keys(moe_router="noisy", balance_z_loss=0.02),
    "random": EVEN | keys(moe_router="random"),
    "hash": HASH | keys(moe_experts=5),
    "uniform": UNIFORM,
    "uniform, five of seven, scaled": UNIFORM | keys(moe_experts=7, moe_top_k=5, moe_routed_scale=1.5, moe_shared_experts=1),
    "uniform, ones, capacity": UNIFORM | keys(moe_gates="ones", moe_capacity_factor=1),
    "renormalized": EVEN | keys(moe_gates="renormalized"),
    "scaled": EVEN | keys(moe_routed_scale=2.5, moe_shared_experts=1),
    "scaled, sigmoid, bias": BIAS | keys(moe_routed_scale=2.5, moe_copy_experts=1),
    "scaled, attention experts": EVEN | attention_experts(count=5, top_k=2) | keys(moe_routed_scale=0.5),
    "detached": EVEN | keys(moe_gates="detached"),
    "ones": EVEN | keys(moe_gates="ones"),
    "k grows": EVEN | keys(moe_top_k_start=1, moe_top_k=5),
    "capacity": EVEN | keys(moe_capacity_factor=1.1),
    "capacity, k grows": BIAS | EVEN_BATCH | keys(moe_capacity_factor=0.8, moe_top_k_start=1, moe_top_k=4),
    **{f"{name}, {scope}": loss | keys(balance_scope=scope)
       for name, loss in LOSSES.items() for scope in ("sequence", "batch", "global")},
    "all losses, sequence": ALL_LOSSES,
    **{f"all losses, {router}, batch": ALL_LOSSES | keys(moe_router=router, balance_z_loss=0, balance_scope="batch")
       for router in ("sigmoid", "sqrt_softplus")},
    "all losses, global, 4 passes": ALL_LOSSES | GLOBAL | keys(batch_global=8, model_recompute="full"),
    **{f"all losses, global, {mesh}": ALL_LOSSES | GLOBAL | keys(batch_global=8) | MESHES[mesh]
       for mesh in ("data, ZeRO 2", "tensor, ZeRO 3", "pipeline, ZeRO 1")},
    "attention experts, global": ALL_LOSSES | GLOBAL | attention_experts(count=4, top_k=3, gates="raw"),
    "z-loss of the head": EVEN | keys(model_z_loss=0.05),
    "z-loss of the head, tied, in chunks": EVEN | keys(model_z_loss=0.05, model_tie_embeddings=1, model_loss_chunk=24),
    **{f"z-loss of the head, {mesh}": EVEN | keys(model_z_loss=0.05, batch_global=8) | MESHES[mesh]
       for mesh in ("tensor", "all")},
    "shared experts": EVEN | keys(moe_shared_experts=2),
    "shared experts, gated": EVEN | keys(moe_shared_experts=2, moe_shared_gate=1),
    "biases": EVEN | BIASES,
    "biases of outputs": EVEN | keys(model_o_bias=1),
    "biases of experts": EVEN | keys(model_ffn_bias=1, moe_gates="renormalized"),
    "biases of experts, gelu": EVEN | keys(model_ffn_bias=1, model_ffn="gelu", model_layers=3, model_first_dense_layers=1,
                                           moe_shared_experts=2),
    "biases of experts, latent, capacity": EVEN | SIZES | keys(model_ffn_bias=1, moe_latent_hidden=12, moe_copy_experts=1,
                                                               moe_capacity_factor=0.9),
    "biases of experts, dense": keys(model_ffn_bias=1, moe_experts=0),
    "bias of the router": EVEN | keys(moe_router_bias=1, optim_router_penalty=0.02),
    "bias of the router, sigmoid, bias": BIAS | keys(moe_router_bias=1),
    "bias of the router, attention experts": EVEN | keys(moe_router_bias=1) | attention_experts(count=5, top_k=2),
    "clamped swiglu": EVEN | CLAMPED,
    "clamped swiglu, dense": CLAMPED | keys(moe_experts=0),
    "clamped swiglu, sub-dimensions": sub_dimensions() | CLAMPED,
    "norms of heads": EVEN | keys(model_qk_norm="head"),
    "norms of all heads": EVEN | keys(model_qk_norm="all"),
    "norms of all heads, stick-breaking": keys(model_qk_norm="all", model_attention_weights="stick_breaking",
                                               moe_experts=0),
    "window": EVEN | keys(model_window=5),
    "windows of alternate layers": EVEN | keys(model_window=7, model_window_layers="1,0", model_layers=3),
    "sinks": EVEN | keys(model_sinks=1),
    "sinks, windows of alternate layers": EVEN | keys(model_sinks=1, model_window=8, model_window_layers="1,0",
                                                      model_layers=4),
    "window, attention experts": EVEN | keys(model_window=3) | attention_experts(count=6, top_k=2),
    "window, sub-dimensions": sub_dimensions() | keys(model_window=3),
    "attention experts": EVEN | attention_experts(count=6, top_k=2),
    "attention experts, all losses": ALL_LOSSES | attention_experts(count=4, top_k=3, gates="raw"),
    "attention experts, sigmoid, bias": BIAS | GROUPS | attention_experts(count=5, top_k=2, gates="renormalized"),
    "attention experts, noisy": EVEN | keys(moe_router="noisy") | attention_experts(count=5, top_k=2),
    "attention experts, uniform": UNIFORM | attention_experts(count=5, top_k=2, gates="renormalized"),
    "attention experts, hash": HASH | keys(model_kv_heads=4) | attention_experts(count=3, gates="ones"),
    "attention experts alone": EVEN_BATCH | keys(moe_experts=0) | attention_experts(count=5, top_k=2),
    "gelu": EVEN | keys(model_ffn="gelu", model_layers=3, model_first_dense_layers=1, moe_shared_experts=2),
    "sizes": EVEN | SIZES,
    "zero experts": EVEN | keys(moe_zero_experts=3),
    "copy experts": EVEN | keys(moe_copy_experts=2, moe_top_k=3, moe_gates="renormalized"),
    "zero and copy experts, bias, groups": BIAS | GROUPS | keys(moe_zero_experts=3, moe_copy_experts=2,
                                                                moe_router="sqrt_softplus", balance_device=0.1),
    "zero and copy experts, capacity": EVEN | keys(moe_zero_experts=1, moe_copy_experts=3, moe_capacity_factor=0.9),
    "latent": EVEN | keys(moe_latent_hidden=12),
    "latent, shared and copy experts": EVEN | keys(moe_latent_hidden=8, moe_shared_experts=1, moe_copy_experts=2),
    "router penalty": EVEN | keys(optim_router_penalty=0.02),
    "router penalty, attention experts": EVEN | attention_experts(count=5, top_k=2)
    | keys(optim_router_penalty=0.02, optim_router_penalty_from=7, optim_router_penalty_from_attention=3),
    "warm-up from a rate": EVEN | keys(optim_warmup_from=1e-3, optim_warmup_steps=3),
    "train only": keys(moe_router="mlp", optim_router_penalty=0.05, optim_router_penalty_from=5,
                       optim_train_only="*/experts/[5-7]/*,*/gate/weight[5:],model/layers/1/self_attn/*"),
    "positions, linear": EVEN | keys(model_rope_scaling="linear", model_rope_factor=4),
    "positions, llama3": EVEN | LLAMA3,
    "positions, yarn": EVEN | YARN,
    "positions, yarn, factor of attention": EVEN | YARN | keys(model_rope_attention_factor=0.8, model_rope_truncate=0),
    "positions, half of a head": EVEN | keys(model_rotary_fraction=0.5, model_qk_norm="head"),
    "positions, an odd number": EVEN | keys(model_rotary_fraction=0.4),
    "positions, neighbours": EVEN | keys(model_rope_layout="interleaved"),
    "positions, neighbours, yarn, attention experts": EVEN | YARN | attention_experts(count=5, top_k=2)
    | keys(model_rope_layout="interleaved", model_rotary_fraction=0.75),
    "positions, sub-dimensions": sub_dimensions() | LLAMA3 | keys(model_rotary_fraction=0.5),
    "stick-breaking": EVEN | keys(model_attention_weights="stick_breaking"),
    "latents": EVEN | latents(),
    "latents, without those of queries": EVEN | latents(query_rank=0, norm_eps=1e-3) | keys(model_rope_layout="half"),
    "latents, yarn, window": EVEN | YARN | latents() | keys(model_rope_mscale_all_dim=1.3, model_window=9),
    "latents, Muon": EVEN | latents() | keys(optim_rule="muon"),
    "stick-breaking, dense": keys(model_attention_weights="stick_breaking", moe_experts=0, model_kv_heads=1),
    "stick-breaking, attention experts": EVEN | keys(model_attention_weights="stick_breaking", model_ffn="gelu",
                                                     moe_router="mlp", moe_gates="detached",
                                                     balance_mutual_information=0.1)
    | attention_experts(count=5, top_k=2),
    "sub-dimensions": sub_dimensions(),
    "sub-dimensions, 6 of 8, batch": sub_dimensions(active=6) | keys(balance_scope="batch"),
    "sub-dimensions, wider than heads": sub_dimensions() | keys(model_hidden=64, model_head_dim=8, model_kv_heads=4),
    "sub-dimensions, ffn": sub_dimensions(attention=0, ffn=12) | keys(model_hidden=48),
    "sub-dimensions, attention, printed": sub_dimensions(ffn=0, scaling="printed"),
    "sub-dimensions, 4 and 16": sub_dimensions(attention=4, ffn=16) | keys(model_hidden=64),
    "sub-dimensions, not scaled": sub_dimensions(scaling="none"),
    "sub-dimensions, ones": sub_dimensions(gates="ones"),
    "sub-dimensions, not fused": sub_dimensions(fusion_width=0),
    "sub-dimensions, fused by 4": sub_dimensions(fusion_width=4),
    "sub-dimensions, none shared": sub_dimensions(shared=0),
    "sub-dimensions, all on": sub_dimensions(active=8),
    "sub-dimensions, not balanced": sub_dimensions() | keys(balance_sub_dimension=0),
    **{f"sub-dimensions, all losses, {scope}": sub_dimensions(active=5, shared=2) | SUB_DIMENSION_LOSSES
       | keys(balance_scope=scope)
       for scope in ("sequence", "batch", "global")},
    "sub-dimensions, all losses, ones": sub_dimensions(shared=1, gates="ones") | SUB_DIMENSION_LOSSES,
    "sub-dimensions, input gates": sub_dimensions(input_gates=1),
    "sub-dimensions, input gates, printed": sub_dimensions(input_gates=1, scaling="printed"),
    "sub-dimensions, input gates, not scaled": sub_dimensions(input_gates=1, scaling="none"),
    "sub-dimensions, input gates, none shared": sub_dimensions(input_gates=1, shared=0),
    "sub-dimensions, input gates, gelu, heads": sub_dimensions(input_gates=1, ffn=4) | keys(model_ffn="gelu", model_kv_heads=1),
    "sub-dimensions, input gates, recomputed": sub_dimensions(input_gates=1) | keys(model_recompute="selective"),
    "sub-dimensions, all active ones shared": sub_dimensions(shared=4) | keys(balance_sub_dimension=0),
    "sub-dimensions, all shared, input gates": sub_dimensions(active=8, shared=8, input_gates=1) | keys(balance_sub_dimension=0),
    # With wide or deep models of this kind, the rounding of f32 grows from step to step unless initial weights are smaller.
    "sub-dimensions, 80 of 128 and of 256": sub_dimensions(attention=128, ffn=256, active=80, shared=70, fusion_width=16)
    | keys(model_hidden=256, model_init_std=0.02, optim_lr=1e-3),
    **{f"sub-dimensions, input gates, {mesh}": sub_dimensions(input_gates=1) | keys(batch_global=8, model_layers=3, model_init_std=0.07) | MESHES[mesh]
       for mesh in ("data, ZeRO 3", "tensor, ZeRO 3", "pipeline, ZeRO 1")},
    "sub-dimensions, one head of keys": sub_dimensions() | keys(model_kv_heads=1),
    "sub-dimensions, gelu": sub_dimensions() | keys(model_ffn="gelu", model_tie_embeddings=1),
    "sub-dimensions, stick-breaking": sub_dimensions() | keys(model_attention_weights="stick_breaking"),
    "sub-dimensions, attention experts": EVEN | sub_dimensions(attention=0) | attention_experts(count=5, top_k=2),
    "Dense": keys(moe_experts=0, optim_schedule="constant", model_tie_embeddings=1),
    "Dense x4": keys(moe_experts=0, moe_shared_experts=4),
    "Hash": HASH,
    "Switch": EVEN_BATCH | keys(moe_top_k=1),
    "GShard": EVEN_BATCH | keys(moe_gates="renormalized", moe_capacity_factor=1.25),
    "DeepSeekMoE": EVEN | keys(model_layers=3, model_first_dense_layers=1, moe_shared_experts=1, moe_top_k=3,
                               balance_device=0.05, balance_device_groups=4),
    "Qwen2-MoE": EVEN_BATCH | BIASES | keys(moe_gates="renormalized", moe_shared_experts=4, moe_shared_gate=1),
    "Qwen3-MoE": EVEN_BATCH | keys(moe_gates="renormalized", model_qk_norm="head", model_head_dim=12),
    "OLMoE": EVEN_BATCH | keys(model_qk_norm="all", model_kv_heads=4, balance_z_loss=0.001),
    "GLM-4.5": EVEN | BIAS | keys(moe_shared_experts=1, moe_routed_scale=2.5, model_rotary_fraction=0.5,
                                  model_qk_norm="head", model_first_dense_layers=1),
    "DeepSeek-V2": EVEN | GROUPS | latents() | keys(moe_shared_experts=2, moe_group_score="maximum", moe_routed_scale=16),
    "DeepSeek-V3": EVEN | BIAS | GROUPS | latents() | keys(moe_shared_experts=1, moe_routed_scale=2.5),
    "gpt-oss": GPT_OSS,
    # Counts over a sequence, since those of a pass depend on how ranks share the batch.
    **{f"gpt-oss, {mesh}": GPT_OSS | keys(batch_global=8, balance_scope="sequence") | MESHES[mesh]
       for mesh in ("data, ZeRO 2", "tensor, ZeRO 3", "expert and expert tensor, ZeRO 2", "all")},
    "MoDSE": EVEN_BATCH | SIZES | keys(moe_router="noisy", moe_gates="renormalized", optim_schedule="cosine"),
    "ModuleFormer": keys(moe_router="mlp", moe_gates="detached", balance_mutual_information=0.1,
                         balance_scope="batch", optim_schedule="wsd", optim_warmup_from=1e-3, model_ffn="gelu")
    | attention_experts(count=6, top_k=2),
    "MoHD": sub_dimensions() | keys(model_kv_heads=4, balance_sub_dimension=0.01, optim_schedule="cosine"),
    "Muon": MUON,
    "Muon, sizes and biases": MUON_SIZES,
    "Muon, some AdamW": MUON | keys(optim_adamw_only="*/mlp/gate/weight,*/k_proj/weight", optim_momentum=0.9),
    "Muon, dense": MUON | keys(moe_experts=0, moe_shared_experts=0, model_tie_embeddings=1, optim_weight_decay=0.3),
    "Muon, attention experts": MUON | attention_experts(count=5, top_k=2) | keys(moe_router="mlp"),
    "Muon, train only": MUON | keys(optim_train_only="*/experts/[2-5]/*,*/gate/weight[3:],model/layers/1/self_attn/*"),
    **{f"Muon, {mesh}": MUON | changes for mesh, changes in MESHES.items()},
    **{f"Muon, sizes and biases, {mesh}": MUON_SIZES | MESHES[mesh] for mesh in ("data, ZeRO 1", "tensor, ZeRO 3")},
    "QK-clip": QK_CLIP,
    "QK-clip, biases, sinks, windows": QK_CLIP | BIASES | keys(model_sinks=1, model_window=9, model_window_layers="1,0"),
    "QK-clip, every head its keys, Muon": QK_CLIP | keys(model_kv_heads=4, optim_rule="muon"),
    "QK-clip, latents": QK_CLIP | latents() | keys(optim_qk_clip=2),
    "QK-clip, latents, without those of queries, Muon": QK_CLIP | latents(query_rank=0)
    | keys(optim_rule="muon", optim_qk_clip=2),
    "QK-clip, sub-dimensions": sub_dimensions() | QK_CLIP | keys(moe_experts=0, balance_expert=0, optim_qk_clip=0.4),
    "QK-clip, modules": QK_CLIP | MODULES | keys(model_recompute="selective"),
    **{f"QK-clip, {mesh}": QK_CLIP | keys(batch_global=8) | MESHES[mesh]
       for mesh in ("data, ZeRO 1", "data, ZeRO 2", "tensor, ZeRO 3", "pipeline, ZeRO 1", "all")},
    **{f"QK-clip, latents, Muon, {mesh}": QK_CLIP | latents() | keys(optim_rule="muon", optim_qk_clip=2, batch_global=8) | MESHES[mesh]
       for mesh in ("data, ZeRO 2", "tensor, ZeRO 3", "all")},
    "modules": EVEN | MODULES,
    "modules, one": EVEN | keys(mtp_depth=1, mtp_weight=0.3, model_first_dense_layers=1),
    "modules, dense and tied": MODULES | keys(moe_experts=0, model_tie_embeddings=1, model_recompute="full"),
    "modules, DeepSeek-V3": EVEN | BIAS | GROUPS | keys(moe_shared_experts=1, mtp_depth=1, mtp_weight=0.3),
    "modules, hash": HASH | MODULES,
    "modules, noisy": EVEN | MODULES | keys(moe_router="noisy"),
    "modules, windows of alternate layers": EVEN | MODULES | keys(model_window=7, model_window_layers="1,0", model_layers=3),
    "modules, all losses, global, z-loss of the head": ALL_LOSSES | GLOBAL | MODULES | keys(model_z_loss=0.05, batch_global=6),
    "modules, attention experts, all losses": ALL_LOSSES | MODULES | attention_experts(count=4, top_k=3, gates="raw"),
    "modules, sub-dimensions": sub_dimensions() | MODULES,
    "modules, capacity, k grows": BIAS | EVEN_BATCH | MODULES | keys(moe_capacity_factor=0.8, moe_top_k_start=1, moe_top_k=4),
    **{f"modules, {mesh}": EVEN | MODULES | keys(moe_shared_experts=1, batch_global=8, model_layers=3) | MESHES[mesh]
       for mesh in ("data, ZeRO 3", "tensor, ZeRO 3", "expert and expert tensor, ZeRO 2", "pipeline, ZeRO 1", "all")},
    "adapters, attention": EVEN | adapters(4, "*/self_attn/[qv]_proj/weight"),
    "adapters, everything": ALL_LOSSES | adapters(5, "*", moe_shared_experts=1),
    "adapters, tied": adapters(3, "*", moe_experts=0, model_tie_embeddings=1),
    "adapters, experts and router": EVEN | BIAS | adapters(8, "*/experts/*,*/gate/weight"),
    "adapters, expert sizes": EVEN | SIZES | adapters(6, "*/experts/*,lm_head/*"),
    "adapters, latents": EVEN | latents() | adapters(3, "*/self_attn/*"),
    "adapters, attention experts": EVEN | attention_experts(count=5, top_k=2) | adapters(4, "model/layers/*"),
    "adapters, sub-dimensions": sub_dimensions() | adapters(2, "*_proj/weight"),
    "adapters, modules": EVEN | MODULES | adapters(4, "*"),
    **{f"adapters, {mesh}": EVEN | keys(moe_shared_experts=1, batch_global=8, model_layers=3)
       | adapters(4, "model/layers/*,lm_head/weight") | MESHES[mesh] for mesh in MESHES},
    "Muon, modules": MUON | MODULES,
    "Muon, modules, all": MUON | MODULES | MESHES["all"],
    "dropout": keys(moe_experts=0, model_dropout=0.3),
    "dropout, experts, recompute": EVEN | keys(model_dropout=0.1, model_recompute="full", model_tie_embeddings=1),
    "concrete dropout": CONCRETE,
    "concrete dropout, tied, modules": CONCRETE | MODULES | keys(model_tie_embeddings=1, model_recompute="full"),
    "concrete dropout, latents": CONCRETE | latents(),
    **{f"concrete dropout, {mesh}": CONCRETE | keys(batch_global=8) | MESHES[mesh]
       for mesh in ("data, ZeRO 1", "tensor, ZeRO 0", "tensor, ZeRO 3", "pipeline, ZeRO 1")},
    "concrete dropout, pipeline and tensor, ZeRO 3": CONCRETE | keys(batch_global=8, model_layers=3)
    | on_ranks(8, pipeline=2, tensor=2, zero=3, sequence=1),
    "dropout of blocks": keys(moe_experts=0, model_dropout=0.2, model_dropout_kind="block", model_dropout_block=5),
    "dropout of blocks, modules, attention experts": EVEN | MODULES | attention_experts(count=4, top_k=2)
    | keys(model_dropout=0.2, model_dropout_kind="block", model_dropout_block=3, model_recompute="selective"),
    **{f"{name}, {mesh}": EVEN | keys(model_dropout=0.2, model_dropout_kind=kind, batch_global=8) | MESHES[mesh]
       for mesh in ("data, ZeRO 1", "tensor, ZeRO 0", "tensor, ZeRO 3", "pipeline, ZeRO 1", "all")
       for name, kind in (("dropout", "plain"), ("dropout of blocks", "block"))},
    "THOR": THOR,
    "THOR, one expert, dropout": THOR | keys(moe_top_k=1, model_dropout=0.1, model_recompute="full"),
    "THOR, modules, z-loss, tied": THOR | MODULES | keys(model_z_loss=0.05, model_tie_embeddings=1),
    **{f"THOR, {mesh}": THOR | keys(batch_global=8) | MESHES[mesh] | keys(batch_micro=2)
       for mesh in ("data, ZeRO 1", "tensor, ZeRO 0", "tensor, ZeRO 3", "pipeline, ZeRO 1", "all")},
    "SMoE-Dropout": keys(moe_router="random", moe_gates="renormalized", moe_top_k_start=2, moe_top_k=8),
}  # fmt: skip


class Comparison:
    """A case: trains both sides in a folder and compares them."""

    def __init__(self, config: dict, program: str, directory: Path):
        self.config, self.program, self.directory, self.run = config, program, directory, directory / "run"
        step = config["batch.global"] * config["batch.seq_len"]
        self.train = self.write_tokens("train", config["run.steps"] * step, seed=1)
        self.valid = self.write_tokens("valid", 2 * step, seed=2)

    def write_tokens(self, name: str, count: int, seed: int) -> Tensor:
        return torch.from_numpy(write_tokens(self.directory / name, count + 1, self.config["model.vocab"], seed))

    def differences(self) -> dict[str, float]:
        """Returns the largest relative difference of each column, and the total difference of the counts of choices."""
        theirs = self.train_lyceum()
        training = Training(self.config, self.weights(0))
        worst = dict.fromkeys(COLUMNS, 0.0) | {"counts": 0}
        for step, their in enumerate(theirs):
            our, counts = training.step(step, self.train)
            for name, value in our.items():
                column = {"loss": "loss", "grad_norm": "gradient norm"}.get(name, "router losses")
                column = "max logit" if name.startswith("layer_attention_logit/") else column
                worst[column] = larger(worst[column], relative(their.get(name, 0.0), value))
            worst["counts"] += self.differing_counts(step, counts)
        if self.config["optim.qk_clip"] and training.clipped_steps < len(theirs) / 4:
            raise RuntimeError(f"QK-clip scaled weights in only {training.clipped_steps} steps: this shows little")
        worst["validation"] = relative(theirs[-1]["valid_loss"], training.validate(self.valid))
        after = self.weights(self.config["run.steps"])
        for name, tensor in training.model.w.items():
            distance, norms = (after[name] - tensor).norm(), (after[name].norm(), tensor.norm())
            worst["weights"] = larger(worst["weights"], (distance / max(norms)).item() if distance else 0.0)
        return worst

    def train_lyceum(self) -> list[dict]:
        """Trains with Lyceum and returns the metrics of every step. Raises RuntimeError if the program fails."""
        own = {
            "run.dir": self.run, "run.precision": "f32", "run.device": "cpu", "run.threads": 1,
            "data.train": self.directory / "train", "data.valid": self.directory / "valid", "data.order": "sequential",
            "eval.batches": 0, "routing.every": 1, "checkpoint.at_start": 1, "checkpoint.keep": 0,
        }  # fmt: skip
        changes = self.config | own
        ranks = changes.pop("ranks", 1)
        command = [self.program, "train", *(f"--{key}={value}" for key, value in changes.items())]
        if ranks > 1:
            script = '. "$1/scripts/mpi-env.sh"; shift; exec mpirun -n "$@"'
            command = ["bash", "-c", script, "bash", str(ROOT), str(ranks), *command]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr.strip() or f"lyceum ended with {ended.returncode}")
        steps = [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]
        return [{key: math.nan if value is None else value for key, value in step.items()} for step in steps]

    def weights(self, step: int) -> Weights:
        """Returns the weights of the checkpoint of step `step`, by their names in it."""
        found: Weights = {}

        def add(name: str, item) -> None:
            if isinstance(item, h5py.Dataset) and name.startswith(("model/", "lm_head/", "adapters/")):
                found[name] = torch.from_numpy(item[...]).double()

        with h5py.File(self.run / f"checkpoints/step-{step:08}/index.h5") as file:
            file.visititems(add)
        return found

    def differing_counts(self, step: int, counts: dict[Router, Tensor]) -> int:
        """Returns the total absolute difference between a step's counts of choices, made and dropped, and those in routing.h5."""
        if not counts:
            return 0
        with h5py.File(self.run / "routing.h5") as file:
            differing = 0
            for router, (made, dropped) in counts.items():
                theirs = file[f"layers/{router.layer:03}" + ("/attention" if router.half == "self_attn" else "")]
                differing += abs(theirs["counts"][step] - made.numpy()).sum()
                differing += abs((theirs["dropped"][step] if "dropped" in theirs else 0) - dropped.numpy()).sum()
        return int(differing)


def larger(a: float, b: float) -> float:
    return a if a != a or b <= a else b  # NaN is kept, like the largest number


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", metavar="REGEX", default="", help="only cases whose names match; default: all")
    parser.add_argument("--seed", type=int, default=BASE["run.seed"], help="seed of initial weights and noise")
    parser.add_argument("--program", default=str(ROOT / "build/cpu/apps/lyceum"))
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the results there")
    arguments = parser.parse_args()
    if not Path(arguments.program).is_file():
        parser.error(f"no program {arguments.program}: build it, or name it with --program")
    try:
        arguments.cases = {name: changes for name, changes in CASES.items() if re.search(arguments.cases, name)}
    except re.error as error:
        parser.error(f"--cases {arguments.cases}: {error}")
    if not arguments.cases:
        parser.error(f"--cases: matches none of {'; '.join(CASES)}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    version = subprocess.run([arguments.program, "--version"], capture_output=True, text=True).stdout.strip()
    print(f"{version}, PyTorch {torch.__version__}, seed {arguments.seed}")
    print(f"largest relative differences, allowed {LIMIT:.0e}; differences of the counts of choices, allowed 0\n")
    width = max(map(len, CASES))
    print(f"{'case':<{width}}" + "".join(f"{name:>15}" for name in (*COLUMNS, "counts")))
    results = {}
    for name, changes in arguments.cases.items():
        with tempfile.TemporaryDirectory(prefix="lyceum-routers-") as directory:
            config = BASE | changes | {"run.seed": arguments.seed}
            try:
                worst = Comparison(config, arguments.program, Path(directory)).differences()
            except RuntimeError as error:
                print(f"{name:<{width}}  FAILED: {error}")
                results[name] = {"equal": False, "error": str(error)}
                continue
        equal = all(worst[column] <= LIMIT for column in COLUMNS) and not worst["counts"]
        row = "".join(f"{worst[column]:15.1e}" for column in COLUMNS) + f"{worst['counts']:15}"
        print(f"{name:<{width}}{row}  {'ok' if equal else 'FAILED'}", flush=True)
        results[name] = {"equal": equal, "differences": worst}
    head = {"lyceum": version, "torch": torch.__version__, "seed": arguments.seed, "limit": LIMIT}
    return conclude(results, head, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
