"""The program behind run.sh, which describes it."""
import argparse
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Callable

import experiments
import items
import page as pages
import text
from errors import Failed
from lab import Lab
from program import Program, Stopped

project = Path(__file__).resolve().parents[2]
alone = ("all", "next", "summary")  # instead of names of experiments


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/papers/run.sh", description="Trains the models of a table or figure of a paper, at a small size.")
    parser.add_argument("names", nargs="+", choices=[*experiments.all_of_them, *alone], metavar="NAME",
                        help=", ".join(experiments.all_of_them) + "; one or several of them; or all; or next, with --hours: the first ones of the table of what is to run; or summary, which only writes README.md from the pages that exist")
    parser.add_argument("--minutes", type=float, help="train for as many steps as fit into this time for each NAME (default: 2400 steps)")
    parser.add_argument("--hours", type=float, help="with next: core-hours, as estimated in the table of what is to run; on a free machine, its cores times the hours")
    parser.add_argument("--seeds", type=int, help="number of seeds of each model (default: 3, with --quick 2)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="SEED", help="seeds are SEED, SEED + 1, … (default: 1); other values add a column to the table of all claims, and leave the page unchanged")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="number of simultaneous runs (default: the cores of this machine)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where models are trained and evaluated (default: cpu); with cuda, the runs share the GPU")
    parser.add_argument("--quick", action="store_true", help="train tiny models for a few steps, to test the scripts; the results say nothing about the papers")
    parser.add_argument("--out", type=Path, help="folder of the pages (default: docs/papers; with --quick: pages in the --work folder)")
    parser.add_argument("--work", type=Path, help="folder of text, models and evaluations (default: runs/papers, with --quick runs/papers-quick)")
    parser.add_argument("--lyceum", help="the program (default: that of build/cpu or build/cuda, or the one on PATH)")
    given = parser.parse_args()
    for name in alone:
        if name in given.names and len(given.names) > 1:
            parser.error(f"{name} must be the only name")
    takes_next = given.names == ["next"]
    if (given.hours is None) == takes_next:
        parser.error("next needs --hours" if takes_next else f"--hours is for next only, not for {given.names[0]}")
    if given.hours is not None and not given.hours > 0:
        parser.error(f"--hours {given.hours:g}: must be above 0")
    if takes_next and (given.minutes is not None or given.quick or given.first_seed != 1):
        parser.error("next runs experiments as they are in the table: without --minutes, --quick and --first-seed")
    if given.seeds is None:
        given.seeds = 2 if given.quick else 3
    if takes_next and given.seeds < 3:
        parser.error(f"--seeds {given.seeds}: next needs at least 3, as it replaces pages of 3 seeds")
    if given.minutes is not None and not given.minutes > 0:
        parser.error(f"--minutes {given.minutes:g}: must be above 0")
    if not 1 <= given.seeds <= 10 or given.cores < 1:
        parser.error("--seeds must be 1 to 10, and --cores at least 1")
    if given.first_seed < 0:
        parser.error(f"--first-seed {given.first_seed}: must be at least 0")
    return given


def path_of(named: str | None, device: str) -> str:
    builds = ["cpu", "cuda"] if device == "cpu" else ["cuda"]  # a build with CUDA trains on CPUs, too
    for candidate in [named] if named else [*(project / f"build/{build}/apps/lyceum" for build in builds), "lyceum"]:
        if found := shutil.which(str(candidate)):
            return found
    raise Failed(f"the program {named} does not exist: check --lyceum" if named else "lyceum is not built: run scripts/test.sh or cmake --build, or set --lyceum", 2)


def names_of(given, out: Path) -> list[str]:
    """Returns the experiments to run, each once."""
    names = _names_of(given, out)
    timed = [name for name in names if experiments.all_of_them[name].timed]
    if timed and given.device != "cpu":
        raise Failed(f"--device {given.device}: the times of {', '.join(timed)} are those of one core; name other experiments, or omit --device", 2)
    return names


def _names_of(given, out: Path) -> list[str]:
    if given.names == ["all"]:
        return list(experiments.all_of_them)
    if given.names != ["next"]:
        return list(dict.fromkeys(given.names))
    found = pages.to_run(pages.pages_in(out, experiments.all_of_them), experiments.all_of_them, experiments.full_steps)
    found = [each for each in found if given.device == "cpu" or not experiments.all_of_them[each.name].timed]
    names = pages.fitting(found, given.hours, given.seeds)
    possible = [each for each in found if each.seeds <= given.seeds]
    if possible and not names:
        first = possible[0]
        raise Failed(f"--hours {given.hours:g}: the first experiment to run, {first.name}, takes about {first.hours(given.seeds):.1f} core-hours with "
                     f"{pages.counted(given.seeds, 'seed')}", 2)
    print(f"to run: {', '.join(names) or 'none'}", flush=True)
    return names


def command_of(given, name: str) -> str:
    """Returns the command for the page, without options for paths."""
    words = ["scripts/papers/run.sh", name]
    if given.minutes is not None:
        words += ["--minutes", f"{given.minutes:g}"]
    if given.quick:
        words.append("--quick")
    if given.device != "cpu":
        words += ["--device", given.device]
    if given.first_seed != 1:
        words += ["--first-seed", str(given.first_seed)]
    return " ".join([*words, "--seeds", str(given.seeds)])


def main() -> int:
    given = arguments()
    work = (given.work or project / ("runs/papers-quick" if given.quick else "runs/papers")).resolve()
    out = given.out or (work / "pages" if given.quick else project / "docs/papers")

    summarise = lambda: pages.write_summary(out, experiments.all_of_them, experiments.base(given.quick), experiments.full_steps)
    if given.names == ["summary"]:
        if not out.is_dir():
            raise Failed(f"the folder {out} has no pages: check --out", 2)
        summarise()
        return 0

    names = names_of(given, out)
    if not names:
        return 0
    program = Program(path_of(given.lyceum, given.device))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: program.stop())

    left = list(names)
    try:
        run(given, work, out, program, left, summarise)
    except Stopped:
        instead = f", but with {' '.join(left)} instead of next --hours {given.hours:g}" if given.names == ["next"] else ""
        print(f"stopped; run the same command to resume{instead}", file=sys.stderr)
        return 75
    return 0


def run(given, work: Path, out: Path, program: Program, left: list[str], summarise: Callable[[], None]) -> None:
    """Runs the experiments in `left`, and removes each one from it when its page is written."""
    size = text.Size(400_000, 40_000, 512) if given.quick else text.Size(28_000_000, 200_000, 2048)
    corpus = text.prepare(program.run, project, work / "text", size)
    items.prepare(project, corpus, size, 20 if given.quick else 200)
    seeds = list(range(given.first_seed, given.first_seed + given.seeds))
    for name in list(left):
        experiment = experiments.all_of_them[name]
        lab = Lab(program, work, corpus, experiments.base(given.quick, given.device), seeds, given.cores, eval_batches=4 if given.quick else 0)
        lab.steps = experiments.steps(lab, experiment, given.quick, given.minutes)
        print(f"{name}: {lab.steps} steps, {pages.counted(given.seeds, 'seed')}, {given.cores} at a time", flush=True)
        page = experiment.run(lab)
        program.require_wanted()
        written = pages.write(page, name, experiment.title, out, lab, command_of(given, name))
        print(f"{name}: {written}", flush=True)
        for claim in page.claims:
            print(f"  {claim.verdict:<10}  {claim.text}: {claim.ours} (paper: {claim.paper})", flush=True)
        summarise()
        left.remove(name)
        if left:
            program.require_wanted()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        print(f"run.sh: {error}", file=sys.stderr)
        sys.exit(error.code)
