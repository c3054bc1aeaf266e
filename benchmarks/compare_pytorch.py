#!/usr/bin/env python3
"""Compares Lyceum with PyTorch on the CPU or on one GPU: the same DeepSeekMoE, tokens, precision and number of threads.

    .venv/bin/python benchmarks/compare_pytorch.py [--device cuda] [--equality-only | --speed-only] [--section.key=value ...]

Equality: both train from the weights of one checkpoint; loss, balance loss and gradient norm of every step must agree.
Speed: short runs of both in turns. The ratio of each round is one sample, so that changes of the machine's load affect both
sides equally. Needs `scripts/install-deps.sh --torch` and a built program.
"""
import argparse
import json
import math
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import torch

from pytorch_model import Attention, Block, SwiGLU, Transformer, grouped_mm, learning_rate

ROOT = Path(__file__).resolve().parent.parent

# Largest relative difference allowed, and the part of the steps, from the first on, in which. The recipes for bf16 differ:
# Lyceum keeps weights and activations in bf16, autocast keeps both in f32 and rounds the operands of products. So results agree
# only to the precision of bf16. Then the weights drift apart, and the norm of a gradient that rises to a multiple differs by a third.
TOLERANCE = {
    "f32": {"loss": (1e-4, 1), "balance_loss": (1e-3, 1), "grad_norm": (1e-3, 1)},
    "bf16": {"loss": (5e-3, 1), "balance_loss": (2e-3, 0.2), "grad_norm": (2e-2, 0.2)},
}


def write_tokens(prefix: Path, count: int, vocab: int, seed: int = 1) -> np.ndarray:
    """Writes Megatron .bin/.idx files with one document and returns its tokens. They have the frequencies of words in a text
    (Zipf), so that there is something to learn."""
    frequency = 1 / np.arange(1, vocab + 1)
    random = np.random.default_rng(seed)
    tokens = random.choice(random.permutation(vocab), size=count, p=frequency / frequency.sum())
    code, kind = (8, "<u2") if vocab <= 1 << 16 else (4, "<i4")
    prefix.with_suffix(".bin").write_bytes(tokens.astype(kind).tobytes())
    header = b"MMIDIDX\0\0" + np.uint64(1).tobytes() + bytes([code]) + np.array([1, 2], "<u8").tobytes()
    lengths, offsets, documents = np.array([count], "<i4"), np.array([0], "<i8"), np.array([0, 1], "<i8")
    prefix.with_suffix(".idx").write_bytes(header + lengths.tobytes() + offsets.tobytes() + documents.tobytes())
    return tokens


def read_tokens(prefix: Path, count: int) -> np.ndarray:
    """Returns the first `count` tokens of PREFIX.bin. Byte 17 of PREFIX.idx, after 9 bytes of magic and 8 of version, is the
    type. Exits if the type is not supported or there are too few tokens."""
    code = prefix.with_suffix(".idx").read_bytes()[17]
    kinds = {4: "<i4", 8: "<u2"}
    if code not in kinds:
        sys.exit(f"{prefix}.idx: tokens have the type {code}; supported are 4 (i32) and 8 (u16)")
    tokens = np.fromfile(prefix.with_suffix(".bin"), kinds[code], count)
    if len(tokens) < count:
        sys.exit(f"{prefix}.bin: has {len(tokens)} tokens, needs {count}")
    return tokens.astype(np.int64)


class Lyceum:
    """One rank of the program `lyceum train` with the configuration and changes of its keys."""

    def __init__(self, arguments, directory: Path, precision: str, steps: int, changes: list[str]):
        self.directory, self.steps = directory, steps
        keys = {
            "run.dir": directory / "run",
            "run.steps": steps,
            "run.precision": precision,
            "run.device": arguments.device,
            "run.threads": arguments.threads,
            "data.train": arguments.tokens or directory / "tokens",
            "data.tokenizer": "",
            "data.order": "sequential",
            "data.valid_fraction": 0,
            "eval.every": 0,
            "routing.every": 0,
            "checkpoint.every": 0,
            "checkpoint.minutes": 0,
            "parallel.expert": 1,
        }
        self.command = [arguments.program, "train", f"--config={arguments.config}"]
        # Later options win: the command line over this script's changes, and the keys that the comparison depends on
        # over both.
        self.command += changes + arguments.changes + [f"--{key}={value}" for key, value in keys.items()]
        self.environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads)}
        self.config = self._config()

    def _config(self) -> dict:
        """Returns the resolved configuration, with Lyceum's own defaults. Numbers and booleans are converted."""
        shown = subprocess.run(self.command + ["--print-config"], capture_output=True, text=True)
        if shown.returncode:
            sys.exit(shown.stderr.strip())
        config = {}
        for line in shown.stdout.splitlines():
            key, value = (part.strip() for part in line.rsplit(" # ", 1)[0].split("=", 1))
            try:
                config[key] = json.loads(value)  # numbers, true, false
            except ValueError:
                config[key] = value
        sizes = str(config["moe.expert_sizes"]).replace(",", " ").split()
        config["moe.expert_sizes"] = [int(size) for size in sizes]
        return config

    def train(self) -> list[dict]:
        """Trains from the start and returns the metrics of every step. Kills the program afterwards, since its last checkpoint
        is not needed. Exits if it ends early."""
        metrics = self.directory / "run" / "metrics.jsonl"
        shutil.rmtree(metrics.parent, ignore_errors=True)  # remove earlier checkpoints, so that it trains from the start
        log = self.directory / "lyceum.log"
        with log.open("w") as out:
            program = subprocess.Popen(self.command, env=self.environment, stdout=out, stderr=out)
            try:
                while program.poll() is None and read_lines(metrics) < self.steps:
                    time.sleep(0.2)
            finally:
                program.kill()
                program.wait()
        if read_lines(metrics) < self.steps:
            sys.exit(f"lyceum ended early:\n{log.read_text()}")
        steps = [json.loads(line) for line in metrics.read_text().splitlines()[: self.steps]]
        return [{key: float("nan") if value is None else value for key, value in step.items()} for step in steps]


def read_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


class PyTorch:
    """The same training run in PyTorch."""

    def __init__(self, config: dict, tokens: np.ndarray, arguments):
        supported = {"model.attention": "mha", "moe.router": "softmax", "moe.capacity_factor": 0}
        for key, value in supported.items():
            if config[key] != value:
                sys.exit(f"{key}={config[key]}: the PyTorch model supports only {value}")
        self.device = torch.device(arguments.device)
        self.config = config | {"grouped": grouped(arguments, config)}
        self.tokens = torch.from_numpy(tokens).to(self.device)
        self.model = Transformer(self.config).to(self.device)
        self.compiled = compiles(self.config, arguments)
        for module in self.model.modules():
            if isinstance(module, self.compiled):
                module.compile()
        self.restart()

    def park(self) -> None:
        """Moves the model off the GPU, so that the other side can use all of its memory."""
        self.optimizer = None
        self.model.zero_grad()
        if self.device.type == "cuda":
            self.model.to("cpu")
            torch.cuda.empty_cache()

    def restart(self) -> None:
        optim = self.config
        self.model.to(self.device)
        norms = [p for p in self.model.parameters() if p.dim() <= 1]
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": norms, "weight_decay": 0.0}],
            lr=optim["optim.lr"],
            betas=(optim["optim.beta1"], optim["optim.beta2"]),
            eps=optim["optim.eps"],
            weight_decay=optim["optim.weight_decay"],
            fused=True,
        )

    def warm_up(self) -> None:
        """Runs a step to compile the modules that are to be compiled. If that fails, continues without torch.compile."""
        try:
            self.step(0)
        except Exception as error:  # whatever a compiler may raise
            if not self.compiled:
                raise
            print(f"note: torch.compile failed, continuing without: {type(error).__name__}: {str(error).splitlines()[0]}")
            self.compiled = ()
            for module in self.model.modules():
                module._compiled_call_impl = None
            self.optimizer.zero_grad()
            self.step(0)

    def clip(self, exact: bool) -> float:
        """Clips the gradients and returns their norm. With `exact`, squares are added in f64, as Lyceum does. PyTorch's own
        norm adds them in f32, which has an error of 1e-3 for a gradient of four million elements."""
        limit = self.config["optim.clip_norm"] or float("inf")
        parameters = list(self.model.parameters())
        if not exact:
            return torch.nn.utils.clip_grad_norm_(parameters, limit).item()
        norms = [torch.linalg.vector_norm(p.grad, dtype=torch.float64) for p in parameters]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        return norm.item()

    def step(self, step: int, exact_norm: bool = False) -> dict:
        start = time.perf_counter()
        config = self.config
        batch, micro, length = config["batch.global"], config["batch.micro"], config["batch.seq_len"]
        losses = torch.zeros(2, device=self.device)
        for first in range(step * batch, (step + 1) * batch, micro):
            samples = self.tokens[first * length : (first + micro) * length + 1]
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config["run.precision"] == "bf16"):
                parts = self.model(samples[:-1].view(micro, length), samples[1:].view(micro, length))
            (sum(parts) * (micro / batch)).backward()
            losses += torch.stack(parts).detach() * (micro / batch)
        norm = self.clip(exact_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss, balance = losses.tolist()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        milliseconds = 1e3 * (time.perf_counter() - start)
        return {"loss": loss, "balance_loss": balance, "grad_norm": norm, "step_ms": milliseconds}


def grouped(arguments, config: dict) -> bool:
    """Returns True if grouped products compute the experts: by default on a GPU, or if requested. If they cannot be used,
    prints the reason and returns False."""
    wanted = arguments.experts == "grouped" or (arguments.experts == "auto" and arguments.device == "cuda")
    if not wanted or not config["moe.experts"]:
        return False
    reason = ""
    if len(set(config["moe.expert_sizes"])) > 1:
        reason = "experts of several widths"
    elif grouped_mm() is None:
        reason = f"PyTorch {torch.__version__} has no grouped_mm"
    elif arguments.device == "cuda" and config["run.precision"] != "bf16":
        reason = "grouped_mm on a GPU knows only bf16"
    elif config["model.hidden"] % 8:
        reason = "model.hidden is no multiple of 8"
    if reason:
        print(f"note: one product per expert instead of a grouped one: {reason}")
    return not reason


def compiles(config: dict, arguments) -> tuple:
    """Returns the module classes to compile: whole blocks, or smaller modules if experts are computed in a loop, which
    would be unrolled and take minutes to compile."""
    if not arguments.compile:
        return ()
    return (Block,) if config["grouped"] else (Attention, SwiGLU, torch.nn.RMSNorm)


def relative(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b)) if a != b else 0.0


def conclude(results: dict, head: dict, report: Path | None) -> int:
    """Prints how many cases are "equal", writes `head` and the results as JSON to `report`, and returns the exit code."""
    failed = [name for name, result in results.items() if not result["equal"]]
    print(f"\n{len(results) - len(failed)} of {len(results)} cases agree")
    if report:
        report.write_text(json.dumps(head | {"cases": results}, indent=2) + "\n")
    return 1 if failed else 0


def check_equality(arguments, precision: str) -> dict:
    steps = arguments.equality_steps
    # A short batch, and a schedule with warm-up, plateau and decay within the run: updates are large enough to reveal
    # errors.
    changes = [f"--batch.global={arguments.equality_batch}", f"--batch.seq_len={arguments.equality_length}"]
    changes += ["--batch.micro=0", f"--optim.warmup_steps={steps // 4}", "--checkpoint.at_start=true"]
    with tempfile.TemporaryDirectory(prefix="lyceum-equality-") as name:
        directory = Path(name)
        lyceum = Lyceum(arguments, directory, precision, steps, changes)
        config = lyceum.config
        count = steps * config["batch.global"] * config["batch.seq_len"] + 1
        tokens = make_tokens(arguments, directory, count, config["model.vocab"])
        theirs = lyceum.train()
        pytorch = PyTorch(config, tokens, arguments)
        pytorch.warm_up()
        pytorch.park()
        pytorch.restart()
        pytorch.model.load_checkpoint(directory / "run/checkpoints/step-00000000")
    print(f"\nequality, {precision}: {steps} steps of {config['batch.global']} x {config['batch.seq_len']} tokens")
    print(f"{'step':>4}" + "".join(f" {title:>12} {'PyTorch':>11} {'rel.':>8}" for title in TOLERANCE[precision]))
    worst = dict.fromkeys(TOLERANCE[precision], 0.0)
    for step in range(steps):
        ours, row = pytorch.step(step, exact_norm=True), f"{step + 1:4}"
        for key in worst:
            difference = relative(theirs[step][key], ours[key])
            compared = step < steps * TOLERANCE[precision][key][1] or not math.isfinite(difference)
            if compared and not worst[key] != worst[key] and not difference <= worst[key]:  # once NaN, always NaN
                worst[key] = difference
            row += f" {theirs[step][key]:12.6f} {ours[key]:11.6f} {difference:8.1e}"
        print(row, flush=True)
    equal = True
    for key, (limit, part) in TOLERANCE[precision].items():
        good = worst[key] <= limit
        equal = equal and good
        verdict = "ok" if good else "FAILED"
        first = f" in the first {math.ceil(steps * part)} steps" if part < 1 else ""
        print(f"{key:<13} largest relative difference{first} {worst[key]:.1e}, allowed {limit:.0e}: {verdict}")
    compared = {key: math.ceil(steps * part) for key, (_, part) in TOLERANCE[precision].items()}
    return {"equal": equal, "largest_relative_difference": worst, "steps": steps, "compared_steps": compared}


def make_tokens(arguments, directory: Path, count: int, vocab: int) -> np.ndarray:
    """Returns the tokens that both sides read: the given files, or random ones in `directory`."""
    if arguments.tokens:
        return read_tokens(arguments.tokens, count)
    return write_tokens(directory / "tokens", count, vocab)


def summary(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def measure_speed(arguments, precision: str) -> dict:
    steps = arguments.steps + 1  # the first step is not timed: it compiles kernels and touches memory
    changes = [f"--batch.global={arguments.batch}", "--batch.micro=0"] if arguments.batch else []
    rates: dict[str, list[float]] = {"Lyceum": [], "PyTorch": []}
    with tempfile.TemporaryDirectory(prefix="lyceum-speed-") as name:
        directory = Path(name)
        lyceum = Lyceum(arguments, directory, precision, steps, changes)
        config = lyceum.config
        step_tokens = config["batch.global"] * config["batch.seq_len"]
        tokens = make_tokens(arguments, directory, steps * step_tokens + 1, config["model.vocab"])
        pytorch = PyTorch(config, tokens, arguments)
        pytorch.model.initialize(seed=1)
        pytorch.warm_up()
        shape = f"{config['batch.global']} x {config['batch.seq_len']} tokens a step"
        print(f"\nspeed, {precision}: {shape}, {arguments.threads} threads, {arguments.steps} steps per run", flush=True)
        print(f"{'round':>6} {'Lyceum tok/s':>14} {'PyTorch tok/s':>14} {'ratio':>7}")
        losses = {}
        for turn in range(arguments.rounds):
            pytorch.park()
            runs = {"Lyceum": lyceum.train()}
            pytorch.restart()
            pytorch.model.initialize(seed=1)  # the same state of routing as Lyceum's: that at the start of training
            runs["PyTorch"] = [pytorch.step(step) for step in range(steps)]
            for side, run in runs.items():
                seconds = sum(step["step_ms"] for step in run[1:]) / 1e3
                rates[side].append(arguments.steps * step_tokens / seconds)
                losses[side] = [run[0]["loss"], run[-1]["loss"]]
            ours, theirs = rates["Lyceum"][-1], rates["PyTorch"][-1]
            print(f"{turn + 1:6} {ours:14.0f} {theirs:14.0f} {ours / theirs:7.2f}", flush=True)
    for side, (first, last) in losses.items():
        print(f"{side:<8} loss {first:.4f} in the first step, {last:.4f} in step {steps} (initial weights differ)")
    ratios = [a / b for a, b in zip(rates["Lyceum"], rates["PyTorch"])]
    for side in rates:
        print(f"{side:<8} {summary(rates[side], '.0f')} tokens/s")
    print(f"Lyceum / PyTorch {summary(ratios, '.2f')}: median (smallest - largest) of {arguments.rounds} rounds")
    result = {"tokens_per_second": rates, "ratio": ratios, "ratio_median": statistics.median(ratios)}
    return result | {"tokens_a_step": step_tokens, "losses": losses, "grouped_mm": pytorch.config["grouped"]}


def environment(arguments) -> dict:
    def output(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()

    gpu = ""
    if arguments.device == "cuda":
        what = "name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu"
        try:
            gpu = output("nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader")
        except OSError:
            gpu = torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")), "")
    wanted = ("avx512f", "avx512_bf16", "amx_bf16")
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": model or platform.processor(),
        "cpu_features": [flag for flag in wanted if f" {flag}" in cpuinfo],
        "cores": len(os.sched_getaffinity(0)),
        "threads": arguments.threads,
        "load_at_start": round(os.getloadavg()[0], 1),
        "lyceum": output(arguments.program, "--version"),
        "commit": os.environ.get("LYCEUM_COMMIT") or output("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "torch": torch.__version__,
        "torch_compile": arguments.compile,
        "device": arguments.device,
        "gpu": gpu,
        "python": platform.python_version(),
        "config": " ".join([str(arguments.config), *arguments.changes]),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="device of both sides")
    parser.add_argument("--config", type=Path, default=ROOT / "configs/deepseekmoe-small.ini")
    parser.add_argument("--precision", choices=("f32", "bf16", "both"), default="both")
    parser.add_argument("--steps", type=int, default=5, help="timed steps per run, after one that is not timed")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program, alternating")
    parser.add_argument("--batch", type=int, help="sequences per step when measuring speed; default: the configuration's")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction,
                        help="apply torch.compile to the PyTorch model where possible; default: on a GPU")
    parser.add_argument("--experts", choices=("auto", "grouped", "loop"), default="auto",
                        help="in PyTorch: one grouped product for all experts, or one per expert; default: grouped on a GPU")
    parser.add_argument("--tokens", type=Path, metavar="PREFIX",
                        help="token files to read, written by lyceum tokenize; default: random tokens, distributed as words in a text")
    parser.add_argument("--equality-steps", type=int, default=20)
    parser.add_argument("--equality-batch", type=int, default=2, help="sequences per step")
    parser.add_argument("--equality-length", type=int, default=128, help="tokens per sequence")
    parser.add_argument("--program", help="lyceum; default: build/cpu/apps/lyceum, or that of build/cuda for a GPU")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the results there")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--equality-only", action="store_true")
    which.add_argument("--speed-only", action="store_true")
    arguments, arguments.changes = parser.parse_known_args()
    for change in arguments.changes:
        if not re.fullmatch(r"--\w+\.\w+=.*", change):
            parser.error(f"no such option: {change}")
    if min(arguments.steps, arguments.rounds, arguments.threads, arguments.equality_steps) < 1:
        parser.error("--steps, --rounds, --threads and --equality-steps must be at least 1")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no GPU")
    if arguments.compile is None:
        arguments.compile = arguments.device == "cuda"
    arguments.program = arguments.program or str(ROOT / f"build/{arguments.device}/apps/lyceum")
    if not Path(arguments.program).is_file():
        parser.error(f"no program {arguments.program}: build it, or name it with --program")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends lyceum and removes temporary files on the way out
    results = {"environment": environment(arguments), "equality": {}, "speed": {}}
    for key, value in results["environment"].items():
        print(f"{key:<14} {value}")
    precisions = ("f32", "bf16") if arguments.precision == "both" else (arguments.precision,)
    if arguments.device == "cpu" and "bf16" in precisions and not {"avx512_bf16", "amx_bf16"} & set(results["environment"]["cpu_features"]):
        print("note: this CPU has no bf16 products, so both sides emulate them; speed in bf16 means little here")
    for precision in precisions:
        if not arguments.speed_only:
            results["equality"][precision] = check_equality(arguments, precision)
        if not arguments.equality_only:
            results["speed"][precision] = measure_speed(arguments, precision)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(result["equal"] for result in results["equality"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
