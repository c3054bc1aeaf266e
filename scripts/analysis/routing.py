#!/usr/bin/env python3
"""Draws the routing of a run: a heatmap of expert load, and max/min over steps for each choice of a token.

    .venv/bin/python scripts/analysis/routing.py runs/quickstart --out routing.png
"""
import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

try:
    import h5py
    import matplotlib
    import numpy as np
except ModuleNotFoundError as error:
    sys.exit(f"routing.py: this Python lacks {error.name}: run scripts/install-deps.sh, and use .venv/bin/python")

matplotlib.use("Agg")  # files only, no display
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import LogNorm  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402


@dataclass
class Layer:
    label: str  # "3" for the router of the FFN, "3 attention" for that of attention
    always_on: int  # number of first experts that are always active; nothing chooses them
    load: np.ndarray  # [experts - always_on]: tokens in the selected records
    ratios: np.ndarray  # [records, top_k]: most over fewest tokens of an expert
    tokens: int  # in all records


def read(path: Path, first: int | None, last: int | None) -> tuple[np.ndarray, np.ndarray, list[Layer]]:
    """Returns the steps of the records, a mask of the selected ones, and the layers."""
    with h5py.File(path, "r") as file:
        if file.attrs.get("format") != "lyceum.routing":
            raise ValueError("is not a routing log of lyceum")
        steps = file["step"][:]
        if not len(steps):
            raise ValueError("has no records yet")
        chosen = select(steps, first, last)
        layers = []
        for index, group in sorted((int(name), group) for name, group in file["layers"].items()):
            for label, router in (f"{index} attention", group.get("attention")), (f"{index}", group):
                if router is not None and "counts" in router:
                    layers.append(summary(label, router["counts"], int(router.attrs.get("always_on", 0)), chosen))
    return steps, chosen, layers


def summary(label: str, counts: h5py.Dataset, always_on: int, chosen: np.ndarray) -> Layer:
    """Reads the counts [records, top_k, experts] of a layer, a part at a time: those of long runs exceed the memory."""
    records, top_k, experts = counts.shape
    layer = Layer(label, always_on, np.zeros(experts - always_on, dtype=np.int64), np.empty((records, top_k)), 0)
    part = max(1, 2**21 // (top_k * experts))
    for begin in range(0, records, part):
        rows = slice(begin, min(begin + part, records))
        values = counts[rows, :, always_on:]
        layer.load += values[chosen[rows]].sum(axis=(0, 1))
        layer.ratios[rows] = ratio(values)
        layer.tokens += int(values.sum())
    return layer


def select(steps: np.ndarray, first: int | None, last: int | None) -> np.ndarray:
    """Returns a mask of the records to sum over: the selected steps, or else the newest quarter."""
    if first is None and last is None:
        return np.arange(len(steps)) >= len(steps) - (len(steps) + 3) // 4
    chosen = (steps >= (first if first is not None else steps[0])) & (steps <= (last if last is not None else steps[-1]))
    if not chosen.any():
        raise ValueError(f"has no record of the selected steps: it has steps {steps[0]} to {steps[-1]}")
    return chosen


def ratio(counts: np.ndarray) -> np.ndarray:
    """Returns max over min along the experts: infinite if an expert has no tokens, NaN if all have none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return counts.max(axis=-1) / counts.min(axis=-1)


def draw_heatmap(figure, axes, bar_axes, steps, layers, chosen) -> None:
    load = np.full((len(layers), max(layer.always_on + len(layer.load) for layer in layers)), np.nan)  # NaN: no tile
    for row, layer in enumerate(layers):
        tokens = layer.load
        if tokens.any():
            load[row, layer.always_on : layer.always_on + len(tokens)] = tokens / tokens.mean()
    colours = plt.get_cmap("RdBu_r").copy()
    colours.set_under("#555555")  # no tokens: zero is below any logarithmic scale
    shown = np.where(load == 0, 1e-9, np.clip(load, 0.25, 4))
    edges_y = np.arange(len(layers) + 1) - 0.5
    mesh = axes.pcolormesh(np.arange(load.shape[1] + 1) - 0.5, edges_y, shown, cmap=colours,
                           norm=LogNorm(0.25, 4), edgecolors="white", linewidth=0.4 if load.shape[1] <= 80 else 0)
    axes.invert_yaxis()
    every = -(-len(layers) // 20)
    axes.set_yticks(range(0, len(layers), every), [layer.label for layer in layers[::every]])
    axes.xaxis.set_major_locator(MaxNLocator(20, integer=True, steps=[1, 2, 5, 10]))
    axes.set(xlabel="expert", ylabel="layer")
    before = np.flatnonzero(chosen)[0] - 1  # the first step of the first record is unknown: the run may have begun with a checkpoint
    span = f"{steps[before] + 1} to" if before >= 0 else "up to"
    axes.set_title(f"Load of each expert relative to an even spread, steps {span} {steps[chosen][-1]}"
                   + (" (grey: no tokens)" if (load == 0).any() else ""), loc="left")
    bar = figure.colorbar(mesh, cax=bar_axes, ticks=[0.25, 0.5, 1, 2, 4])
    bar.ax.set_yticklabels(["≤ ¼", "½", "1", "2", "≥ 4"])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def draw_ratios(axes, steps, layers) -> None:
    choices = max(layer.ratios.shape[1] for layer in layers)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.88, choices))
    finite_top = 2.0
    for k in range(choices):
        values = np.array([layer.ratios[:, k] for layer in layers if layer.tokens and k < layer.ratios.shape[1]])
        # The lower median instead of the mean of two, so that the curve is infinite only if more than half of the layers have
        # an expert without tokens.
        middle = np.sort(values, axis=0)[(len(values) - 1) // 2] if len(values) else np.full(len(steps), np.nan)
        finite_top = max([finite_top, *middle[np.isfinite(middle)]])
        axes.plot(steps, np.where(np.isfinite(middle), middle, np.nan), color=colours[k], label=f"top{k}",
                  linewidth=1.8, marker="o" if len(steps) < 30 else None, markersize=4)
        starved = np.isinf(middle)
        axes.plot(steps[starved], np.full(starved.sum(), 0.97), "^", color=colours[k], markersize=5,
                  transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set_yscale("log")
    axes.set_ylim(1, finite_top ** 1.2)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_formatter(plain if finite_top < 8 else FuncFormatter(lambda *_: ""))
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    if len(steps) == 1:
        axes.set_xticks(steps)
    axes.set(xlabel="step", ylabel="max / min")
    axes.set_title("Max / min tokens of an expert, median of the layers (▲: an expert received no tokens)", loc="left")
    axes.legend(frameon=False, ncols=min(choices, 8), loc="upper right")
    axes.grid(alpha=0.25, which="both")
    axes.spines[["top", "right"]].set_visible(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory, or its routing.h5")
    parser.add_argument("--out", type=Path, required=True, help="picture to write: .png, .pdf or .svg")
    parser.add_argument("--from", dest="first", type=int, metavar="STEP",
                        help="first step of the heatmap (default: the newest quarter of the records)")
    parser.add_argument("--to", dest="last", type=int, metavar="STEP", help="last step of the heatmap")
    arguments = parser.parse_args()
    if arguments.out.suffix not in (".png", ".pdf", ".svg"):
        parser.error(f"--out {arguments.out}: the name must end in .png, .pdf or .svg")
    path = arguments.run / "routing.h5" if arguments.run.is_dir() else arguments.run
    try:
        steps, chosen, layers = read(path, arguments.first, arguments.last)
    except (OSError, KeyError, ValueError) as error:
        print(f"routing.py: {path}: {error}", file=sys.stderr)
        return 3
    plt.rcParams.update({"font.size": 10, "axes.titlesize": 11})
    height = float(np.clip(0.24 * len(layers), 1.6, 8))
    figure, ((load, bar), (ratios, corner)) = plt.subplots(
        2, 2, figsize=(11, height + 4.2), height_ratios=[height, 2.8], width_ratios=[60, 1], layout="constrained")
    corner.axis("off")
    draw_heatmap(figure, load, bar, steps, layers, chosen)
    draw_ratios(ratios, steps, layers)
    try:
        figure.savefig(arguments.out, dpi=150, bbox_inches="tight")
    except OSError as error:
        print(f"routing.py: cannot write {arguments.out}: {error.strerror or error}", file=sys.stderr)
        return 4
    print(f"wrote {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
