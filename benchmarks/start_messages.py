#!/usr/bin/env python3
"""Counts the MPI messages of starting and saving a run, and those of a step, on 2, 4, 8, … ranks of this machine, with Open
MPI's own monitoring component.

  benchmarks/start_messages.py [--axis data|tensor] [--lyceum build/cpu/apps/lyceum] [--ranks 2,4,8,16,32,64] [--json FILE]

As root, or with more ranks than cores, run `. scripts/mpi-env.sh` first.

Compares a run of one step with a run of two steps. The difference is one step; the rest is start, save and end. "own" are
messages that Lyceum sends; the others are those that MPI sends for collective operations and communicators.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

project = Path(__file__).resolve().parents[1]

config = """[run]
device = cpu
precision = f32
timeout_seconds = 300
[model]
vocab = 512
layers = 2
hidden = 32
heads = 2
[moe]
experts = 8
expert_hidden = 32
[batch]
seq_len = 16
"""


# With tensor ranks, of which there may be 64.
divisible = ["--model.heads=64", "--model.head_dim=2", "--model.ffn_hidden=64", "--moe.expert_hidden=64", "--batch.global=1"]


def messages(folder: Path, lyceum: str, axis: str, ranks: int, steps: int) -> dict:
    """Trains for `steps` steps. Returns messages and bytes that each rank sends to others, and the seconds of the run."""
    name = folder / f"{ranks}-{steps}"
    of_axis = [f"--batch.global={ranks}"] if axis == "data" else [f"--parallel.tensor={ranks}", *divisible]
    begin = time.monotonic()
    done = subprocess.run(
        ["mpirun", "-n", str(ranks), "--mca", "pml_monitoring_enable", "2", "--mca", "pml_monitoring_enable_output", "3",
         "--mca", "pml_monitoring_filename", str(name), lyceum, "train", "--config", str(folder / "config.ini"),
         f"--run.steps={steps}", f"--run.dir={name}-run", f"--data.train={folder / 'tokens'}", *of_axis],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    seconds = time.monotonic() - begin
    if done.returncode:
        sys.exit(f"start_messages.py: {ranks} ranks ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    sent = {"own": [0] * ranks, "all": [0] * ranks, "bytes": [0] * ranks, "seconds": seconds}
    for rank in range(ranks):
        for line in Path(f"{name}.{rank}.prof").read_text().splitlines():
            found = re.match(r"([EI])\t(\d+)\t(\d+)\t(\d+) bytes\t(\d+) msgs", line)
            if found and found[2] != found[3]:
                sent["all"][rank] += int(found[5])
                sent["own"][rank] += int(found[5]) if found[1] == "E" else 0
                sent["bytes"][rank] += int(found[4])
    if not any(sent["all"]):
        sys.exit("start_messages.py: Open MPI's monitoring counted nothing: is its component pml/monitoring installed?")
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the messages of a start, a save and a step.")
    parser.add_argument("--lyceum", default=str(project / "build/cpu/apps/lyceum"))
    parser.add_argument("--axis", choices=["data", "tensor"], default="data", help="axis of the mesh that all ranks are on")
    parser.add_argument("--ranks", default="2,4,8,16,32,64", help="numbers of ranks")
    parser.add_argument("--json", type=Path, help="also writes the figures there")
    given = parser.parse_args()
    rows = []
    print(f"{'':>6} | {'start, save, end: messages a rank':^37} | {'KB a rank':>9} | {'a step':^15} | {'seconds':>7}")
    print(f"{'ranks':>6} | {'mean':>8} {'most':>8} {'own, mean':>10} {'own, most':>8} | {'mean':>9} | {'mean':>7} {'most':>7} | {'':>7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.ini").write_text(config)
        subprocess.run([given.lyceum, "tokenize", "--vocab", "512", "--model", str(folder / "tokenizer.model"),
                        "--input", str(project / "docs"), "--output", str(folder / "tokens")],
                       check=True, stdout=subprocess.DEVNULL)
        for ranks in map(int, given.ranks.split(",")):
            one, two = (messages(folder, given.lyceum, given.axis, ranks, steps) for steps in (1, 2))
            start = {kind: [2 * a - b for a, b in zip(one[kind], two[kind])] for kind in ("all", "own", "bytes")}
            step = [b - a for a, b in zip(one["all"], two["all"])]
            row = {"axis": given.axis, "ranks": ranks, "mean": sum(start["all"]) / ranks, "most": max(start["all"]), "own_mean": sum(start["own"]) / ranks,
                   "own_most": max(start["own"]), "kilobytes": sum(start["bytes"]) / ranks / 1000, "step": sum(step) / ranks, "step_most": max(step),
                   "seconds": one["seconds"]}
            rows.append(row)
            print(f"{ranks:>6} | {row['mean']:>8.0f} {row['most']:>8} {row['own_mean']:>10.0f} {row['own_most']:>9} | {row['kilobytes']:>9.0f} | "
                  f"{row['step']:>7.0f} {row['step_most']:>7} | {row['seconds']:>7.1f}", flush=True)
    large = [row for row in rows if row["ranks"] > 8]  # smaller groups use no trees
    if len(large) >= 2:
        first, last = large[0], large[-1]
        doublings = math.log2(last["ranks"] / first["ranks"])
        growth = (last["mean"] - first["mean"]) / doublings
        print(f"Each doubling from {first['ranks']} to {last['ranks']} ranks adds {growth:.0f} messages a rank; at that rate: " + ", ".join(
            f"{first['mean'] + growth * math.log2(ranks / first['ranks']):.0f} with {ranks}" for ranks in (512, 4096)))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
