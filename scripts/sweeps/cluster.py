"""Submits the runs of a sweep as an array of Slurm jobs, and a job that compares them afterwards."""
import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from .description import Sweep, SweepError, SweepRun

SCRIPTS = Path(__file__).absolute().parents[1]


def submit(sweep: Sweep, pending: list[SweepRun], arguments: argparse.Namespace, program: str) -> int:
    """Submits the pending runs. Task i of the array reads its folder, digest and arguments from DIR/tasks/i."""
    tasks = sweep.folder / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    indices = []
    for index, run in enumerate(sweep.runs, 1):
        if run not in pending:
            continue
        indices.append(index)
        run.folder.mkdir(exist_ok=True)
        fields = (str(run.folder), run.digest, *run.arguments)
        (tasks / str(index)).write_bytes(b"".join(os.fsencode(field) + b"\0" for field in fields))
    array = ranges(indices) + (f"%{arguments.jobs}" if arguments.jobs else "")
    environment = {**os.environ, "LYCEUM": program}
    job = sbatch([f"--array={array}", f"--output={sweep.folder}/slurm-%A_%a.log", *arguments.sbatch,
                  str(SCRIPTS / "slurm" / "sweep.sbatch"), str(tasks)], environment)
    print(f"sweep: job {job}, tasks {array}; logs in {sweep.folder}/slurm-{job}_*.log", flush=True)
    # The comparison is a job on one core, also if runs fail.
    by_hand = shlex.join([sys.executable, str(SCRIPTS / "sweep.py"), arguments.file, "--compare", "--lyceum", program])
    command = by_hand
    if site := os.environ.get("LYCEUM_ENVIRONMENT"):  # written for bash, as job.sh reads it; --wrap runs in sh
        command = shlex.join(["bash", "-c", f". {shlex.quote(os.path.abspath(site))} && {by_hand}"])
    try:
        after = sbatch([f"--dependency=afterany:{job}", "--job-name=lyceum-compare", "--ntasks=1",
                        f"--output={sweep.folder}/compare.log", *site_options(arguments.sbatch), f"--wrap={command}"], environment)
        print(f"sweep: job {after} compares the runs when all have ended: {sweep.folder}/compare.log, compare.html", flush=True)
    except SweepError as error:
        print(f"sweep: warning: job {job} is submitted, but not the job that compares its runs ({error}); when it has ended: {by_hand}",
              file=sys.stderr, flush=True)
    print("sweep: the same command submits runs again that are not complete by then", flush=True)
    return 0


def site_options(arguments: list[str]) -> list[str]:
    """Returns those options of sbatch without which a site may refuse any job, or run it elsewhere."""
    parser = argparse.ArgumentParser(add_help=False)
    for names in ("-A", "--account"), ("-p", "--partition"), ("-q", "--qos"), ("-M", "--clusters"), ("--reservation",):
        parser.add_argument(*names)
    given, _ = parser.parse_known_args(arguments)
    return [f"--{name}={value}" for name, value in vars(given).items() if value is not None]


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
