#!/usr/bin/env python3
"""Compares training from imported weights with the same training by Hugging Face's transformers and PyTorch's AdamW, in f32 on the
CPU.

    .venv/bin/python benchmarks/compare_fine_tuning.py [--cases REGEX] [--seed N] [--program PATH] [--json OUT]

A case is a small model of transformers with random weights, norms and router biases, and the plain formulas of attention
(attn_implementation = eager). Lyceum imports it, and both train it for STEPS steps on the same batches, without losses of routers.
The losses, the gradient norms before clipping and the loss of every token before training must agree. Needs
`scripts/install-deps.sh --torch` and a built program.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from compare_pytorch import ROOT, conclude, relative, write_tokens
from compare_transformers import DEEPSEEK, GROUPED, LATENT, MSCALE, SEQ_LEN, SIGMOID, VOCAB, Lyceum, load, losses, new_model, save

STEPS, BATCH, RATE, CLIP, DECAY = 16, 4, 1e-3, 1.0, 0.1
# AdamW divides each gradient by its own size, so a large eps keeps those that consist of rounding errors small.
EPS = 1e-5
LIMITS = {"token": 1e-4, "loss": 1e-4, "gradient norm": 1e-3}
WIDE = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48,
        "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "q_lora_rank": 12, "kv_lora_rank": 10,
        "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 9}  # fmt: skip
CASES = {
    "deepseek_v2": ("deepseek_v2", GROUPED | WIDE | {"n_group": 4, "topk_group": 2}),
    "deepseek_v2, no latent of queries": ("deepseek_v2", DEEPSEEK | LATENT | WIDE | {"q_lora_rank": None, "rope_scaling": MSCALE}),
    "deepseek_v3": ("deepseek_v3", SIGMOID | LATENT | WIDE | {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}),
    "deepseek_v3, no latent of queries": ("deepseek_v3", SIGMOID | LATENT | WIDE | {"q_lora_rank": None, "n_group": 1}),
    "deepseek_v3, yarn": ("deepseek_v3", SIGMOID | LATENT | WIDE | {"rope_scaling": MSCALE | {"mscale": 1.0}}),
}


def train_transformers(model: torch.nn.Module, tokens: np.ndarray) -> list[tuple[float, float]]:
    """Returns loss and gradient norm of every step. Makes the updates of `lyceum train` with a constant learning rate."""
    model.train()
    parts = list(model.parameters())
    groups = [{"params": [p for p in parts if p.dim() > 1]}, {"params": [p for p in parts if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=EPS, weight_decay=DECAY)
    done = []
    for step in range(STEPS):
        first = step * BATCH * SEQ_LEN
        rows = torch.tensor(tokens[first : first + BATCH * SEQ_LEN + 1].astype(np.int64))
        logits = model(rows[:-1].view(BATCH, SEQ_LEN)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[1:])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parts, CLIP).item()
        optimizer.step()
        optimizer.zero_grad()
        done.append((loss.item(), norm))
    return done


def compare(case: tuple, lyceum: Lyceum, seed: int) -> dict:
    """Returns the largest difference of a token's loss before training, and the largest relative differences of all steps."""
    kind, settings = case
    source, run = lyceum.folder / "source", lyceum.folder / "run"
    save(new_model(kind, settings, seed), kind, settings, source)
    lyceum.run("convert", "import-hf", source, "--out", run)
    model = load(source)
    model.set_attn_implementation("eager")
    before = float(np.abs(lyceum.losses(run) - losses(model, lyceum.tokens)).max())
    tokens = write_tokens(lyceum.folder / "train", STEPS * BATCH * SEQ_LEN + 1, VOCAB, seed=3)
    keys = {"run.steps": STEPS, "run.device": "cpu", "run.threads": 1, "run.precision": "f32", "batch.seq_len": SEQ_LEN,
            "batch.global": BATCH, "batch.micro": BATCH, "data.train": lyceum.folder / "train", "data.order": "sequential",
            "optim.lr": RATE, "optim.schedule": "constant", "optim.warmup_steps": 0, "optim.weight_decay": DECAY,
            "optim.clip_norm": CLIP, "optim.beta1": 0.9, "optim.beta2": 0.95, "optim.eps": EPS,
            "balance.bias_rate": 0, "balance.expert": 0}  # fmt: skip
    lyceum.run("train", "--config", run / "config.ini", *(f"--{key}={value}" for key, value in keys.items()))
    ours = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    theirs = train_transformers(model, tokens)
    if len(ours) != len(theirs):
        raise RuntimeError(f"{len(ours)} steps, not {len(theirs)}")
    return {"token": before, "loss": max(relative(a["loss"], b[0]) for a, b in zip(ours, theirs)),
            "gradient norm": max(relative(a["grad_norm"], b[1]) for a, b in zip(ours, theirs)),
            "first and last loss": [theirs[0][0], theirs[-1][0]]}  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="only cases whose names begin with a match")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--program", default=str(ROOT / "build/cpu/apps/lyceum"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    program = str(Path(arguments.program).resolve())
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
    print(f"{version}, transformers {transformers.__version__}, PyTorch {torch.__version__}, seed {arguments.seed}")
    print(f"{STEPS} steps; largest differences of a token's loss, and relative ones of loss and gradient norm; allowed {LIMITS}\n")
    results = {}
    for name, case in CASES.items():
        if not re.match(arguments.cases, name):
            continue
        with tempfile.TemporaryDirectory(prefix="lyceum-fine-tuning-") as folder:
            try:
                result = compare(case, Lyceum(program, Path(folder)), arguments.seed)
            except Exception as error:  # of Lyceum, or one of the many types that transformers raises
                print(f"{name:<36}FAILED: {error}")
                results[name] = {"equal": False, "error": str(error)}
                continue
        equal = all(result[column] <= limit for column, limit in LIMITS.items())
        first, last = result["first and last loss"]
        print(f"{name:<36}" + "".join(f"{result[column]:10.1e}" for column in LIMITS)
              + f"   loss {first:.3f} -> {last:.3f}{'' if equal else '  FAILED'}", flush=True)  # fmt: skip
        results[name] = result | {"equal": equal}
    head = {"lyceum": version, "transformers": transformers.__version__, "torch": torch.__version__, "limits": LIMITS}
    return conclude(results, head, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
