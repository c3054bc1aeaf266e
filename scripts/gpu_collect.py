#!/usr/bin/env python3
"""Collects the results of scripts/gpu.sh in one file and prints them as a table:

    gpu_collect.py FOLDER COMMIT

Reads FOLDER/steps.tsv (part, name, seconds and result of each step, as gpu.sh appends them; of several lines with one name the
last one counts) and, if they exist, for each step

    NAME.log         numbers of passed, skipped and failed tests in GoogleTest's summary; grouped.log: the products
    NAME.json        the results of a benchmark
    NAME.clocks.csv  clocks, power and temperature, as nvidia-smi logs them

Writes FOLDER/results.json: date, commit, device, driver, and the list of steps.
"""
import csv
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

CLOCKS = {"sm_mhz": 1, "memory_mhz": 2, "power_watts": 3, "celsius": 4}  # columns of NAME.clocks.csv; 5 is the utilisation
WIDTH = re.compile(r"^width (\d+), rows spread (\w+)$")
PRODUCT = re.compile(r"^  (\w+) +(\w+) +(\S+) +([\d.]+) ms +([\d.]+) TFLOP/s +"
                     r"(\w+(?: \w+)?) +([\d.]+) ms(?: +[\d.]+ TFLOP/s)? +([\d.]+) %$")


def dump(value, indent: str = "\n") -> str:
    """Returns JSON that is indented, except that objects and lists without inner ones take one line."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(item, (dict, list)) for item in inner):
        return json.dumps(value)
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {dump(item, indent + ' ')}" for key, item in value.items()]
    else:
        lines = [dump(item, indent + " ") for item in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + ",".join(indent + " " + line for line in lines) + indent + end


def count_tests(log: str) -> dict | None:
    """Returns the numbers in the last summary of GoogleTest, with the names of failed tests; None if there is none."""
    log = re.sub(r"\x1b\[[\d;]*[mK]", "", log)  # colours, which mpirun enables by giving programs a terminal
    _, found, summary = log.rpartition("[  PASSED  ] ")
    if not found:
        return None
    skipped = re.search(r"^\[  SKIPPED \] (\d+) test", summary, re.MULTILINE)
    failed = re.findall(r"^\[  FAILED  \] (\S+\.[^\s,]+)", summary, re.MULTILINE)
    return {"passed": int(summary.split()[0]), "skipped": int(skipped[1]) if skipped else 0, "failed": failed}


def read_products(log: str) -> list[dict]:
    """Returns the lines of bench_grouped_gemm_cuda, each a grouped product and what it is compared to."""
    products, setting = [], {}
    for line in log.splitlines():
        if found := WIDTH.match(line):
            setting = {"width": int(found[1]), "rows": found[2]}
        elif found := PRODUCT.match(line):
            matrix, kind, kernel, ms, tflops, other, other_ms, percent = found.groups()
            products.append(setting | {"product": f"{matrix} {kind}", "kernel": kernel, "ms": float(ms), "tflops": float(tflops),
                                       "compared_to": other, "compared_to_ms": float(other_ms), "percent": float(percent)})
    return products


def read_clocks(path: Path) -> dict:
    """Returns minimum, median and maximum of the clocks while the GPU was busy."""
    rows = []
    for row in csv.reader(path.open()):
        try:
            rows.append([0.0] + [float(word) for word in row[1:6]])
        except ValueError:  # a number that this GPU does not report, or an incomplete line
            pass
    busy = [row for row in rows if len(row) == 6 and row[5] >= 50]
    clocks = {"samples": len(rows), "busy_samples": len(busy)}
    for name, column in CLOCKS.items() if busy else ():
        values = [row[column] for row in busy]
        clocks[name] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return clocks


def read_step(folder: Path, part: str, name: str, seconds: str, result: str) -> dict:
    step = {"part": int(part), "name": name, "seconds": int(seconds), "result": result}
    log, results, clocks = (folder / (name + ending) for ending in (".log", ".json", ".clocks.csv"))
    text = log.read_text(errors="replace") if log.exists() else ""
    if tests := count_tests(text):
        step["tests"] = tests
    if clocks.exists():
        step["clocks"] = read_clocks(clocks)
    if name == "grouped":
        step["results"] = read_products(text)
    elif results.exists():
        step["results"] = json.loads(results.read_text())
    return step


def query_device() -> dict:
    command = ["nvidia-smi", "-i", os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]]
    command += ["--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True)
        name, driver = shown.stdout.splitlines()[0].split(", ")
    except (OSError, IndexError, ValueError):
        name, driver = platform.machine(), ""
    return {"device": name, "driver": driver}


def describe(step: dict) -> str:
    words = [step["result"]]
    if tests := step.get("tests"):
        words.append(f"{tests['passed']} passed, {tests['skipped']} skipped, {len(tests['failed'])} failed")
    if "sm_mhz" in (clocks := step.get("clocks", {})):
        sm, power, celsius = ("/".join(f"{value:.0f}" for value in clocks[name].values())
                              for name in ("sm_mhz", "power_watts", "celsius"))
        words.append(f"SM {sm} MHz, {power} W, {celsius} C (min/median/max)")
    return "; ".join(words)


def main() -> int:
    folder, commit = Path(sys.argv[1]), sys.argv[2]
    lines = {line.split("\t")[1]: line.split("\t") for line in (folder / "steps.tsv").read_text().splitlines()}
    steps = [read_step(folder, *words) for words in lines.values()]
    steps.sort(key=lambda step: step["part"])
    results = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "commit": commit, **query_device(), "steps": steps}
    (folder / "results.json").write_text(dump(results) + "\n")
    print(f"{'part':4} {'step':20} {'seconds':>7}  result")
    for step in steps:
        print(f"{step['part']:4} {step['name']:20} {step['seconds']:7}  {describe(step)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
