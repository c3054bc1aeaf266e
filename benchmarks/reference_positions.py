"""Rotary positions in PyTorch, written from the papers, for reference_model.py."""
import math

import torch
from torch import Tensor


def yarn_ramp(config: dict, dim: int) -> Tensor:
    """Returns 0 for pairs whose frequency is kept, 1 for those whose frequency is divided [Peng et al. 2023, eq. 20, in terms of
    the index of the pair as in the code of its authors]."""
    length, base = config["model.rope_original_length"], config["model.rope_base"]
    bounds = [dim * math.log(length / (2 * math.pi * config[f"model.rope_beta_{speed}"])) / (2 * math.log(base))
              for speed in ("fast", "slow")]  # fmt: skip
    if config["model.rope_truncate"]:
        bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
    low, high = max(bounds[0], 0), min(bounds[1], dim - 1)
    pairs = torch.arange((dim + 1) // 2, dtype=torch.float64)
    return ((pairs - low) / (high - low if high != low else 0.001)).clamp(0, 1)


def frequencies(config: dict, dim: int) -> tuple[Tensor, float]:
    """Returns the angle of each pair per position, and the factor of queries and of keys."""
    plain = config["model.rope_base"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    kind, factor = config["model.rope_scaling"], config["model.rope_factor"]
    if kind == "linear":  # [Chen et al. 2023]
        return plain / factor, 1
    if kind == "llama3":
        low, high = config["model.rope_low_freq_factor"], config["model.rope_high_freq_factor"]
        turns = config["model.rope_original_length"] * plain / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return kept * plain + (1 - kept) * plain / factor, 1
    if kind == "yarn":
        ramp = yarn_ramp(config, dim)
        scale = config["model.rope_attention_factor"] or 0.1 * math.log(factor) + 1
        return (1 - ramp) * plain + ramp * plain / factor, scale
    return plain, 1


def rotate(config: dict, x: Tensor) -> Tensor:
    """Applies RoPE to the first columns of each head; x is [..., tokens, head_dim]."""
    rates, scale = frequencies(config, int(x.shape[-1] * config["model.rotary_fraction"]))
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * rates
    cos, sin = (scale * angle.cos()).to(x.dtype), (scale * angle.sin()).to(x.dtype)
    count = 2 * len(rates)
    rotated, rest = x[..., :count], x[..., count:]
    if config["model.rope_layout"] == "interleaved":
        one, other = rotated[..., ::2], rotated[..., 1::2]
        turned = torch.stack((one * cos - other * sin, other * cos + one * sin), -1).flatten(-2)
    else:
        one, other = rotated.split(count // 2, -1)
        turned = torch.cat((one * cos - other * sin, other * cos + one * sin), -1)
    return torch.cat((turned, rest), -1)
