#!/usr/bin/env python3
"""Writes the results of scripts/gpu.sh to the table in docs/cuda.md, between the comments "gpu results" and "end of gpu results":

    scripts/gpu_results.py RESULTS.json... [--save benchmarks/results/DATE-GPU.json]

Several files, such as those of the three parts, are merged: of steps with one name the last one counts. With --save the merged
results are also written to a file to commit, without the folders of the machine and the algorithms of matrix products.
"""
import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).absolute().parent))
from gpu_collect import dump  # noqa: E402

ROOT = Path(__file__).absolute().parents[1]
BEGIN, END = "<!-- gpu results: written by scripts/gpu_results.py -->", "<!-- end of gpu results -->"
CHECKS = {
    "tests": "`gpu_test`, `gpu_training_test`",
    "tests-mpi-1": "`gpu_mpi_test`, staged, 1 rank",
    "tests-mpi-2": "`gpu_mpi_test`, staged, 2 ranks",
    "tests-mpi-4": "`gpu_mpi_test`, staged, 4 ranks",
    "tests-nccl": "`nccl_carrier_test`",
    "program": "`gpu.train_test`",
    "meshes-agree": "losses of 1 to 8 ranks on one GPU against the CPU",
    "pytorch-f32": "losses and norms against PyTorch, f32",
    "pytorch-bf16": "losses and norms against PyTorch, bf16",
    "memcheck-kernels": "memcheck of the kernels for sm_90",
    "synccheck-kernels": "synccheck of the kernels for sm_90",
    "memcheck-step-f32": "memcheck of a small model, f32",
    "memcheck-step-bf16": "memcheck of a small model, bf16",
    "racecheck-step-f32": "racecheck of a small model, f32",
    "racecheck-step-bf16": "racecheck of a small model, bf16",
}


def merge(results: list[dict]) -> dict:
    """Returns the last results, with the steps of all. A step keeps the commit that it was run with, if it is another one."""
    merged = dict(results[-1])
    steps = {}
    for result in results:
        for step in result["steps"]:
            commit = step.get("commit", result["commit"])
            steps[step["name"]] = step | ({"commit": commit} if commit != merged["commit"] else {})
    merged["steps"] = sorted(steps.values(), key=lambda step: step["part"])
    return merged


def shorten(value):
    """Returns the value without algorithms of matrix products, and with names of files instead of absolute paths."""
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items() if key != "gemms"}
    if isinstance(value, list):
        return [shorten(item) for item in value]
    return re.sub(r"(?<![^\s=])/(?:[^\s/]+/)+", "", value) if isinstance(value, str) else value


def table(head: tuple, rows: list[tuple], align: str = "---:") -> str:
    """Returns a table in Markdown, or nothing if there are no rows. `align` is that of all columns but the first."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" + f"|{align}" * (len(head) - 1) + "|", *lines[1:]]) + "\n" if rows else ""


def checks(results: dict, steps: dict) -> str:
    rows = []
    for name, title in CHECKS.items():
        if name in steps:
            step = steps[name]
            words = [step["result"]]
            if tests := step.get("tests"):
                counts = {"passed": tests["passed"], "skipped": tests["skipped"], "failed": len(tests["failed"])}
                words = [f"{number} {what}" for what, number in counts.items() if number]
                words += [step["result"]] if step["result"] != "ok" and not tests["failed"] else []
            for equality in step.get("results", {}).get("equality", {}).values():
                steps_of = equality.get("compared_steps", {})  # fewer than all for what drifts apart in bf16
                words += [f"{key} {value:.1e}" + (f" in {steps_of[key]} steps" if key in steps_of else "")
                          for key, value in equality["largest_relative_difference"].items()]
            words += [step["note"]] if "note" in step else []
            rows.append((title, ", ".join(words), f"`{step.get('commit', results['commit'])}`"))
    return table(("check", "result", "commit"), rows, "---")


def training(steps: dict) -> str:
    title, rows = "", []
    for name, optimizer in (("train-2b", "AdamW"), ("train-2b-muon", "Muon")):
        found = steps.get(name, {}).get("results", [])
        for one in found if isinstance(found, list) else [found]:
            routing = {"real": "the router's choices", "even": "equal loads"}[one["routing"]]
            rows.append((f"{optimizer}, {routing}", f"{one['step_ms']:.1f} ms", f"{one['tokens_per_second']:,.0f}",
                         f"{one['ratio_to_peak']:.3f}", f"{one['used_peak_bytes'] / 1e9:.1f} GB"))
            title = f"DeepSeekMoE-2B, {one['sequences']} x {one['seq_len']:,} tokens a step, {one['precision']}"
    return table((title, "step", "tokens/s", "MFU", "memory"), rows)


def pytorch(steps: dict) -> str:
    step = steps.get("pytorch-speed", {})
    results = step.get("results")
    if not results:
        return ""
    environment, rows = results["environment"], []
    earlier = f" (commit `{step['commit']}`)" if "commit" in step else ""
    for precision, speed in results["speed"].items():
        ours, theirs = (f"{median(speed['tokens_per_second'][side]):,.0f}" for side in ("Lyceum", "PyTorch"))
        title = f"DeepSeekMoE-2B, {speed['tokens_a_step']:,} tokens a step, {precision}{earlier}"
        rows.append((title, ours, theirs, f"{speed['ratio_median']:.2f}"))
    version = environment["torch"] + (", compiled" if environment["torch_compile"] else "")
    return table(("`lyceum train` and PyTorch in turns", "Lyceum, tokens/s", f"PyTorch {version}, tokens/s", "ratio"), rows)


def grouped(steps: dict) -> str:
    settings, products = [], {}
    for one in steps.get("grouped", {}).get("results", []):
        if one["kernel"] == "automatic" and one["compared_to"] == "dense":
            setting = f"width {one['width']}, rows spread {one['rows']}"
            settings += [setting] if setting not in settings else []
            products.setdefault(one["product"], []).append(f"{one['tflops']:.0f}, {one['percent']:.0f} %")
    rows = [(product, *cells) for product, cells in products.items()]
    return table(("grouped product: TFLOP/s, share of a dense product's", *settings), rows)


def text_of(results: dict, file: Path) -> str:
    steps = {step["name"]: step for step in results["steps"]}
    place = f"; all results are in `{file.relative_to(ROOT)}`" if file.is_relative_to(ROOT / "benchmarks") else ""
    head = f"{results['device']}, driver {results['driver']}, {results['date'][:10]}, commit `{results['commit']}`{place}.\n"
    return "\n".join(part for part in (head, training(steps), pytorch(steps), grouped(steps), checks(results, steps)) if part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the merged results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/cuda.md", help="the page with the table (docs/cuda.md)")
    arguments = parser.parse_args()
    results = merge([json.loads(path.read_text()) for path in arguments.results])
    if arguments.save:
        arguments.save.write_text(dump(shorten(results)) + "\n")
    before, begin, rest = arguments.page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{arguments.page}: has no comments {BEGIN} and {END}")
    text = text_of(results, (arguments.save or arguments.results[-1]).absolute())
    arguments.page.write_text(before + begin + "\n" + text + end + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
