#!/usr/bin/env python3
"""Measures the overhead of ranks: trains one model on 1, 2, 4, 8 and 16 ranks of this machine, along one axis of the mesh at a
time.

  benchmarks/scaling.py [--bench build/cpu/benchmarks/bench_train_step] [--ranks 2,4,8,16] [--axes data,…] [--rounds 3] [--json FILE]

As root, or with more ranks than cores, run `. scripts/mpi-env.sh` first.

Each rank has one thread. The table shows core time relative to one rank: the time of a step times the number of cores that the
ranks share, divided by the time of one rank's step on one core in the same round. 1.00 is ideal. Figures are medians over the
rounds. Below it are the phases of rank 0 that grew most, as shares of one rank's step. If there are more ranks than cores,
ranks take turns, so waiting costs nothing while others compute; what remains is work that ranks add.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

project = Path(__file__).resolve().parents[1]

config = """[run]
device = cpu
precision = f32
threads = 1
timeout_seconds = 600
[batch]
global = 16
seq_len = 128
[model]
vocab = 4096
layers = 16
hidden = 256
heads = 16
[moe]
experts = 16
shared_experts = 1
top_k = 3
expert_hidden = 176
"""

axes = {
    "data": lambda ranks: [],
    "zero 3": lambda ranks: ["--parallel.zero=3"],
    "expert": lambda ranks: [f"--parallel.expert={ranks}"],
    "tensor": lambda ranks: [f"--parallel.tensor={ranks}"],
    "sequence": lambda ranks: [f"--parallel.tensor={ranks}", "--parallel.sequence=true"],
    "pipeline": lambda ranks: [f"--parallel.pipeline={ranks}", "--batch.micro=1", "--parallel.schedule=1f1b"],
}


def step(bench: str, folder: Path, ranks: int, options: list[str]) -> dict:
    """Runs bench_train_step on `ranks` ranks and returns the results that it writes. Exits if it fails."""
    result = folder / "result.json"
    done = subprocess.run(["mpirun", "-n", str(ranks), bench, "--config", str(folder / "config.ini"), "--steps", "3",
                           "--json", str(result), *options], capture_output=True, text=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    if done.returncode:
        sys.exit(f"scaling.py: {ranks} ranks with {' '.join(options) or 'copies'} ended with {done.returncode}: "
                 f"{(done.stderr or done.stdout).strip()[-400:]}")
    return json.loads(result.read_text())


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="Core time of training on several ranks over that of one.")
    parser.add_argument("--bench", default=str(project / "build/cpu/benchmarks/bench_train_step"))
    parser.add_argument("--ranks", default="2,4,8,16", help="numbers of ranks")
    parser.add_argument("--axes", default=",".join(axes), help="of " + ", ".join(axes))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also writes the figures there")
    given = parser.parse_args()
    chosen, counts = given.axes.split(","), [int(ranks) for ranks in given.ranks.split(",")]
    if unknown := [axis for axis in chosen if axis not in axes]:
        parser.error(f"--axes {unknown[0]}: one of {', '.join(axes)}")
    ratios: dict = {(axis, ranks): [] for axis in chosen for ranks in counts}
    grown: dict = {key: {} for key in ratios}
    alone_ms = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.ini").write_text(config)
        for number in range(given.rounds):
            alone = step(given.bench, folder, 1, [])
            alone_ms.append(alone["step_ms"])
            of_one = {phase["phase"]: phase["ms"] / alone["profiled_step_ms"] for phase in alone["phases"]}
            for axis, ranks in ratios:
                used = min(ranks, cores)
                measured = step(given.bench, folder, ranks, axes[axis](ranks))
                ratios[axis, ranks].append(measured["step_ms"] * used / alone["step_ms"])
                for phase in measured["phases"]:
                    share = phase["ms"] * used / alone["profiled_step_ms"] - of_one.get(phase["phase"], 0)
                    grown[axis, ranks].setdefault(phase["phase"], []).append(share)
            print(f"round {number + 1} of {given.rounds} done", file=sys.stderr, flush=True)
    print(f"One rank: {statistics.median(alone_ms):.0f} ms a step, ± {100 * (max(alone_ms) - min(alone_ms)) / 2 / statistics.median(alone_ms):.0f} % "
          f"over the rounds; {cores} cores")
    print(f"{'axis':<10}" + "".join(f"{f'{ranks} ranks':>10}" for ranks in counts))
    rows = []
    for axis in chosen:
        print(f"{axis:<10}" + "".join(f"{statistics.median(ratios[axis, ranks]):>10.2f}" for ranks in counts))
        for ranks in counts:
            shares = {phase: statistics.median(values) for phase, values in grown[axis, ranks].items()}
            rows.append({"axis": axis, "ranks": ranks, "core_time": ratios[axis, ranks], "grown": shares})
    print("\nWhat grew most, in percent of the step of one rank:")
    for row in rows:
        most = sorted(row["grown"].items(), key=lambda item: -item[1])[:3]
        print(f"{row['axis']:<10}{row['ranks']:>3}  " + ", ".join(f"{phase} {100 * share:+.0f}" for phase, share in most))
    if given.json:
        given.json.write_text(json.dumps({"cores": cores, "one_rank_ms": alone_ms, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
