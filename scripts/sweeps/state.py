"""The state of a run of a sweep: a file in its folder with the last exit code and the arguments that led to it. The fields end with
a zero byte, so that a batch script can write them, too (scripts/slurm/sweep.sbatch)."""
import os

from .description import SweepRun

STATUS_FILE = "sweep-status"


def record(run: SweepRun, code: int) -> None:
    """Records the end of a run, atomically."""
    fresh = run.folder / (STATUS_FILE + ".partial")
    fresh.write_bytes(b"".join(os.fsencode(field) + b"\0" for field in (str(code), *run.arguments)))
    os.replace(fresh, run.folder / STATUS_FILE)


def last_code(run: SweepRun) -> int | None:
    """Returns the last exit code of a run; None if it has not ended, or ended with other arguments."""
    try:
        fields = (run.folder / STATUS_FILE).read_bytes().split(b"\0")
    except OSError:
        return None
    if [os.fsdecode(field) for field in fields[1:-1]] != run.arguments or not fields[0].isdigit():
        return None
    return int(fields[0])


def is_complete(run: SweepRun) -> bool:
    return last_code(run) == 0


def state_text(run: SweepRun) -> str:
    code = last_code(run)
    if code is None:
        return "started" if (run.folder / "metrics.jsonl").exists() else "not started"
    return {0: "complete", 75: "stopped"}.get(code, f"failed ({code})")
