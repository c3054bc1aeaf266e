"""The DeepSeekMoE model of `lyceum train` in plain PyTorch, with which compare_pytorch.py compares Lyceum.

It is written for speed: one product for q, k and v, one for gate and up, fused attention and AdamW, and tokens sorted by
expert, so that every expert multiplies one contiguous block of rows. On a GPU, one grouped product computes all experts, and
nothing between router and experts waits for the device.
"""
import math
from pathlib import Path

import h5py
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Gather(torch.autograd.Function):
    """Returns rows x[order // copies], where `order` is a permutation of the `copies` copies of every row. Autograd's own
    gradient of indexing adds row by row on one thread; with the inverse permutation it is a gather and a sum."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.copies = copies
        return x.index_select(0, order // copies if copies > 1 else order)

    @staticmethod
    def backward(ctx, dy: Tensor):
        (inverse,) = ctx.saved_tensors
        dx = dy.index_select(0, inverse)
        return (dx.view(-1, ctx.copies, dy.shape[1]).sum(1) if ctx.copies > 1 else dx), None, None, None


def grouped_mm():
    """Returns PyTorch's grouped product, f(rows, matrices, offs=ends of the groups), or None if this version has none."""
    return getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class Linear(nn.Linear):
    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)


class SwiGLU(nn.Module):
    def __init__(self, hidden: int, width: int):
        super().__init__()
        self.gate_up = Linear(hidden, 2 * width)
        self.down = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Experts(nn.Module):
    """Routed SwiGLU experts on rows sorted by expert, with one product per expert and matrix.

    On the CPU this is faster than grouped_mm, which loops over experts, too, and requires padded widths. One tensor per
    expert is faster than one for all, whose gradient would have to be assembled."""

    def __init__(self, hidden: int, widths: list[int]):
        super().__init__()
        self.gate_up = nn.ParameterList(torch.empty(2 * width, hidden) for width in widths)
        self.down = nn.ParameterList(torch.empty(hidden, width) for width in widths)

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        outputs = []
        for x, gate_up, down in zip(rows.split(counts.tolist()), self.gate_up, self.down):
            gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
            outputs.append(F.linear(F.silu(gate) * up, down))
        return torch.cat(outputs)

    def matrices(self):
        """Yields (gate, up, down) of each expert."""
        for gate_up, down in zip(self.gate_up, self.down):
            yield *gate_up.chunk(2), down


class GroupedExperts(nn.Module):
    """Experts with two grouped products, for experts of equal width. Rows of a matrix must begin at multiples of 16 bytes,
    so the width is padded. The padding is zero, gets no gradient, and stays zero."""

    def __init__(self, hidden: int, widths: list[int]):
        super().__init__()
        self.width, padded = widths[0], -(-widths[0] // 8) * 8
        self.gate_up = nn.Parameter(torch.zeros(len(widths), 2 * padded, hidden))
        self.down = nn.Parameter(torch.zeros(len(widths), hidden, padded))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        ends = counts.cumsum(0, dtype=torch.int32)
        multiply = grouped_mm()
        kind = torch.bfloat16 if torch.is_autocast_enabled(rows.device.type) else rows.dtype
        rows, gate_up, down = rows.to(kind), self.gate_up.to(kind), self.down.to(kind)
        gate, up = multiply(rows, gate_up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
        return multiply(F.silu(gate) * up, down.transpose(1, 2), offs=ends)

    def matrices(self):
        gate, up = self.gate_up.chunk(2, dim=1)
        for e in range(len(self.down)):
            yield gate[e, : self.width], up[e, : self.width], self.down[e, :, : self.width]


class MoE(nn.Module):
    """Shared experts plus the top-k routed ones [DeepSeekMoE eq. 9-11], with balance losses [eq. 12-17]."""

    def __init__(self, config: dict):
        super().__init__()
        hidden, width = config["model.hidden"], config["moe.expert_hidden"]
        self.config = config
        self.top_k = config["moe.top_k"]
        self.experts_count = config["moe.experts"]
        self.router = Linear(hidden, self.experts_count)
        widths = config["moe.expert_sizes"] or [width] * self.experts_count
        self.experts = (GroupedExperts if config["grouped"] else Experts)(hidden, widths)
        self.shared = SwiGLU(hidden, config["moe.shared_experts"] * width) if config["moe.shared_experts"] else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.flatten(0, 1)
        with torch.autocast(x.device.type, enabled=False):  # the router stays in f32
            logits = self.router(tokens.float())
            scores = logits.softmax(-1)
        gates, chosen = scores.topk(self.top_k)
        if self.config["moe.gates"] == "renormalized":
            gates = gates / gates.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        # [sequences · tokens, k, experts]; summed below per sequence: [sequences, experts].
        load = F.one_hot(chosen, self.experts_count)
        load = load.view(x.shape[0], -1, self.experts_count).sum(1)
        rows = self.experts(Gather.apply(tokens, order, inverse, self.top_k), load.sum(0))
        rows = Gather.apply(rows, inverse, order, 1).view(*gates.shape, -1)
        y = torch.bmm(gates.unsqueeze(1).to(rows.dtype), rows).view_as(x)
        if self.shared is not None:
            y = y + self.shared(x)
        return y, self.balance_loss(logits.view(*x.shape[:2], -1), scores.view(*x.shape[:2], -1), load)

    def balance_loss(self, logits: Tensor, scores: Tensor, load: Tensor) -> Tensor:
        """Returns the balance losses, averaged over sequences. logits and scores are [sequences, tokens, experts]."""
        config = self.config
        f = load * (self.experts_count / (self.top_k * scores.shape[1]))
        if config["balance.scope"] == "batch":
            f = f.mean(0, keepdim=True)
        p = scores.mean(1)
        loss = config["balance.expert"] * (f * p).sum(1).mean()
        if config["balance.device"]:
            groups = [part.shape[1] for part in p.tensor_split(config["balance.device_groups"], dim=1)]
            pairs = zip(f.split(groups, 1), p.split(groups, 1))
            loss = loss + config["balance.device"] * sum((a.mean(1) * b.sum(1)).mean() for a, b in pairs)
        if config["balance.z_loss"]:
            loss = loss + config["balance.z_loss"] * logits.logsumexp(-1).square().mean()
        return loss


class Attention(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.heads, self.kv_heads = config["model.heads"], config["model.kv_heads"]
        self.head_dim = config["model.head_dim"]
        self.qkv = Linear(config["model.hidden"], (self.heads + 2 * self.kv_heads) * self.head_dim)
        self.out = Linear(self.heads * self.head_dim, config["model.hidden"])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        sequences, length, _ = x.shape
        qkv = self.qkv(x).view(sequences, length, -1, self.head_dim).transpose(1, 2)  # [sequences, heads, length, dim]
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        low, high = qk.chunk(2, dim=-1)
        qk = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(v.dtype)
        q, k = qk.split([self.heads, self.kv_heads], dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config: dict, layer: int):
        super().__init__()
        hidden, eps = config["model.hidden"], config["model.norm_eps"]
        self.attention_norm = nn.RMSNorm(hidden, eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(hidden, eps)
        self.sparse = layer >= config["model.first_dense_layers"] and config["moe.experts"] > 0
        shared = config["moe.shared_experts"] * config["moe.expert_hidden"]
        always_on = shared if layer >= config["model.first_dense_layers"] else 0
        self.ffn = MoE(config) if self.sparse else SwiGLU(hidden, always_on or config["model.ffn_hidden"])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor | None]:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        if not self.sparse:
            return x + self.ffn(self.ffn_norm(x)), None
        y, loss = self.ffn(self.ffn_norm(x))
        return x + y, loss


class Transformer(nn.Module):
    """A transformer of Llama blocks. `config` has the resolved keys as printed by `lyceum train --print-config`, in the form
    `section.key`, and `grouped`: True if grouped products compute the experts."""

    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        vocab, hidden, eps = config["model.vocab"], config["model.hidden"], config["model.norm_eps"]
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config["model.layers"]))
        self.norm = nn.RMSNorm(hidden, eps)
        self.head = Linear(hidden, vocab)
        if config["model.tie_embeddings"]:
            self.head.weight = self.embedding.weight
        half = config["model.head_dim"] // 2
        rate = config["model.rope_base"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(config["batch.seq_len"], dtype=torch.float64)[:, None] * rate
        self.register_buffer("cos", angle.cos().float())
        self.register_buffer("sin", angle.sin().float())

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the cross-entropy in nats per token and the sum of the balance losses. Tokens: [sequences, length]."""
        x = self.embedding(inputs)
        balance = x.new_zeros((), dtype=torch.float32)
        for block in self.blocks:
            x, loss = block(x, self.cos, self.sin)
            if loss is not None:
                balance = balance + loss
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), balance

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Fills matrices with normally distributed numbers, and norms with ones."""
        generator = torch.Generator(self.head.weight.device).manual_seed(seed)
        for _, part in self.logical_tensors():
            if part.dim() > 1:
                part.normal_(std=self.config["model.init_std"], generator=generator)
            else:
                part.fill_(1)

    def logical_tensors(self):
        """Yields pairs (name in a checkpoint of Lyceum, the parameter or the part of it with that tensor)."""
        yield "model/embed_tokens/weight", self.embedding.weight
        yield "model/norm/weight", self.norm.weight
        if not self.config["model.tie_embeddings"]:
            yield "lm_head/weight", self.head.weight
        for layer, block in enumerate(self.blocks):
            at = f"model/layers/{layer}/"
            yield at + "input_layernorm/weight", block.attention_norm.weight
            yield at + "post_attention_layernorm/weight", block.ffn_norm.weight
            attention = block.attention
            rows = [heads * attention.head_dim for heads in (attention.heads, attention.kv_heads, attention.kv_heads)]
            for name, part in zip("qkv", attention.qkv.weight.split(rows)):
                yield f"{at}self_attn/{name}_proj/weight", part
            yield at + "self_attn/o_proj/weight", attention.out.weight
            if not block.sparse:
                yield from ffn_tensors(at + "mlp/", block.ffn.gate_up.weight, block.ffn.down.weight)
                continue
            yield at + "mlp/gate/weight", block.ffn.router.weight
            if block.ffn.shared is not None:
                shared = block.ffn.shared
                yield from ffn_tensors(at + "mlp/shared_experts/", shared.gate_up.weight, shared.down.weight)
            for e, (gate, up, down) in enumerate(block.ffn.experts.matrices()):
                yield f"{at}mlp/experts/{e}/gate_proj/weight", gate
                yield f"{at}mlp/experts/{e}/up_proj/weight", up
                yield f"{at}mlp/experts/{e}/down_proj/weight", down

    @torch.no_grad()
    def load_checkpoint(self, directory: Path) -> None:
        """Loads the weights of a checkpoint of Lyceum. Raises ValueError if its tensors are not those of the model."""
        with h5py.File(directory / "index.h5") as file:
            names = set()
            for root in ("model", "lm_head"):
                if root in file:
                    file[root].visititems(
                        lambda name, item: names.add(f"{root}/{name}") if isinstance(item, h5py.Dataset) else None
                    )
            mine = dict(self.logical_tensors())
            if names != set(mine):
                raise ValueError(f"{directory}: has other tensors, such as {sorted(names ^ set(mine))[0]}")
            for name, part in mine.items():
                part.copy_(torch.from_numpy(file[name][...]))


def ffn_tensors(prefix: str, gate_up: Tensor, down: Tensor):
    gate, up = gate_up.chunk(2)
    yield prefix + "gate_proj/weight", gate
    yield prefix + "up_proj/weight", up
    yield prefix + "down_proj/weight", down


def learning_rate(config: dict, step: int) -> float:
    """Returns the learning rate of the update that follows `step` updates."""
    lr, least, warm = config["optim.lr"], config["optim.min_lr"], config["optim.warmup_steps"]
    steps = config["optim.schedule_steps"] or config["run.steps"]
    first = config["optim.warmup_from"]
    if step < warm:
        return first + (lr - first) * step / warm if first > 0 else lr * (step + 1) / warm
    if config["optim.schedule"] == "constant":
        return lr
    if config["optim.schedule"] == "step":
        drops = (step >= 0.8 * steps) + (step >= 0.9 * steps)
        return max(least, lr * 0.316**drops)
    if config["optim.schedule"] == "wsd":
        decay = config["optim.decay_steps"] or max(1.0, 0.1 * steps)
        return least + (lr - least) * min(1.0, max(0.0, (steps - 1 - step) / decay))
    progress = min(1.0, (step - warm) / (steps - 1 - warm)) if steps - 1 > warm else 1.0
    return least + 0.5 * (lr - least) * (1 + math.cos(math.pi * progress))
