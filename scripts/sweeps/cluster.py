"""Submits the runs of a sweep as an array of Slurm jobs, and a job that compares them afterwards."""
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from .description import Sweep, SweepError, SweepRun

SCRIPTS = Path(__file__).resolve().parents[1]


def submit(sweep: Sweep, pending: list[SweepRun], arguments: Namespace, program: str) -> int:
    """Submits the pending runs. Task i of the array reads its folder and arguments from DIR/tasks/i."""
    tasks = sweep.folder / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    indices = []
    for index, run in enumerate(sweep.runs, 1):
        if run not in pending:
            continue
        indices.append(index)
        run.folder.mkdir(exist_ok=True)
        (tasks / str(index)).write_bytes(b"".join(os.fsencode(field) + b"\0" for field in (str(run.folder), *run.arguments)))
    array = ranges(indices) + (f"%{arguments.jobs}" if arguments.jobs else "")
    environment = {**os.environ, "LYCEUM": program}
    job = sbatch([f"--array={array}", f"--output={sweep.folder}/slurm-%A_%a.log", *arguments.sbatch,
                  str(SCRIPTS / "slurm" / "sweep.sbatch"), str(tasks)], environment)
    print(f"sweep: job {job}, tasks {array}; logs in {sweep.folder}/slurm-{job}_*.log", flush=True)
    # The comparison is a job on one core, also if runs fail.
    command = shlex.join([sys.executable, str(SCRIPTS / "sweep.py"), arguments.file, "--compare", "--lyceum", program])
    if site := os.environ.get("LYCEUM_ENVIRONMENT"):
        command = f". {shlex.quote(site)} && {command}"
    after = sbatch([f"--dependency=afterany:{job}", "--job-name=lyceum-compare", "--ntasks=1",
                    f"--output={sweep.folder}/compare.log", f"--wrap={command}"], environment)
    print(f"sweep: job {after} compares the runs when all have ended: {sweep.folder}/compare.log, compare.html", flush=True)
    print("sweep: the same command submits runs again that are not complete by then", flush=True)
    return 0


def sbatch(arguments: list[str], environment: dict[str, str]) -> str:
    """Submits a job and returns its number."""
    try:
        done = subprocess.run(["sbatch", "--parsable", *arguments], capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise SweepError(f"sbatch: {error.strerror}: --slurm needs a host from which jobs can be submitted") from error
    if done.returncode:
        raise SweepError(done.stderr.strip() or f"sbatch failed with code {done.returncode}")
    return done.stdout.strip().split(";")[0]


def ranges(numbers: list[int]) -> str:
    """Returns ascending numbers as Slurm reads them: "1-3,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
