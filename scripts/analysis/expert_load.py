#!/usr/bin/env python3
"""Draws how busy the busiest expert rank is, for each placement of the experts, against the exponent of a Zipf load.

    .venv/bin/python scripts/analysis/expert_load.py --lyceum build/cpu/apps/lyceum --out load.png \\
      --config configs/models/qwen3-30b-a3b.ini --ranks=16 --parallel.expert=16

All further arguments go to `lyceum plan --json`, whose figures are drawn; with --cluster there is a second axis for the time of a step.
"""
import argparse
import json
import subprocess
import sys

try:
    import matplotlib
except ModuleNotFoundError as error:
    sys.exit(f"expert_load.py: this Python lacks {error.name}: run scripts/install-deps.sh, and use .venv/bin/python")

matplotlib.use("Agg")  # files only, no display
import matplotlib.pyplot as plt  # noqa: E402


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def planned(lyceum: str, arguments: list[str], exponent: float) -> dict:
    """Returns the object `load` of a plan."""
    command = [lyceum, "plan", *arguments, "--load", f"zipf:{exponent:g}", "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise ValueError(f"{' '.join(command)}: {result.stderr.strip()}")
    return json.loads(result.stdout)["load"]


def name(variant: dict) -> str:
    if variant["load"] == "even":
        return "even load"
    replicas = {0: "", 1: ", 1 replica"}.get(variant["replicas"], f", {variant['replicas']} replicas")
    return variant["placement"] + (", moved" if variant["moved"] else "") + replicas


def draw(exponents: list[float], loads: list[dict], out: str) -> None:
    lines: dict[str, list[dict]] = {}
    for load in loads:
        for variant in load["variants"]:
            lines.setdefault(name(variant), []).append(variant)
    timed = all("step_seconds" in variant for line in lines.values() for variant in line)
    figure, axes = plt.subplots(1, 2 if timed else 1, figsize=(10 if timed else 6, 3.8), squeeze=False, layout="constrained")
    for label, line in lines.items():
        style = {"color": "gray", "linestyle": ":"} if label == "even load" else {"marker": "o", "markersize": 3}
        axes[0, 0].plot(exponents, [variant["busiest_over_mean"] for variant in line], label=label, **style)
        if timed:
            axes[0, 1].plot(exponents, [1e3 * variant["step_seconds"] for variant in line], label=label, **style)
    axes[0, 0].set_ylabel(f"FLOPs of the busiest of {loads[0]['expert_ranks']} expert ranks / mean")
    if timed:
        axes[0, 1].set_ylabel("planned time of a step, ms")
        axes[0, 1].set_ylim(bottom=0)
    for axis in axes[0]:
        axis.set_xlabel("exponent of the Zipf load (0: even)")
        axis.grid(alpha=0.3)
    axes[0, 0].legend()
    figure.savefig(out, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lyceum", default="lyceum", help="the program (default: lyceum)")
    parser.add_argument("--exponents", type=numbers, default=numbers("0,0.2,0.4,0.6,0.8,1,1.2"), help="comma-separated")
    parser.add_argument("--out", required=True, help="the picture, for example load.png")
    options, arguments = parser.parse_known_args()
    try:
        loads = [planned(options.lyceum, arguments, exponent) for exponent in options.exponents]
        if not loads[0]["variants"]:
            raise ValueError("the plan has one expert rank: set parallel.expert above 1")
        draw(options.exponents, loads, options.out)
    except (OSError, ValueError) as error:
        print(f"expert_load.py: {error}", file=sys.stderr)
        return 3
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
