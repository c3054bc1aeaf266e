#!/usr/bin/env python3
"""Compares training from imported weights with the same training by Hugging Face's transformers and PyTorch's AdamW, in f32 on the
CPU.

    .venv/bin/python benchmarks/compare_fine_tuning.py [--cases REGEX] [--seed N] [--program PATH] [--json OUT]

A case is a small model of transformers with random weights, norms, biases and sinks, and the plain formulas of attention
(attn_implementation = eager). Lyceum imports it, and both train it for STEPS steps on the same batches, without losses of routers.
The losses, the gradient norms before clipping, and the log-probabilities of all tokens of the vocabulary at each position, before
and after training, must agree. Needs `scripts/install-deps.sh --torch` and a built program.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers

from compare_pytorch import ROOT, conclude, relative, write_tokens
from compare_transformers import (DEEPSEEK, GPT_OSS, GROUPED, IMPORTED, LATENT, MSCALE, SEQ_LEN, SIGMOID, VOCAB, YARN, Lyceum, load,
                                  new_model, save)  # fmt: skip

STEPS, BATCH, RATE, CLIP = 16, 4, 1e-3, 1.0
DECAY = 1.0  # so large that decay of a wrong tensor shows in the trained model
# AdamW divides each gradient by its own size, so a large eps keeps those that consist of rounding errors small. Those of biases of
# keys almost do: they add nearly the same number to all scores of a query.
EPS = 1e-3
# Training amplifies rounding: transformers in f32 and in f64 differ as much. "trained" is therefore a mean.
LIMITS = {"logits": 1e-4, "trained": 1e-4, "loss": 1e-4, "gradient norm": 1e-3}
SEQUENCES = 2  # whose logits are compared
WIDE = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 3,
        "intermediate_size": 24, "rope_theta": 10000.0}  # fmt: skip
WIDE_LATENT = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48,
               "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "q_lora_rank": 12, "kv_lora_rank": 10,
               "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 9}  # fmt: skip
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "rope_theta": 10000.0}  # fmt: skip
CASES = {
    **{kind: (kind, IMPORTED[kind][1] | SIZES | {"head_dim": 8})
       for kind in ("llama", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "dots1", "minimax_m2")},
    "olmoe": ("olmoe", IMPORTED["olmoe"][1] | SIZES),
    "deepseek_v2": ("deepseek_v2", GROUPED | WIDE_LATENT | {"n_group": 4, "topk_group": 2}),
    "deepseek_v2, no latent of queries": ("deepseek_v2", DEEPSEEK | LATENT | WIDE_LATENT | {"q_lora_rank": None, "rope_scaling": MSCALE}),
    "deepseek_v3": ("deepseek_v3", SIGMOID | LATENT | WIDE_LATENT | {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}),
    "deepseek_v3, no latent of queries": ("deepseek_v3", SIGMOID | LATENT | WIDE_LATENT | {"q_lora_rank": None, "n_group": 1}),
    "deepseek_v3, yarn": ("deepseek_v3", SIGMOID | LATENT | WIDE_LATENT | {"rope_scaling": MSCALE | {"mscale": 1.0}}),
    "gpt_oss": ("gpt_oss", GPT_OSS | WIDE),
    "gpt_oss, three layers": ("gpt_oss", GPT_OSS | WIDE | {"num_hidden_layers": 3, "swiglu_limit": 7.0}),
    "gpt_oss, yarn": ("gpt_oss", GPT_OSS | WIDE | {"head_dim": 16,
                                                   "rope_parameters": YARN | {"truncate": False, "rope_theta": 10000.0}}),
    "gpt_oss, no biases of attention": ("gpt_oss", GPT_OSS | WIDE | {"attention_bias": False}),
}


class Predictions:
    """The log-probabilities of all tokens of the vocabulary after each token but the last of some sequences: logits up to a
    constant per position."""

    def __init__(self, lyceum: Lyceum):
        self.lyceum, self.data = lyceum, lyceum.folder / "variants"
        self.rows = np.random.default_rng(5).integers(0, VOCAB, (SEQUENCES, SEQ_LEN))
        # Variant [s, t, v] is sequence s with v after token t, so that its loss there is the log-probability of v.
        variants = np.broadcast_to(self.rows[:, None, None], (SEQUENCES, SEQ_LEN - 1, VOCAB, SEQ_LEN)).copy()
        for t in range(SEQ_LEN - 1):
            variants[:, t, :, t + 1] = np.arange(VOCAB)
        write_tokens(self.data, variants.size + 1, VOCAB)
        self.data.with_suffix(".bin").write_bytes(np.append(variants, 0).astype("<u2").tobytes())
        self.shape = variants.shape

    def ours(self, run: Path) -> np.ndarray:
        log = self.lyceum.folder / "variants.h5"
        self.lyceum.run("eval", f"--checkpoint={run}", f"--data.valid={self.data}", f"--token-log={log}", f"--batch.seq_len={SEQ_LEN}",
                        "--batch.global=64", "--batch.micro=64", "--run.threads=1", "--run.device=cpu")  # fmt: skip
        with h5py.File(log) as file:
            losses = file["loss"][...].reshape(self.shape)
        return -np.stack([losses[:, t, :, t] for t in range(SEQ_LEN - 1)], 1)

    @torch.no_grad()
    def theirs(self, model: torch.nn.Module) -> np.ndarray:
        return model.eval()(torch.tensor(self.rows)).logits[:, :-1].log_softmax(-1).numpy()

    def differences(self, run: Path, model: torch.nn.Module) -> np.ndarray:
        return np.abs(self.ours(run) - self.theirs(model))


def train_transformers(model: torch.nn.Module, tokens: np.ndarray) -> list[tuple[float, float]]:
    """Returns loss and gradient norm of every step. Makes the updates of `lyceum train` with a constant learning rate."""
    model.train()
    parts = list(model.parameters())
    # Some classes stack the biases of experts in a matrix.
    matrices = [p for name, p in model.named_parameters() if p.dim() > 1 and not name.endswith("bias")]
    others = [p for name, p in model.named_parameters() if p.dim() <= 1 or name.endswith("bias")]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
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
    """Returns the largest difference of log-probabilities before training, the mean difference after it, and the largest relative
    ones of all steps."""
    kind, settings = case
    source, run = lyceum.folder / "source", lyceum.folder / "run"
    save(new_model(kind, settings, seed), kind, settings, source)
    lyceum.run("convert", "import-hf", source, "--out", run)
    model = load(source)
    model.set_attn_implementation("eager")
    model.set_experts_implementation("eager")
    predictions = Predictions(lyceum)
    before = predictions.differences(run, model).max()
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
    return {"logits": float(before), "trained": float(predictions.differences(run, model).mean()),
            "loss": max(relative(a["loss"], b[0]) for a, b in zip(ours, theirs)),
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
    print(f"{STEPS} steps; differences of log-probabilities: the largest before training and the mean after it; "
          f"largest relative ones of loss and gradient norm; allowed {LIMITS}\n")
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
