"""The state of a run of a sweep: a file in its folder with the last exit code and the digest of the settings that led to it. The
fields end with a zero byte, so that a batch script can write them, too (scripts/slurm/sweep.sbatch). Earlier versions wrote the
arguments of the run instead of the digest."""
import hashlib
import os
import re

from .description import SweepRun

STATUS_FILE = "sweep-status"
REFUSED = 2  # exit code of a run whose settings are wrong, or whose folder belongs to another run or process

# Keys that do not change what a run learns: where and how it computes, what it logs, when it saves.
OPERATION = re.compile(r"run\.(?!(seed|steps|precision)$)|parallel\.(?!placement$)|checkpoint\.(?!resume$)|routing\.")


def digest_of(configuration: str) -> str:
    """Returns a digest of the settings that were given, from the output of --print-config. Defaults and derived values do not
    count: they differ between versions of the program and numbers of ranks."""
    lines = re.findall(r"^(\S+) += (.*)  # (.*)$", configuration, re.MULTILINE)
    given = sorted((key, value.strip()) for key, value, origin in lines
                   if origin not in ("default", "derived") and not OPERATION.match(key))
    return hashlib.sha256(repr(given).encode()).hexdigest()


def record(run: SweepRun, code: int, digest: str) -> None:
    """Records the end of a run, atomically. A complete run that refuses other settings remains complete."""
    if code == REFUSED and _status(run)[0] == 0:
        return
    fresh = run.folder / (STATUS_FILE + ".partial")
    fresh.write_text(f"{code}\0{digest}\0")
    os.replace(fresh, run.folder / STATUS_FILE)


def _status(run: SweepRun) -> tuple[int | None, bool]:
    """Returns the last exit code of a run, None if it has not ended, and whether its settings were the present ones."""
    try:
        fields = os.fsdecode((run.folder / STATUS_FILE).read_bytes()).split("\0")
    except OSError:
        return None, False
    code, settings = fields[0], fields[1:-1]
    return int(code) if code.isdecimal() else None, settings in ([run.digest], run.arguments)


def is_complete(run: SweepRun) -> bool:
    return _status(run) == (0, True)


def is_changed(run: SweepRun) -> bool:
    """True if the run is complete, but with other settings."""
    return _status(run) == (0, False)


def state_text(run: SweepRun) -> str:
    code, same = _status(run)
    if code is None or (code != 0 and not same):
        return "started" if (run.folder / "metrics.jsonl").exists() else "not started"
    return {0: "complete" if same else "changed", 75: "stopped"}.get(code, f"failed ({code})")
