"""The sparse transformers of `lyceum train` in PyTorch and float64, written as directly as their formulas. compare_routers.py
compares Lyceum with them. Written from the papers and docs/configuration.md, not from Lyceum's code, except for the bits of
the noise, of dropout and of uniform routing.

A model is a table of tensors with their names in a checkpoint. Every expert computes every token, and its output is multiplied
by zero if the token has not chosen it. Sub-dimensions are treated in the same way.
"""
import fnmatch
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pytorch_model import learning_rate
from reference_positions import rotate

Weights = dict[str, Tensor]


@dataclass
class Pass:
    """A forward pass: sequences that the model processes together."""

    inputs: Tensor  # [sequences, tokens]
    targets: Tensor  # [sequences, tokens]
    step: int = 0
    first_token: int = 0  # index of the first token of this pass within the step's batch
    training: bool = False  # with noise, growing k and capacity limits
    # Sums over the sequences of all passes of the step so far, and their number, for balance.scope = global; by name.
    so_far: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Router:
    """Description of a router: of the experts of an FFN or of an attention, or (`chooses_sub_dimensions`) of the sub-dimensions
    of hidden that one of these halves reads and writes. Fields after `gates` apply to an FFN or to sub-dimensions only."""

    layer: int  # modules of multi-token prediction follow the model's layers
    at: str  # prefix of its tensors
    half: str  # "mlp" or "self_attn"
    experts: int
    top_k: int
    gates: str
    top_k_start: int = 0
    group_limit: int = 0
    capacity: float = 0
    devices: bool = False  # the device-level loss includes it
    chooses_sub_dimensions: bool = False  # of hidden, instead of experts
    shared: int = 0  # sub-dimensions that are always active

    @property
    def noise_layer(self) -> int:
        """Layer number for the noise. The two routers of a layer draw different noise."""
        return self.layer + (2**15 if self.half == "self_attn" else 0)


@dataclass
class Routing:
    """The decisions of a router. `p` and `logits` are None for hash and uniform routers."""

    chosen: Tensor  # [sequences, tokens, k], best first
    gates: Tensor  # [sequences, tokens, k]
    p: Tensor | None  # [sequences, tokens, experts]
    logits: Tensor | None  # [sequences, tokens, experts]
    kept: Tensor  # [sequences, tokens, k]: False if the expert was full


def rms_norm(x: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def ffn(config: dict, w: Weights, at: str, x: Tensor) -> Tensor:
    def project(name: str, x: Tensor) -> Tensor:
        y = x @ w[f"{at}/{name}/weight"].T
        return y + w[f"{at}/{name}/bias"] if config["model.ffn_bias"] else y

    up = project("up_proj", x)
    if config["model.ffn"] == "gelu":
        return project("down_proj", F.gelu(up))
    gate = project("gate_proj", x)
    if config["model.ffn"] == "swiglu":
        return project("down_proj", F.silu(gate) * up)
    limit = config["model.swiglu_limit"]  # [gpt-oss]
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return project("down_proj", gate * (config["model.swiglu_alpha"] * gate).sigmoid() * (up + 1))


def note_largest(largest: Weights | None, at: str, scores: Tensor) -> None:
    """Raises the largest scaled logit of each head, [heads], to those in scores [sequences, heads, queries, keys]."""
    if largest is not None:
        of_heads = scores.detach().amax((0, 2, 3))
        largest[at] = torch.maximum(largest.get(at, of_heads), of_heads)


def attention(config: dict, w: Weights, at: str, x: Tensor, expert: str = "", largest: Weights | None = None) -> Tensor:
    """Causal attention; query heads may share heads of keys and values. `expert` selects the matrices of q and output."""
    dim = config["model.head_dim"] or config["model.hidden"] // config["model.heads"]
    q, k, v = (x @ w[f"{at}{expert if name == 'q' else ''}/{name}_proj/weight"].T for name in "qkv")
    if config["model.qkv_bias"]:
        q, k, v = (part + w[f"{at}/{name}_proj/bias"] for part, name in zip((q, k, v), "qkv"))
    if config["model.qk_norm"] != "none":
        q, k = (qk_norm(config, part, w[f"{at}/{name}_norm/weight"], dim) for part, name in zip((q, k), "qk"))
    q, k, v = (part.unflatten(-1, (-1, dim)).transpose(1, 2) for part in (q, k, v))  # [sequences, heads, tokens, dim]
    sticks = config["model.attention_weights"] == "stick_breaking"
    if not sticks:
        q, k = rotate(config, q), rotate(config, k)
    k, v = (part.repeat_interleave(config["model.heads"] // config["model.kv_heads"], 1) for part in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(dim)
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    unseen = future | future.new_ones(future.shape).tril(-window(config, at)) if window(config, at) else future
    note_largest(largest, at, scores.masked_fill(unseen, -torch.inf))
    if config["model.sinks"]:  # a score per head without a value
        scores = torch.cat((scores, w[f"{at}/sinks"][:, None, None].expand(*scores.shape[:3], 1)), -1)
        unseen = F.pad(unseen, (0, 1), value=False)
    p = break_sticks(scores, future) if sticks else scores.masked_fill(unseen, -torch.inf).softmax(-1)
    p = p[..., : x.shape[1]]
    y = (p @ v).transpose(1, 2).flatten(2) @ w[f"{at}{expert}/o_proj/weight"].T
    return y + w[f"{at}/o_proj/bias"] if config["model.o_bias"] else y


def latent_attention(config: dict, w: Weights, at: str, x: Tensor, largest: Weights | None = None) -> Tensor:
    """Multi-head latent attention [DeepSeek-V2, equations 9-19, 37-47]: keys and values of all heads come from a latent, and one
    key with positions is shared by all heads."""
    own = {name: config[f"latent_attention.{name}"] for name in ("query_rank", "key_value_rank", "nope_dim", "rope_dim", "value_dim")}
    heads, eps, nope, rank = config["model.heads"], config["latent_attention.norm_eps"], own["nope_dim"], own["key_value_rank"]
    if own["query_rank"]:
        latent = rms_norm(x @ w[f"{at}/q_a_proj/weight"].T, eps) * w[f"{at}/q_a_layernorm/weight"]
        q = latent @ w[f"{at}/q_b_proj/weight"].T
    else:
        q = x @ w[f"{at}/q_proj/weight"].T
    latent, key = (x @ w[f"{at}/kv_a_proj_with_mqa/weight"].T).split((rank, own["rope_dim"]), -1)
    kv = (rms_norm(latent, eps) * w[f"{at}/kv_a_layernorm/weight"]) @ w[f"{at}/kv_b_proj/weight"].T
    q, kv = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, kv))  # [sequences, heads, tokens, dim]
    rotated = rotate(config, q[..., nope:]), rotate(config, key[:, None])
    q = torch.cat((q[..., :nope], rotated[0]), -1)
    k = torch.cat((kv[..., :nope], rotated[1].expand(-1, heads, -1, -1)), -1)
    scale = 1 / math.sqrt(nope + own["rope_dim"])
    if config["model.rope_scaling"] == "yarn" and config["model.rope_mscale_all_dim"]:
        scale *= (0.1 * config["model.rope_mscale_all_dim"] * math.log(config["model.rope_factor"]) + 1) ** 2
    unseen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    if window(config, at):
        unseen = unseen | torch.ones_like(unseen).tril(-window(config, at))
    scores = (q @ k.transpose(2, 3) * scale).masked_fill(unseen, -torch.inf)
    note_largest(largest, at, scores)
    return (scores.softmax(-1) @ kv[..., nope:]).transpose(1, 2).flatten(2) @ w[f"{at}/o_proj/weight"].T


def window(config: dict, at: str) -> int:
    """Returns the number of tokens that a token of the layer sees at most, its own included; 0: all before it."""
    pattern = [int(number) for number in config["model.window_layers"].split(",") if number] or [1]
    layer = config["model.layers"] - 1 if at.startswith("model/mtp/") else int(at.split("/")[2])
    return config["model.window"] * pattern[layer % len(pattern)]


def qk_norm(config: dict, x: Tensor, weight: Tensor, dim: int) -> Tensor:
    """Normalises each head [Qwen3], or all heads of a token together [OLMoE]."""
    parts = x.unflatten(-1, (-1, dim)) if config["model.qk_norm"] == "head" else x
    return (rms_norm(parts, config["model.norm_eps"]) * weight).reshape(x.shape)


def break_sticks(scores: Tensor, future: Tensor) -> Tensor:
    """p[t, i] = β[t, i] · Π of 1 - β[t, j] over i < j <= t, with β = sigmoid(scores). [ModuleFormer]"""
    beta = scores.sigmoid().masked_fill(future, 0)
    left = (1 - beta).flip(-1).cumprod(-1).flip(-1)  # what keys from j on leave of the stick
    behind = F.pad(left[..., 1:], (0, 1), value=1)
    return beta * behind


def splitmix64(z: np.ndarray) -> np.ndarray:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def philox4x32(x: list[np.ndarray], key: list[int]) -> list[np.ndarray]:
    """Philox 4x32 with ten rounds [Salmon et al. 2011]. Words have 32 bits and are stored in 64."""
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        left, right = np.uint64(key[0]), np.uint64(key[1])
        x = [(b >> np.uint64(32)) ^ x[1] ^ left, b & low, (a >> np.uint64(32)) ^ x[3] ^ right, a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


def noise(seed: int, layer: int, step: int, first: int, tokens: int, experts: int) -> Tensor:
    """Returns the noise ε, [tokens, experts], as drawn by lib/kernels/token_noise.h: one block of random words for four
    experts, made into two pairs by Box-Muller."""
    key = int(splitmix64(np.array([seed ^ 0x726F75746572], np.uint64))[0])
    at, quad = np.meshgrid(*(np.arange(n, dtype=np.uint64) for n in (tokens, -(-experts // 4))), indexing="ij")
    at = at + np.uint64(first)
    high = ((at >> np.uint64(32)) << np.uint64(16)) | np.uint64(layer)
    words = philox4x32([at & np.uint64(0xFFFFFFFF), high, np.full_like(at, step), quad], [key & 0xFFFFFFFF, key >> 32])
    normal = []
    for first_word, second_word in (words[:2], words[2:]):
        radius = np.sqrt(-2 * np.log((first_word + 0.5) / 2**32))
        angle = 2 * np.pi * (second_word / 2**32)
        normal += [radius * np.cos(angle), radius * np.sin(angle)]
    return torch.from_numpy(np.stack(normal, -1).reshape(tokens, -1)[:, :experts])


def dropout_numbers(seed: int, site: int, step: int, places: np.ndarray, columns: int) -> Tensor:
    """Returns uniform numbers in (0, 1), [places, columns], as drawn by lib/kernels/dropout_numbers.h: one block of random
    words for four columns."""
    key = int(splitmix64(np.array([seed ^ 0x64726F706F7574], np.uint64))[0])
    at, quad = np.meshgrid(places.astype(np.uint64), np.arange(-(-columns // 4), dtype=np.uint64), indexing="ij")
    high = ((at >> np.uint64(32)) << np.uint64(16)) | np.uint64(site)
    words = philox4x32([at & np.uint64(0xFFFFFFFF), high, np.full_like(at, step), quad], [key & 0xFFFFFFFF, key >> 32])
    words = np.stack(words, -1).reshape(len(places), -1)[:, :columns]
    return torch.from_numpy((words + 0.5) / 2**32)


def dropout_mask(config: dict, work: "Pass", site: int, columns: int) -> Tensor:
    """Returns 0 for the elements that are dropped and 1 for the others, [sequences, tokens, columns]. In DropBlock [Ghiasi et
    al. 2018], runs of `block` tokens may begin at every token of a sequence and at the block - 1 tokens before it."""
    rate, sequences, length = config["model.dropout"], *work.inputs.shape
    block = config["model.dropout_block"] if config["model.dropout_kind"] == "block" else 1
    first = work.first_token // length * (length + block - 1)
    places = first + np.arange(sequences * (length + block - 1))
    numbers = dropout_numbers(config["run.seed"], site, work.step, places, columns).view(sequences, -1, columns)
    begins = numbers < 1 - (1 - rate) ** (1 / block)
    return 1 - begins.unfold(1, block, 1).any(-1).double()


def random_experts(seed: int, layer: int, step: int, tokens: np.ndarray, experts: int, k: int) -> Tensor:
    """Returns k different experts for each token, as drawn by lib/kernels/uniform_numbers.h: each is one of those that are left,
    in ascending order."""
    key = int(splitmix64(np.array([seed ^ 0x756E69666F726D], np.uint64))[0])
    at, quad = np.meshgrid(tokens.astype(np.uint64), np.arange(-(-k // 4), dtype=np.uint64), indexing="ij")
    high = ((at >> np.uint64(32)) << np.uint64(16)) | np.uint64(layer)
    words = philox4x32([at & np.uint64(0xFFFFFFFF), high, np.full_like(at, step), quad], [key & 0xFFFFFFFF, key >> 32])
    words = np.stack(words, -1).reshape(len(tokens), -1)
    chosen = np.empty((len(tokens), k), np.int64)
    for row, own in enumerate(words):
        left = list(range(experts))
        chosen[row] = [left.pop(int(own[i]) * len(left) >> 32) for i in range(k)]
    return torch.from_numpy(chosen)


def divergence_of_copies(logits: Tensor) -> Tensor:
    """Returns the sum over tokens of (KL(p | q) + KL(q | p)) / 2, where sequences 2i and 2i + 1 are copies of a sample with the
    predictions p and q [THOR, Zuo et al. 2022]."""
    p, q = logits[0::2].log_softmax(-1), logits[1::2].log_softmax(-1)
    return (F.kl_div(q, p, reduction="sum", log_target=True) + F.kl_div(p, q, reduction="sum", log_target=True)) / 2


def weighted_sub_dimensions(x: Tensor, weights: Tensor) -> Tensor:
    """Multiplies every sub-dimension of the last dimension of x by its weight; weights are [..., sub-dimensions]."""
    return (x.unflatten(-1, (weights.shape[-1], -1)) * weights[..., None]).flatten(-2)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.log()).sum(-1)


class Model:
    def __init__(self, config: dict, weights: Weights):
        self.config, self.w = config, weights
        self.weighted = config["moe.experts"]
        # Experts that a token may choose.
        self.experts = self.weighted + config["moe.zero_experts"] + config["moe.copy_experts"]
        self.kind = config["moe.router"]
        self.largest: Weights = {}  # largest attention logit of each head in training passes, by prefix of the half

    def forward(self, work: Pass) -> tuple[Tensor, dict[str, Tensor], dict[Router, Routing]]:
        """Returns the cross-entropy in nats per token; the weighted losses of routers, summed over layers, of modules of
        multi-token prediction, of the head's logits and of copies of samples; and the routings."""
        config, w = self.config, self.w
        losses: dict[str, Tensor] = {}
        routings: dict[Router, Routing] = {}
        table = w["model/embed_tokens/weight"]
        x = self.drop(work, 0, "model/embed_dropout", table, table[work.inputs], losses)
        for layer in range(config["model.layers"]):
            x = self.block(work, layer, x, routings, losses)
        h = rms_norm(x, config["model.norm_eps"]) * w["model/norm/weight"]
        head = w["model/embed_tokens/weight" if config["model.tie_embeddings"] else "lm_head/weight"]
        if config["mtp.depth"] and work.training:
            losses["mtp_loss"] = self.predict_further(work, h, head, routings, losses)
        for router, routing in routings.items():
            for name, loss in self.losses(work, router, routing).items():
                losses[name] = losses.get(name, 0) + loss
        logits = h @ head.T
        if config["model.z_loss"] and work.training:  # [PaLM]
            losses["head_z_loss"] = config["model.z_loss"] * logits.logsumexp(-1).square().mean()
        if config["model.consistency"] and work.training:
            losses["consistency_loss"] = config["model.consistency"] * divergence_of_copies(logits) / work.targets.numel()
        return F.cross_entropy(logits.flatten(0, 1), work.targets.flatten()), losses, routings

    def predict_further(self, work: Pass, h: Tensor, head: Tensor, routings: dict[Router, Routing], losses: dict[str, Tensor]) -> Tensor:
        """Returns λ/D · Σ_k -1/T Σ_i log p(t_{i+k+1}) of D modules [DeepSeek-V3 eq. 21-25]. Module k combines the results of
        the one before with the embeddings of the tokens k positions ahead; the last k positions have none, and token 0 instead."""
        config, w, eps = self.config, self.w, self.config["model.norm_eps"]
        depth, total = config["mtp.depth"], torch.zeros(())
        for k in range(1, depth + 1):
            at = f"model/mtp/{k - 1}"
            ahead = F.pad(work.inputs[:, k:], (0, k))
            embedded = rms_norm(w["model/embed_tokens/weight"][ahead], eps) * w[f"{at}/enorm/weight"]
            joined = torch.cat((rms_norm(h, eps) * w[f"{at}/hnorm/weight"], embedded), -1)
            x = joined @ w[f"{at}/proj/weight"].T
            x = self.block(replace(work, inputs=ahead), config["model.layers"] + k - 1, x, routings, losses)
            h = rms_norm(x, eps) * w[f"{at}/norm/weight"]
            logits, targets = (h[:, :-k] @ head.T).flatten(0, 1), work.targets[:, k:].flatten()
            total = total + F.cross_entropy(logits, targets, reduction="sum") / work.targets.numel()
        return config["mtp.weight"] / depth * total

    def block(self, work: Pass, layer: int, x: Tensor, routings: dict[Router, Routing], losses: dict[str, Tensor]) -> Tensor:
        w, at, eps = self.w, self.prefix(layer), self.config["model.norm_eps"]
        normed = rms_norm(x, eps) * w[f"{at}/input_layernorm/weight"]
        y = self.attention_half(work, layer, normed, routings)
        x = x + self.drop(work, 1 + 2 * layer, f"{at}/attention_dropout", w.get(f"{at}/self_attn/o_proj/weight"), y, losses)
        normed = rms_norm(x, eps) * w[f"{at}/post_attention_layernorm/weight"]
        y = self.ffn_half(work, layer, normed, routings)
        return x + self.drop(work, 2 + 2 * layer, f"{at}/ffn_dropout", w.get(f"{at}/mlp/down_proj/weight"), y, losses)

    def attention_half(self, work: Pass, layer: int, x: Tensor, routings: dict[Router, Routing]) -> Tensor:
        config, at = self.config, f"{self.prefix(layer)}/self_attn"
        largest = self.largest if work.training else None
        if router := self.attention_router(layer):
            routings[router] = self.route(work, router, x)
            return self.attention_mixture(router, x, routings[router])
        if router := self.sub_dimension_router(layer, "self_attn"):
            routing = self.route_sub_dimensions(router, x)
            if router.top_k:  # with nothing to choose, there are no losses and counts
                routings[router] = routing
            return self.run_on_sub_dimensions(partial(attention, largest=largest), router, x, routing)
        kind = latent_attention if config["model.attention"] == "mla" else attention
        return kind(config, self.w, at, x, largest=largest)

    def ffn_half(self, work: Pass, layer: int, x: Tensor, routings: dict[Router, Routing]) -> Tensor:
        if router := self.ffn_router(layer):
            routings[router] = self.route(work, router, x)
            return self.mixture(router, x, routings[router])
        if router := self.sub_dimension_router(layer, "mlp"):
            routing = self.route_sub_dimensions(router, x)
            if router.top_k:
                routings[router] = routing
            return self.run_on_sub_dimensions(ffn, router, x, routing)
        return ffn(self.config, self.w, f"{self.prefix(layer)}/mlp", x)

    def drop(self, work: Pass, site: int, at: str, weight: Tensor | None, x: Tensor, losses: dict[str, Tensor]) -> Tensor:
        """Dropout [Srivastava et al. 2014] at a site: 0 is the embedding, 1 + 2 · layer an attention and 2 + 2 · layer an FFN.
        Concrete dropout [Gal et al. 2017] has a rate that is learnt; `weight` is the matrix whose products it drops."""
        config = self.config
        if not config["model.dropout"] or not work.training:
            return x
        if config["model.dropout_kind"] != "concrete":
            return x * dropout_mask(config, work, site, x.shape[-1]) / (1 - config["model.dropout"])
        p = self.w[f"{at}/logit"].sigmoid()
        places = work.first_token + np.arange(x[..., 0].numel())
        u = dropout_numbers(config["run.seed"], site, work.step, places, x.shape[-1]).view_as(x)
        z = ((p.log() - (1 - p).log() + u.log() - (1 - u).log()) / 0.1).sigmoid()
        of_weight = config["model.dropout_weight_regularizer"] * weight.square().sum() / (1 - p)
        of_rate = config["model.dropout_regularizer"] * x.shape[-1] * (p * p.log() + (1 - p) * (1 - p).log())
        losses["dropout_loss"] = losses.get("dropout_loss", 0) + (of_weight + of_rate).sum()
        return x * (1 - z) / (1 - p)

    def prefix(self, layer: int) -> str:
        """Returns the prefix of the tensors of a block. Those of modules follow the model's and are like its last one."""
        layers = self.config["model.layers"]
        return f"model/layers/{layer}" if layer < layers else f"model/mtp/{layer - layers}"

    def ffn_router(self, layer: int) -> Router | None:
        config = self.config
        if not self.weighted or min(layer, config["model.layers"] - 1) < config["model.first_dense_layers"]:
            return None
        return Router(layer, f"{self.prefix(layer)}/mlp", "mlp", self.experts, config["moe.top_k"], config["moe.gates"],
                      config["moe.top_k_start"], config["moe.group_limit"], config["moe.capacity_factor"], devices=True)  # fmt: skip

    def attention_router(self, layer: int) -> Router | None:
        config = self.config
        if config["model.attention"] != "moa":
            return None
        return Router(layer, f"{self.prefix(layer)}/self_attn", "self_attn", config["attention_experts.count"],
                      config["attention_experts.top_k"], config["attention_experts.gates"])  # fmt: skip

    def sub_dimension_router(self, layer: int, half: str) -> Router | None:
        config = self.config
        count = config["sub_dimensions.attention" if half == "self_attn" else "sub_dimensions.ffn"]
        if not count:
            return None
        shared = config["sub_dimensions.shared"]
        return Router(layer, f"{self.prefix(layer)}/{half}", half, count, config["sub_dimensions.active"] - shared,
                      config["sub_dimensions.gates"], chooses_sub_dimensions=True, shared=shared)  # fmt: skip

    def gates(self, router: Router, x: Tensor, routing: Routing) -> Tensor:
        """Returns the gates of all experts, [sequences, tokens, experts, 1], zero for those that were not chosen."""
        zeros = x.new_zeros(*x.shape[:2], router.experts)
        return zeros.scatter(2, routing.chosen, routing.gates * routing.kept)[..., None]

    def mixture(self, router: Router, x: Tensor, routing: Routing) -> Tensor:
        """Σ_shared FFN(x) + Σ_chosen gate · FFN(x) [DeepSeekMoE eq. 9]. Zero experts return 0 and copy experts x [MoE++]; the
        others may compute between two latent projections [LatentMoE]."""
        gates, config, w, at = self.gates(router, x, routing), self.config, self.w, router.at
        latent, copies = config["moe.latent_hidden"], config["moe.copy_experts"]
        inner = x @ w[f"{at}/latent/down/weight"].T if latent else x
        y = sum(gates[:, :, e] * ffn(config, w, f"{at}/experts/{e}", inner) for e in range(self.weighted))
        y = y @ w[f"{at}/latent/up/weight"].T if latent else y
        y = y + gates[:, :, router.experts - copies :].sum(2) * x
        if not config["moe.shared_experts"]:
            return y
        shared = ffn(config, w, f"{at}/shared_experts", x)
        if config["moe.shared_gate"]:  # [Qwen2-MoE]
            shared = (x @ w[f"{at}/shared_expert_gate/weight"].T).sigmoid() * shared
        return y + shared

    def attention_mixture(self, router: Router, x: Tensor, routing: Routing) -> Tensor:
        """Σ_chosen gate · O · attention(Q · x, K, V), where K and V are shared by all experts [ModuleFormer]."""
        gates = self.gates(router, x, routing)
        answer = (attention(self.config, self.w, router.at, x, f"/experts/{e}") for e in range(router.experts))
        return sum(gates[:, :, e] * y for e, y in enumerate(answer))

    def route_sub_dimensions(self, router: Router, x: Tensor) -> Routing:
        """Routes with a softmax over all sub-dimensions and chooses the best unshared ones [MoHD eq. 11, 12]."""
        logits = x @ self.w[f"{router.at}/gate/weight"].T
        p = logits.softmax(-1)
        chosen = router.shared + p[..., router.shared :].topk(router.top_k).indices
        return Routing(chosen, p.gather(2, chosen), p, logits, torch.ones_like(chosen, dtype=torch.bool))

    def active_sub_dimensions(self, router: Router, routing: Routing) -> Tensor:
        """Returns 1 for the sub-dimensions that a token uses, else 0: [sequences, tokens, sub-dimensions]."""
        on = torch.zeros_like(routing.p).scatter(2, routing.chosen, 1.0)
        on[..., : router.shared] = 1
        return on

    def run_on_sub_dimensions(self, half: Callable, router: Router, x: Tensor, routing: Routing) -> Tensor:
        """Runs a half on its active sub-dimensions [MoHD eq. 10]. Inactive sub-dimensions of its input are zero. Sub-dimension
        i of its output is multiplied by α · g_i, or zero if inactive, before all are fused. For the scaling `restore`, α is
        as described in section 4.2 of the paper; for `printed`, it is as in its formula. With input_gates, the input is
        multiplied in the same way [eq. 15, 16]."""
        config, count = self.config, router.experts
        on = self.active_sub_dimensions(router, routing)
        g = on * routing.p
        total = g.sum(-1, keepdim=True)
        alpha = {"restore": count / total, "printed": count * total, "none": torch.ones_like(total)}
        gates = {"raw": alpha[config["sub_dimensions.scaling"]] * g, "ones": on}[router.gates]
        of_input = gates if config["sub_dimensions.input_gates"] else on
        y = half(config, self.w, router.at, weighted_sub_dimensions(x, of_input))
        return self.fuse(router, weighted_sub_dimensions(y, gates))

    def fuse(self, router: Router, y: Tensor) -> Tensor:
        """Multiplies by a Monarch matrix [Dao et al. 2022]: blocks of b x b elements, first on b adjacent elements each, then
        on elements that are hidden / b apart."""
        width = self.config["sub_dimensions.fusion_width"]
        if not width:
            return y
        b = router.experts if width < 0 else width
        runs, strides = (self.w[f"{router.at}/fusion/{name}/weight"] for name in ("in", "out"))  # [hidden / b, b, b]
        z = torch.einsum("nij,...nj->...ni", runs, y.unflatten(-1, (-1, b)))
        columns = z.flatten(-2).unflatten(-1, (b, -1))  # [..., b, hidden / b]
        return torch.einsum("nij,...jn->...in", strides, columns).flatten(-2)

    def logits(self, work: Pass, router: Router, x: Tensor) -> Tensor:
        w, at = self.w, f"{router.at}/gate"
        if self.kind == "mlp":
            return (x @ w[f"{at}/in/weight"].T).relu() @ w[f"{at}/weight"].T
        logits = x @ w[f"{at}/weight"].T
        if self.config["moe.router_bias"]:
            logits = logits + w[f"{at}/bias"]
        if self.kind == "noisy" and work.training:
            scale = w[f"{at}/noise_scale"] * rms_norm(x @ w[f"{at}/noise/weight"].T, self.config["model.norm_eps"])
            tokens = x.shape[0] * x.shape[1]
            seed = self.config["run.seed"]
            epsilon = noise(seed, router.noise_layer, work.step, work.first_token, tokens, router.experts)
            logits = logits + epsilon.view_as(logits) * F.softplus(scale)
        return logits

    def route(self, work: Pass, router: Router, x: Tensor) -> Routing:
        if self.kind == "hash":
            mixed = splitmix64(work.inputs.numpy().astype(np.uint64) + np.uint64(router.layer << 32))
            chosen = torch.from_numpy((mixed % np.uint64(router.experts)).astype(np.int64))[..., None]
            ones = torch.ones(chosen.shape, dtype=x.dtype)
            return Routing(chosen, ones, None, None, self.within_capacity(work, router, chosen))
        if self.kind == "uniform":
            return self.route_uniformly(work, router, x)
        logits = self.logits(work, router, x)
        if self.kind in ("sigmoid", "sqrt_softplus"):
            scores = logits.sigmoid() if self.kind == "sigmoid" else F.softplus(logits).sqrt()
            p = scores / scores.sum(-1, keepdim=True)
            wanted = scores + self.w[f"{router.at}/gate/e_score_correction_bias"]
        else:
            scores = p = wanted = logits.softmax(-1)
        chosen = self.limited(router, wanted.detach()).topk(self.choices(work, router)).indices
        best = scores.gather(2, chosen)
        total = best.sum(-1, keepdim=True)
        gates = {
            "raw": best,
            "renormalized": best / total,
            "detached": best / total.detach(),
            "ones": torch.ones_like(best),
        }[router.gates]
        if router.half == "mlp":
            gates = gates * self.config["moe.routed_scale"]  # [DeepSeek-V2]
        return Routing(chosen, gates, p, logits, self.within_capacity(work, router, chosen))

    def route_uniformly(self, work: Pass, router: Router, x: Tensor) -> Routing:
        """Chooses random experts, outside of training by the position alone [THOR, Zuo et al. 2022]."""
        sequences, length, k = *x.shape[:2], router.top_k
        tokens = work.first_token + np.arange(sequences * length) if work.training else np.tile(np.arange(length), sequences)
        step = work.step if work.training else 0
        drawn = random_experts(self.config["run.seed"], router.noise_layer, step, tokens, router.experts, k)
        chosen = drawn.view(sequences, length, k)
        gates = torch.full(chosen.shape, 1 if router.gates == "ones" else 1 / k, dtype=x.dtype)
        if router.half == "mlp":
            gates = gates * self.config["moe.routed_scale"]
        return Routing(chosen, gates, None, None, self.within_capacity(work, router, chosen))

    def choices(self, work: Pass, router: Router) -> int:
        """Returns k, which may grow linearly over the run [SMoE-Dropout]."""
        start, end, steps = router.top_k_start, router.top_k, self.config["run.steps"]
        if not start or not work.training:
            return end
        return math.floor(start + (end - start) * work.step / (steps - 1) + 0.5)

    def groups(self, router: Router) -> list[list[int]]:
        """Returns the experts of each group. Experts with weights are divided into contiguous ranges, of which the first may
        have one more; the others are assigned round-robin."""
        groups = [list(run) for run in np.array_split(range(self.weighted), self.config["balance.device_groups"])]
        for i in range(self.weighted, router.experts):
            groups[(i - self.weighted) % len(groups)].append(i)
        return groups

    def limited(self, router: Router, wanted: Tensor) -> Tensor:
        """Returns `wanted` with -∞ outside the groups with the largest sums of their two best [DeepSeek-V3, 2.1.2], or with the
        best of all [DeepSeek-V2, 2.2.2]."""
        if not router.group_limit:
            return wanted
        groups = self.groups(router)
        count = 1 if self.config["moe.group_score"] == "maximum" else 2
        sums = torch.stack([wanted[..., group].topk(min(count, len(group))).values.sum(-1) for group in groups], -1)
        best = torch.zeros_like(sums).scatter(-1, sums.topk(router.group_limit).indices, 1).bool()
        allowed = torch.zeros_like(wanted, dtype=torch.bool)
        for i, group in enumerate(groups):
            allowed[..., group] = best[..., i, None]
        return wanted.masked_fill(~allowed, -torch.inf)

    def within_capacity(self, work: Pass, router: Router, chosen: Tensor) -> Tensor:
        """Returns which choices fit into their experts' capacity: first choices of all tokens of a sequence take precedence
        over second ones, and so on."""
        if not router.capacity or not work.training:
            return torch.ones_like(chosen, dtype=torch.bool)
        _, tokens, k = chosen.shape
        capacity = math.ceil(router.capacity * k * tokens / router.experts)
        in_order = F.one_hot(chosen.transpose(1, 2).flatten(1), router.experts)  # [sequences, k · tokens, experts]
        place = (in_order.cumsum(1) * in_order).sum(-1)
        return (place <= capacity).unflatten(1, (k, tokens)).transpose(1, 2)

    def over_scope(self, work: Pass, name: tuple, values: Tensor) -> Tensor:
        """Returns the means over balance.scope of values [sequences, n]: one row, or one per sequence. With `global`, the mean
        is that of all passes so far, with the gradient of this pass's mean [Qiu et al. 2025]."""
        if self.config["balance.scope"] == "sequence":
            return values
        mean = values.mean(0, keepdim=True)
        if self.config["balance.scope"] == "batch":
            return mean
        total, count = work.so_far.get(name, (0, 0))
        work.so_far[name] = total, count = total + values.detach().sum(0, keepdim=True), count + len(values)
        return mean + (total / count - mean).detach()

    def losses(self, work: Pass, router: Router, routing: Routing) -> dict[str, Tensor]:
        """Returns the losses of one router by their names in metrics.jsonl.

        [DeepSeekMoE eq. 12-17; Zoph et al. 2022; ModuleFormer]"""
        if routing.p is None:
            return {}
        config = self.config
        k = routing.chosen.shape[-1]
        f = F.one_hot(routing.chosen, router.experts).sum(2).double().mean(1) * (router.experts / k)  # [sequences, experts]
        mean_p = routing.p.mean(1)
        f = self.over_scope(work, (router, "f"), f)
        groups = self.groups(router) if router.devices else []
        of_groups = sum(((f[:, group].mean(1) * mean_p[:, group].sum(1)).mean() for group in groups), torch.zeros(()))
        of_mean = entropy(self.over_scope(work, (router, "p"), mean_p)).mean()
        of_sub_dimensions = (
            self.sub_dimension_loss(work, router, routing) if router.chooses_sub_dimensions else torch.zeros(())
        )
        first = config["optim.router_penalty_from"]
        if router.at.endswith("/self_attn") and config["optim.router_penalty_from_attention"] >= 0:
            first = config["optim.router_penalty_from_attention"]
        rows = self.w[f"{router.at}/gate/weight"][first:]
        return {
            "expert_balance_loss": config["balance.expert"] * (f * mean_p).sum(-1).mean(),
            "device_balance_loss": config["balance.device"] * of_groups,
            "sub_dimension_loss": config["balance.sub_dimension"] * of_sub_dimensions,
            "z_loss": config["balance.z_loss"] * routing.logits.logsumexp(-1).square().mean(),
            "mutual_information_loss": config["balance.mutual_information"] * (entropy(routing.p).mean() - of_mean),
            "concentration_loss": config["balance.concentration"] * of_mean,
            "router_penalty_loss": config["optim.router_penalty"] * rows.square().sum(),
        }

    def sub_dimension_loss(self, work: Pass, router: Router, routing: Routing) -> Tensor:
        """Returns N · Σ f_i P_i over the sub-dimensions that are not shared [MoHD eq. 13]. f_i is the share of tokens whose
        best choice is i. P_i is the mean share of i in the scores of all active ones, independent of the gates."""
        first = F.one_hot(routing.chosen[..., :1], router.experts).sum(2).double().mean(1)  # [sequences, sub-dimensions]
        g = self.active_sub_dimensions(router, routing) * routing.p
        part = (g / g.sum(-1, keepdim=True)).mean(1)
        first = self.over_scope(work, (router, "first"), first)
        return router.experts * (first * part)[:, router.shared :].sum(-1).mean()

    def counts(self, router: Router, routing: Routing) -> Tensor:
        """Returns the numbers of choices made and of choices dropped, [2, top_k, experts]."""
        made = F.one_hot(routing.chosen, router.experts)  # [sequences, tokens, k, experts]
        counts = torch.stack((made, made * ~routing.kept[..., None])).sum((1, 2))
        return F.pad(counts, (0, 0, 0, router.top_k - counts.shape[1]))


class Muon:
    """Muon [Jordan 2024; Liu et al. 2025] on whole matrices, without weight decay of frozen rows."""

    def __init__(self, matrices: list[Tensor], momentum: float, weight_decay: float):
        self.matrices, self.momentum, self.weight_decay = matrices, momentum, weight_decay
        self.states = [torch.zeros_like(w) for w in matrices]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        mu = self.momentum
        for w, m in zip(self.matrices, self.states):
            m.copy_(mu * m + (1 - mu) * w.grad)
            update = self.orthogonalised((1 - mu) * w.grad + mu * m)
            w.mul_(1 - lr * self.weight_decay)
            w.sub_(lr * 0.2 * math.sqrt(max(w.shape)) * update)
            w.grad = None

    @staticmethod
    def orthogonalised(u: Tensor) -> Tensor:
        x = u / (u.norm() + 1e-7)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        return x.T if tall else x


def updated_by_muon(config: dict, name: str, tensor: Tensor) -> bool:
    """True for matrices of blocks and modules, unless optim.adamw_only names them."""
    if config["optim.rule"] != "muon" or tensor.dim() != 2 or not name.startswith(("model/layers/", "model/mtp/")):
        return False
    patterns = config["optim.adamw_only"].split(",")
    return not any(fnmatch.fnmatchcase(name, pattern.strip()) for pattern in patterns)


@torch.no_grad()
def clip_qk(config: dict, w: Weights, largest: Weights) -> bool:
    """QK-clip [Kimi K2, section 2.1]: scales the weights of each head whose largest logit S is above τ, so that its logits
    become γ = τ / S times as large. Heads that share keys have one γ, that of the largest S. Returns whether any γ < 1."""
    clipped = False
    for at, logits in largest.items():
        heads = config["model.heads"] if config["model.attention"] == "mla" else config["model.kv_heads"]
        gamma = (config["optim.qk_clip"] / logits.view(heads, -1).amax(1)).clamp(max=1)
        clipped |= bool((gamma < 1).any())

        def scale(name: str, power: float, first: int = 0, last: int | None = None) -> None:
            rows = w[f"{at}/{name}"].view(heads, -1, *w[f"{at}/{name}"].shape[1:])[:, first:last]
            rows *= gamma.pow(power).view(-1, *[1] * (rows.dim() - 1))

        if config["model.attention"] == "mla":  # the key with positions belongs to all heads and stays as it is
            nope = config["latent_attention.nope_dim"]
            q = "q_b_proj/weight" if config["latent_attention.query_rank"] else "q_proj/weight"
            scale(q, 0.5, last=nope)
            scale(q, 1, first=nope)
            scale("kv_b_proj/weight", 0.5, last=nope)
            continue
        for name in ("q_proj", "k_proj"):
            scale(f"{name}/weight", 0.5)
            if config["model.qkv_bias"]:
                scale(f"{name}/bias", 0.5)
    return clipped


class AdaptedWeights(dict):
    """Weights by name, in which w[name] of a matrix W with an adapter is W + (alpha / r) B A [Hu et al. 2021], as in peft. The
    items are W, A and B: adapters/lora_A/NAME [r, n] and adapters/lora_B/NAME [m, r]."""

    def __init__(self, weights: Weights, alpha: float):
        super().__init__(weights)
        self.alpha = alpha

    def __getitem__(self, name: str) -> Tensor:
        a, b = self.get(f"adapters/lora_A/{name}"), self.get(f"adapters/lora_B/{name}")
        return self.get(name) if a is None else self.get(name) + (self.alpha / len(a)) * (b @ a)


class Training:
    """Training of a model: AdamW or Muon on the trained tensors, clipping, the learning rate schedule, and the router biases that are
    adjusted from counts of choices."""

    def __init__(self, config: dict, weights: Weights):
        adapted = config["optim.lora_rank"] > 0
        used = AdaptedWeights(weights, config["optim.lora_alpha"]) if adapted else weights
        self.config, self.model = config, Model(config, used)
        self.clipped_steps = 0  # steps in which QK-clip scaled weights
        fixed = ("/e_score_correction_bias",) + (("/gate/weight",) if config["moe.router"] == "random" else ())
        moved = {name: moved_rows(name, len(tensor), config["optim.train_only"]) for name, tensor in weights.items()}
        trained = [name for name in weights if not name.endswith(fixed) and moved[name].any()]
        if adapted:
            trained = [name for name in weights if name.startswith("adapters/")]
        self.trained = [weights[name].requires_grad_() for name in trained]
        self.still = [(weights[name], ~moved[name]) for name in trained if not moved[name].all()]
        matrices = [weights[name] for name in trained if updated_by_muon(config, name, weights[name])]
        self.muon = Muon(matrices, config["optim.momentum"], config["optim.weight_decay"])
        others = [weights[name] for name in trained if not updated_by_muon(config, name, weights[name])]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in others if p.dim() > 1]},
                {"params": [p for p in others if p.dim() <= 1], "weight_decay": 0.0},
            ],
            betas=(config["optim.beta1"], config["optim.beta2"]),
            eps=config["optim.eps"],
            weight_decay=config["optim.weight_decay"],
        )

    def step(self, step: int, tokens: Tensor) -> tuple[dict[str, float], dict[Router, Tensor]]:
        """Makes one update. Returns its metrics, as in metrics.jsonl, and the counts of each router."""
        config = self.config
        batch, length = config["batch.global"], config["batch.seq_len"]
        micro = config["batch.micro"] * data_ranks(config)  # sequences of a pass, over all data ranks
        copies = 2 if config["model.consistency"] else 1  # consecutive sequences of a pass that are the same sample
        so_far: dict = {}
        metrics: dict[str, float] = {}
        counts: dict[Router, Tensor] = {}
        self.model.largest.clear()
        for first in range(0, batch, micro):
            start = (step * batch + first) // copies * length
            run = samples(tokens[start : start + micro // copies * length + 1], length)
            run = (part.repeat_interleave(copies, 0) for part in run)
            loss, losses, routings = self.model.forward(Pass(*run, step, first * length, True, so_far))
            parts = {"loss": loss} | losses
            (sum(parts.values()) * (micro / batch)).backward()
            balance = sum((part for name, part in losses.items() if name not in ("mtp_loss", "head_z_loss", "dropout_loss", "consistency_loss")), torch.zeros(()))
            for name, part in (parts | {"balance_loss": balance}).items():
                metrics[name] = metrics.get(name, 0.0) + part.item() * (micro / batch)
            for router, routing in routings.items():
                counts[router] = counts.get(router, 0) + self.model.counts(router, routing)
        metrics["grad_norm"] = self.update(step)
        if config["optim.qk_clip"]:
            self.clipped_steps += clip_qk(config, self.model.w, self.model.largest)
            for layer in range(config["model.layers"]):
                metrics[f"layer_attention_logit/{layer}"] = self.model.largest[f"model/layers/{layer}/self_attn"].max().item()
        self.move_biases(counts)
        return metrics, counts

    def update(self, step: int) -> float:
        """Clips the gradients, updates the weights, and returns the gradient norm before clipping."""
        for p in self.trained:
            # Weight decay applies even if no loss has reached the tensor.
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        for p, rows in self.still:
            p.grad[rows] = 0
        norm = torch.stack([p.grad.norm() for p in self.trained]).norm().item()
        for p in self.trained:
            p.grad *= min(1.0, self.config["optim.clip_norm"] / norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, step)
        kept = [p[rows].detach().clone() for p, rows in self.still]  # weight decay would change them
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.muon.step(learning_rate(self.config, step))
        with torch.no_grad():
            for (p, rows), values in zip(self.still, kept):
                p[rows] = values
        return norm

    def move_biases(self, counts: dict[Router, Tensor]) -> None:
        """b += u · sign(mean count - count), with the counts of the whole step [DeepSeek-V3, 2.1.2]. Adapters freeze it."""
        if self.config["optim.lora_rank"] > 0:
            return
        for router, (made, _) in counts.items():
            if (name := f"{router.at}/gate/e_score_correction_bias") in self.model.w:
                count = made.sum(0).double()
                self.model.w[name] += self.config["balance.bias_rate"] * (count.mean() - count).sign()

    @torch.no_grad()
    def validate(self, tokens: Tensor) -> float:
        return self.model.forward(Pass(*samples(tokens, self.config["batch.seq_len"])))[0].item()


def data_ranks(config: dict) -> int:
    return config.get("ranks", 1) // (config.get("parallel.pipeline", 1) * config.get("parallel.tensor", 1))


def moved_rows(name: str, rows: int, patterns: str) -> Tensor:
    """Returns a mask of the rows of a tensor that optim.train_only selects, [rows]; all rows if it is empty."""
    if not patterns:
        return torch.ones(rows, dtype=torch.bool)
    moved = torch.zeros(rows, dtype=torch.bool)
    for pattern in patterns.split(","):
        pattern, first, last = re.fullmatch(r"(.*?)(?:\[(\d*):(\d*)\])?", pattern.strip()).groups()
        if fnmatch.fnmatchcase(name, pattern):
            moved[int(first or 0) : int(last or rows)] = True
    return moved


def samples(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Returns inputs and targets, [sequences, length], of consecutive tokens; there is one more token than inputs."""
    return tokens[:-1].view(-1, length), tokens[1:].view(-1, length)
