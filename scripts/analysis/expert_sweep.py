#!/usr/bin/env python3
"""Evaluates trained models with some of their experts disabled, and draws the losses as the DeepSeekMoE paper does:
against the ratio of disabled top routed experts (its Figure 4), against the number of activated routed experts (its
Figure 5), and without shared experts, one more routed expert in their place.

    .venv/bin/python scripts/analysis/expert_sweep.py quickstart=runs/quickstart --batches 4 --out sweep.png

With --every-k instead: the loss for every number of routed experts that a token may choose, fewer and more than trained,
as a table and a picture (the "self-slimmable" models of SMoE-Dropout).

Every evaluation is saved in a JSON file next to the picture, so the same command resumes where it was stopped. Runs
without a choice of experts (dense, hash) are drawn as horizontal lines.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

try:
    import matplotlib
except ModuleNotFoundError as error:
    sys.exit(f"expert_sweep.py: this Python lacks {error.name}: run scripts/install-deps.sh, and use .venv/bin/python")

matplotlib.use("Agg")  # files only, no display
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402


class Failed(Exception):
    """A failure with a message for the user and an exit code."""

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


@dataclass
class Run:
    label: str
    checkpoint: str
    identity: dict  # key of its stored evaluations: run, step, data and configuration files
    experts: int  # routed experts in the layer with the fewest; 0: tokens have no choice
    top_k: int = 0
    shared: int = 0
    open: int = 0  # experts from which a token may choose: fewer with moe.group_limit
    ranked: bool = True  # tokens rank experts by scores, so the best ones can be skipped
    losses: dict = field(default_factory=dict)  # arguments of an evaluation -> loss


class Lyceum:
    """The program, with the arguments of all evaluations."""

    def __init__(self, program: str, ranks: int, arguments: list[str]):
        self.program = program
        self.launch = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        self.arguments = arguments

    def output(self, *arguments: str, launch: list[str] | None = None) -> str:
        try:
            done = subprocess.run([*(launch or []), self.program, *arguments], capture_output=True, text=True)
        except OSError as error:
            raise Failed(f"{error.filename}: {error.strerror}", 2) from error
        if done.returncode:
            raise Failed(done.stderr.strip() or f"{self.program} {arguments[0]} failed", done.returncode)
        sys.stderr.write(done.stderr)  # warnings
        return done.stdout

    def configuration(self, checkpoint: str) -> dict[str, str]:
        text = self.output("eval", "--checkpoint", checkpoint, "--print-config", *self.arguments)
        return dict(re.findall(r"^(\S+) += (.*?) *  # ", text, re.MULTILINE))

    def evaluate(self, checkpoint: str, arguments: tuple[str, ...]) -> dict:
        command = ("eval", "--checkpoint", checkpoint, "--json", *self.arguments, *arguments)
        return json.loads(self.output(*command, launch=self.launch))

    def digests(self) -> list[str]:
        """Returns a digest of each configuration file among the arguments."""
        files = [argument.removeprefix("--config=") for argument in self.arguments if argument.startswith("--config=")]
        return [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files]


def prefixes(data: str) -> list[str]:
    """Returns the prefixes of data.train or data.valid, which may be several, with weights or without."""
    words = data.split()
    if len(words) <= 1 or os.path.exists(data + ".bin"):
        return [data]
    try:
        float(words[0])
    except ValueError:
        return words
    return words[1::2]


def identify(prefix: str) -> dict:
    """Returns which token files a prefix names, without reading them."""
    files = [os.stat(prefix + ".bin")]
    files += [os.stat(prefix + ending) for ending in (".idx", ".mask") if os.path.exists(prefix + ending)]
    return {"prefix": os.path.abspath(prefix), "files": [[file.st_size, file.st_mtime_ns] for file in files]}


def describe(lyceum: Lyceum, label: str, directory: str) -> Run:
    shown = dict(re.findall(r"^(checkpoint|run|step) +(.+)$", lyceum.output("checkpoint", "show", directory), re.MULTILINE))
    config = lyceum.configuration(shown["checkpoint"])
    try:
        data = [identify(prefix) for prefix in prefixes(config["data.valid"] or config["data.train"])]
    except OSError as error:
        raise Failed(f"{error.filename}: {error.strerror}; name the data with --data.valid=PREFIX", 3) from error
    identity = {"run": shown["run"], "step": int(shown["step"]), "data": data, "configurations": lyceum.digests()}
    count = lambda key: int(config.get(key) or 0)  # older programs lack some keys
    of_layers = config.get("moe.experts_of_layers")
    fewest = min(map(int, of_layers.split(","))) if of_layers else count("moe.experts")
    without_weights = count("moe.zero_experts") + count("moe.copy_experts")
    run = Run(label, shown["checkpoint"], identity, fewest and fewest + without_weights)
    if config["moe.router"] == "hash" or config["moe.even_routing"] == "true":
        run.experts = 0
    run.ranked = config["moe.router"] != "uniform"
    if run.experts:
        run.top_k, run.shared, run.open = count("moe.top_k"), count("moe.shared_experts"), run.experts
        if count("moe.group_limit"):
            run.open = run.experts // count("balance.device_groups") * count("moe.group_limit")
    return run


def disabled(run: Run, ratios: list[Fraction]) -> list[int]:
    """Returns the numbers of experts to skip: those of the ratios that leave enough experts to choose from."""
    if not run.ranked:
        return []
    return sorted({round(ratio * run.experts) for ratio in ratios if round(ratio * run.experts) + run.top_k <= run.open})


def skipping(count: int) -> tuple[str, ...]:
    return (f"--skip-top={count}",) if count else ()


def activating(run: Run, count: int) -> tuple[str, ...]:
    return (f"--moe.top_k={count}",) if count != run.top_k else ()


def without_shared(run: Run) -> tuple[str, ...]:
    return ("--moe.shared_experts=0", f"--moe.top_k={run.top_k + 1}")


def evaluations(run: Run, ratios: list[Fraction] | None) -> list[tuple[str, ...]]:
    """Returns the arguments of the evaluations of a run, each once: as trained, then with one change. Without ratios: for
    every number of experts."""
    if not run.experts:
        return [()]
    if ratios is None:
        return [activating(run, k) for k in range(1, run.open + 1)]
    wanted = [(), *(skipping(n) for n in disabled(run, ratios)), *(activating(run, k) for k in range(1, run.top_k + 1))]
    if run.shared and run.top_k < run.open:
        wanted.append(without_shared(run))
    return list(dict.fromkeys(wanted))


class StoredEvaluations:
    """Evaluations stored in a file, which is replaced atomically."""

    def __init__(self, path: Path):
        self.path = path
        self.entries = []
        if path.exists():
            try:
                self.entries = json.loads(path.read_text())["evaluations"]
                all((entry["of"], entry["arguments"], entry["result"]["loss"]) for entry in self.entries)
            except (ValueError, KeyError, TypeError) as error:
                raise Failed(f"{path} contains no evaluations of this script: move it away, or name another --out", 3) from error

    def find(self, identity: dict, arguments: list[str]) -> dict | None:
        for entry in self.entries:
            if entry["of"] == identity and entry["arguments"] == arguments:
                return entry["result"]
        return None

    def add(self, identity: dict, arguments: list[str], result: dict) -> None:
        self.entries.append({"of": identity, "arguments": arguments, "result": result})
        fresh = self.path.with_suffix(".json.partial")
        fresh.write_text(json.dumps({"evaluations": self.entries}, indent=1) + "\n")
        fresh.replace(self.path)


def evaluate_all(lyceum: Lyceum, stored: StoredEvaluations, runs: list[Run], ratios: list[Fraction] | None) -> None:
    wanted = [(run, change) for run in runs for change in evaluations(run, ratios)]
    for number, (run, change) in enumerate(wanted, 1):
        arguments = [*lyceum.arguments, *change]
        result = stored.find(run.identity, arguments)
        known = result is not None
        if not known:
            result = lyceum.evaluate(run.checkpoint, change)
            stored.add(run.identity, arguments, result)
        run.losses[change] = result["loss"]
        print(f"{number:3}/{len(wanted)}  {run.label}  {' '.join(change) or 'as trained'}: {result['loss']:.4f}"
              + (" (stored)" if known else ""), flush=True)


def draw_line(axes, run: Run, colour, points: list[tuple[float, tuple[str, ...]]]) -> None:
    """Draws the losses of a run over x, or a horizontal line if tokens have no choice of experts."""
    if not run.experts:
        axes.axhline(run.losses[()], color=colour, linestyle="--", linewidth=1.4, label=run.label)
        return
    axes.plot([x for x, _ in points], [run.losses[change] for _, change in points], color=colour, marker="o", markersize=5,
              linewidth=1.8, label=run.label)


def draw_shared(axes, runs: list[Run], colours) -> None:
    """Draws two bars per run: the losses as trained, and with one more routed expert instead of the shared ones."""
    shown = [(run, colour) for run, colour in zip(runs, colours) if without_shared(run) in run.losses]
    values = [(run.losses[()], run.losses[without_shared(run)]) for run, _ in shown]
    for place, ((_, colour), pair) in enumerate(zip(shown, values)):
        for side, loss in enumerate(pair):
            bar = axes.bar(place + 0.4 * side - 0.2, loss, width=0.36, color=colour, alpha=1 if side == 0 else 0.45)
            axes.bar_label(bar, [f"{loss:.3f}"], fontsize=8, padding=2)
    axes.set_xticks([place + 0.4 * side - 0.2 for place in range(len(shown)) for side in (0, 1)],
                    ["as trained", "no shared,\none more routed"] * len(shown), fontsize=8)
    axes.set_ylim(0, 1.12 * max(max(pair) for pair in values))
    axes.set_title("Shared experts", loc="left")
    if len(shown) > 1:
        for place, (run, colour) in enumerate(shown):
            axes.text(place, -0.17, run.label, color=colour, ha="center", va="top", transform=axes.get_xaxis_transform())


def colours_of(runs: list[Run]) -> list:
    colours = plt.get_cmap("tab10").colors
    return [colours[i % len(colours)] for i in range(len(runs))]


def tidy(axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(alpha=0.25, axis="y")
    axes.spines[["top", "right"]].set_visible(False)


def draw_every_k(runs: list[Run], out: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for run, colour in zip(runs, colours_of(runs)):
        draw_line(axes, run, colour, [(k, activating(run, k)) for k in range(1, run.open + 1)])
        if run.experts:
            axes.plot([run.top_k], [run.losses[()]], marker="o", markersize=11, color=colour, markerfacecolor="none")
    axes.set_title("Every number of activated experts; circled: as trained", loc="left")
    axes.set(xlabel="activated routed experts", ylabel="loss (nats per token)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    tidy(axes)
    figure.savefig(out, dpi=150, bbox_inches="tight")


def table_of_every_k(runs: list[Run]) -> str:
    """Returns a table with one row per number of experts and one column per run; * marks the number as trained. The last row
    has the losses of runs without a choice of experts."""
    width = max(12, *(len(run.label) for run in runs))

    def row(name: str, cells: list[str]) -> str:
        return f"{name:>3}" + "".join(f"  {cell:>{width}}" for cell in cells).rstrip()

    def loss(run: Run, k: int) -> str:
        return f"{run.losses[activating(run, k)]:.4f}{'*' if k == run.top_k else ' '}" if k <= run.open else ""

    rows = [row("k", [run.label + " " for run in runs])]
    rows += [row(str(k), [loss(run, k) for run in runs]) for k in range(1, max(run.open for run in runs) + 1)]
    if not all(run.experts for run in runs):
        rows.append(row("-", ["" if run.experts else f"{run.losses[()]:.4f}*" for run in runs]))
    return "\n".join(rows)


def draw(runs: list[Run], ratios: list[Fraction], out: Path) -> None:
    shared = sum(without_shared(run) in run.losses for run in runs)
    widths = [3, 3] + ([max(1.5, 1.3 * shared)] if shared else [])
    figure, panels = plt.subplots(1, len(widths), figsize=(1.7 * sum(widths), 4), width_ratios=widths, layout="constrained")
    colours = colours_of(runs)
    for run, colour in zip(runs, colours):
        draw_line(panels[0], run, colour, [(n / run.experts, skipping(n)) for n in disabled(run, ratios)] if run.experts else [])
        draw_line(panels[1], run, colour, [(k, activating(run, k)) for k in range(1, run.top_k + 1)])
    panels[0].set_title("Top routed experts disabled", loc="left")
    panels[0].set(xlabel="ratio of disabled top routed experts", ylabel="loss (nats per token)")
    if ratios:
        panels[0].set_xticks([float(ratio) for ratio in ratios], [str(ratio) for ratio in ratios])
    panels[1].set_title("Fewer experts activated", loc="left")
    panels[1].set(xlabel="activated routed experts", ylabel="loss (nats per token)")
    panels[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].legend(frameon=False)
    for axes in panels:
        tidy(axes)
    if shared:
        draw_shared(panels[2], runs, colours)
    figure.savefig(out, dpi=150, bbox_inches="tight")


def named_run(text: str) -> tuple[str, str]:
    label, equals, directory = text.partition("=")
    return (label, directory) if equals and label and directory else (Path(text).name, text)


def fractions(text: str) -> list[Fraction]:
    try:
        ratios = [Fraction(word) for word in text.split(",")]
    except ZeroDivisionError as error:
        raise ValueError(text) from error
    if not all(0 <= ratio < 1 for ratio in ratios):
        raise ValueError(text)
    return sorted(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=named_run, metavar="LABEL=DIR", help="a run or a checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="picture to write: .png, .pdf or .svg")
    parser.add_argument("--ratios", type=fractions, default="0,1/16,1/8,3/16,1/4", metavar="R,…",
                        help="ratios of disabled top experts (default: %(default)s, the paper's)")
    parser.add_argument("--every-k", action="store_true",
                        help="instead: evaluate every number of routed experts that a token may choose")
    parser.add_argument("--batches", type=int, default=0, metavar="N", help="as for lyceum eval (default: all data)")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="ranks per evaluation, started by mpirun")
    parser.add_argument("--lyceum", metavar="FILE", help="the program (default: build/*/apps/lyceum, else lyceum)")
    arguments, keys = parser.parse_known_args()
    if arguments.out.suffix not in (".png", ".pdf", ".svg"):
        parser.error(f"--out {arguments.out}: the name must end in .png, .pdf or .svg")
    if not arguments.out.absolute().parent.is_dir():
        parser.error(f"--out {arguments.out}: no such folder")
    for written in arguments.out, arguments.out.with_suffix(".json"):
        if written.is_dir():
            parser.error(f"--out {arguments.out}: {written} is a folder, not a file")
    unknown = [key for key in keys if not re.fullmatch(r"--\w+\.\w+=.*|--config=.*", key)]
    if unknown:
        parser.error(f"no such option: {unknown[0]}; write keys of lyceum eval as --section.key=value")
    built = [name for name in ("build/cuda/apps/lyceum", "build/cpu/apps/lyceum") if Path(name).exists()]
    program = arguments.lyceum or next(iter(built), None) or shutil.which("lyceum")
    if not program:
        parser.error("no program in build/*/apps or on the PATH: name it with --lyceum")
    ratios = None if arguments.every_k else arguments.ratios
    plt.rcParams.update({"font.size": 10, "axes.titlesize": 11})
    lyceum = Lyceum(program, arguments.ranks, [f"--batches={arguments.batches}", *keys])
    try:
        stored = StoredEvaluations(arguments.out.with_suffix(".json"))
        runs = [describe(lyceum, label, directory) for label, directory in arguments.runs]
        evaluate_all(lyceum, stored, runs, ratios)
        if arguments.every_k:
            print(table_of_every_k(runs))
            draw_every_k(runs, arguments.out)
        else:
            draw(runs, arguments.ratios, arguments.out)
    except Failed as error:
        print(f"expert_sweep.py: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"expert_sweep.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 4
    print(f"wrote {arguments.out} and {stored.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
