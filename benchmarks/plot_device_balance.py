#!/usr/bin/env python3
"""Plots the curves that bench_device_balance --csv has written.

    .venv/bin/python benchmarks/plot_device_balance.py curves.csv --out docs/device-balance.png
"""
import argparse

import matplotlib
import numpy as np

matplotlib.use("Agg")  # files only, no display
import matplotlib.pyplot as plt  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    curves = np.genfromtxt(arguments.csv, delimiter=",", names=True)
    figure, (load, loss) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for axis, name, label in ((load, "imbalance", "busiest group's load / mean"), (loss, "loss", "loss, nats per token")):
        axis.plot(curves["step"], curves[f"{name}_without"], color="#b0531d", label="without")
        axis.plot(curves["step"], curves[f"{name}_with"], color="#1d6fb0", label="with device-level balance loss")
        axis.set_xlabel("step")
        axis.set_ylabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    load.axhline(1, color="grey", linewidth=0.8, linestyle=":")
    load.legend(frameon=False)
    figure.savefig(arguments.out, dpi=120)


if __name__ == "__main__":
    main()
