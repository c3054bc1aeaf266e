#!/usr/bin/env python3
"""Trains the runs of a grid of settings, each in its own folder, and compares them with `lyceum compare`:

    scripts/sweep.py sweep.ini                 # on this machine, one run after the other
    scripts/sweep.py sweep.ini --jobs 4        # four at a time
    scripts/sweep.py sweep.ini --slurm --jobs 4 -- --time=2:00:00 --gpus-per-node=8    # as an array of Slurm jobs
    scripts/sweep.py sweep.ini --list          # the runs and their state
    scripts/sweep.py sweep.ini --compare       # the comparison alone

The same command continues a sweep that was interrupted: complete runs are skipped, others are resumed or started. A run that
fails is named, and the others go on. Ctrl-C stops all runs after a checkpoint; a second one ends them at once.

A sweep is described by an INI or TOML file:

    [sweep]
    config = configs/quickstart.ini    # the configuration of every run
    dir = runs/sweep                   # the folder of the runs
    ranks = 2                          # of a run on this machine (default 1)
    seeds = 1, 2, 3                    # the same as a list for run.seed
    [set]                              # settings of every run
    run.steps = 500
    [grid]                             # every combination of these lists
    optim.lr = 1e-3, 3e-4
    moe.top_k = 1, 2
    [zip]                              # lists of equal length whose values belong together; also [zip NAME], several
    batch.global = 8, 16
    optim.warmup_steps = 20, 10

In INI, values that contain commas are separated by "|". In TOML lists are arrays, and several zips are [[zip]].

Exit codes: 0 all runs are complete, 2 the sweep is wrong, 4 a run or the script failed, 75 stopped, or other processes train some of
the runs: the same command continues.
"""
import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parent))
from sweeps import cluster, local  # noqa: E402
from sweeps.description import Sweep, SweepError, read_sweep  # noqa: E402
from sweeps.state import digest_of, is_changed, is_complete, state_text  # noqa: E402

ROOT = Path(__file__).absolute().parents[1]


def find_program(given: str | None) -> str:
    """Returns the path of lyceum: the given one, the build of this tree, or the installed one."""
    given = given or os.environ.get("LYCEUM")
    for candidate in [given] if given else [str(ROOT / "build/cpu/apps/lyceum"), "lyceum"]:
        found = shutil.which(candidate)
        if found:
            return os.path.abspath(found)
    raise SweepError(f"no program at {given or ROOT / 'build/cpu/apps/lyceum'}: build it, or name it with --lyceum")


def check_settings(sweep: Sweep, program: str) -> None:
    """Sets the digest of each run. Raises a SweepError if the program refuses the settings of a run. No run is started then."""
    for run in sweep.runs:
        try:
            done = subprocess.run([program, "train", "--config", *run.arguments, "--print-config"], capture_output=True,
                                  encoding="utf-8", errors="replace", check=False)
        except OSError as error:
            raise SweepError(f"{program}: {error.strerror}: name a program with --lyceum") from error
        if done.returncode:
            raise SweepError(f"{run.name}: {(done.stderr or done.stdout).strip()}")
        run.digest = digest_of(done.stdout)


def compare(sweep: Sweep, program: str) -> int:
    """Prints the runs side by side and writes a page. Runs that have not made a step yet are left out, and those that are complete
    with other settings."""
    changed = [run for run in sweep.runs if is_changed(run)]
    if changed:
        print(f"sweep: not compared, complete with other settings: {' '.join(run.name for run in changed)}", flush=True)
    started = [str(run.folder) for run in sweep.runs if run not in changed and (run.folder / "metrics.jsonl").exists()]
    if not started:
        print("sweep: no run has made a step yet: nothing to compare", flush=True)
        return 0
    page = sweep.folder / "compare.html"
    return subprocess.run([program, "compare", *started, "--html", str(page), "--title", sweep.folder.name],
                          check=False).returncode


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the description of the sweep, .ini or .toml")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at the same time (default: 1; with --slurm: no limit)")
    parser.add_argument("--gpus", metavar="LIST", help="GPUs of this machine, such as 0,1,2,3: each run gets one per rank")
    parser.add_argument("--slurm", action="store_true", help="submit an array of jobs; options of sbatch follow after --")
    parser.add_argument("--list", action="store_true", help="only list the runs and their state")
    parser.add_argument("--compare", action="store_true", help="only compare the runs")
    parser.add_argument("--lyceum", metavar="PATH", help="the program (default: $LYCEUM, else the build of this tree)")
    given = sys.argv[1:]
    own = given[:given.index("--")] if "--" in given else given
    arguments = parser.parse_args(own, argparse.Namespace(sbatch=given[len(own) + 1:]))
    if arguments.jobs is not None and arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: must be 1 or more")
    if arguments.sbatch and not arguments.slurm:
        parser.error(f"{' '.join(arguments.sbatch)}: options of sbatch need --slurm")
    if arguments.gpus and arguments.slurm:
        parser.error("--gpus: on Slurm, ask for GPUs with an option of sbatch, such as -- --gpus-per-node=8")
    return arguments


def main() -> int:
    arguments = parsed()
    try:
        sweep = read_sweep(arguments.file)
        program = find_program(arguments.lyceum)
        check_settings(sweep, program)
        if arguments.list:
            for run in sweep.runs:
                print(f"{state_text(run):<12} {run.folder}")
            return 0
        if arguments.compare:
            return compare(sweep, program)
        pending = [run for run in sweep.runs if not is_complete(run)]
        print(f"sweep: {len(sweep.runs)} runs in {sweep.folder}, {len(sweep.runs) - len(pending)} of them complete", flush=True)
        if arguments.slurm:
            return cluster.submit(sweep, pending, arguments, program) if pending else compare(sweep, program)
        outcome = local.train(sweep, pending, arguments.jobs or 1, arguments.gpus, program)
        if outcome.stopped:
            print("sweep: stopped: the same command continues", flush=True)
            return 75
        code = compare(sweep, program)
        for name in outcome.busy:
            print(f"sweep: still running: {name}", flush=True)
        for name in outcome.failed:
            print(f"sweep: failed: {name}", flush=True)
        return 4 if outcome.failed else 75 if outcome.busy else code
    except SweepError as error:
        print(f"sweep.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"sweep.py: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 4


if __name__ == "__main__":
    code = main()
    try:
        sys.stdout.flush()
    except OSError:  # a closed pipe: Python would flush again and report it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or 4
    sys.exit(code)
