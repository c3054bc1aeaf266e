"""Names the hardware of this machine, as pages state it."""
import os
import platform
import subprocess
from pathlib import Path

from errors import Failed


def name_of(device: str) -> str:
    """Returns the processor for the device cpu, and the first GPU with the processor for cuda."""
    models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = f"{len(models)} × {models[0]}" if models else platform.processor()
    return processor if device == "cpu" else f"{_gpu()} with {processor}"


def _gpu() -> str:
    try:
        used = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        found = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", *([f"--id={used}"] if used else [])], capture_output=True,
                               text=True)
    except FileNotFoundError:
        found = None
    if found is None or found.returncode or not found.stdout.strip():
        raise Failed("--device cuda: nvidia-smi names no GPU on this machine", 2)
    return found.stdout.splitlines()[0].strip()
