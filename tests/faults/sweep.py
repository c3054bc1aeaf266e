#!/usr/bin/env python3
"""Injects a fault into one file system call of a training run at a time, and checks how the run ends and resumes.

    tests/faults/sweep.py LYCEUM SHIM [--points N] [--seed S] [--scenario NAME ...] [--kind KIND ...]
                         [--jobs N] [--keep FOLDER]

Each scenario runs once undisturbed, while every call is recorded. A point is one call of that record, given by rank, kind
and number, with one fault that applies to it (tests/faults/shim.cpp). After the run with the fault, the same command runs
without the shim. The folder must then equal that of an undisturbed run: equal weights bit for bit, every step in
metrics.jsonl, the right LATEST, and no other files. The run with the fault must end in time, as docs/checkpoints.md
states: it continues with a warning if a checkpoint or a log could not be written, and ends with code 4 and one line if
its last checkpoint could not. EINTR and short writes must have no effect at all.

Without --points all points are tried. The exit code is 0 if all passed, or else 1.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from harness import IO_FAILED, STOPPED, Lab, Recorded, checkpoint_name, digests, fresh, names_in, read_log, steps_in

RANKS = 2
# Few tensors: each tensor has its own writes, which are all alike, and power_loss.py tries a number of states that grows
# with the square of the number of writes.
SMALL = ["--model.layers=1", "--model.first_dense_layers=0", "--moe.experts=2", "--moe.shared_experts=0", "--moe.top_k=1"]
FAULTS = {
    "open": ["kill", "ENOSPC", "EIO", "EINTR"],
    "write": ["kill", "torn", "short", "ENOSPC", "ENOSPC+", "EIO", "EIO+", "EINTR"],
    "copy": ["kill", "torn", "short", "ENOSPC", "EIO"],
    "fsync": ["kill", "ENOSPC", "EIO", "EIO+", "EINTR"],
    "rename": ["kill", "ENOSPC", "EIO"],
    "link": ["kill", "EIO"],
    "unlink": ["kill", "EIO"],
    "mkdir": ["kill", "ENOSPC", "EIO"],
    "truncate": ["kill", "ENOSPC", "EIO", "EINTR"],
    "close": ["kill", "EIO", "EINTR"],
}
READ_FAULTS = ["EIO", "EINTR"]  # for an open that only reads
HARMLESS = {"short", "EINTR"}
KILLS = {"kill", "torn"}


@dataclasses.dataclass
class Scenario:
    """A command whose calls get faults, and the folder in which it starts."""
    name: str
    prepare: object  # function that makes the folder in which the run starts; None: there is no folder
    options: list
    window: object  # function (calls) -> the calls that get faults
    steps: int  # steps of the undisturbed run
    saves: set  # steps whose checkpoints an undisturbed run leaves
    faults: tuple = ()  # FAULT_AT of every run under the shim: signals
    code: int = 0  # exit code of an undisturbed run
    warnings: int = 0  # number of warnings of an undisturbed run
    template: Path | None = None  # the folder that prepare() made
    reference: Path | None = None  # folder of the undisturbed run
    points: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Point:
    scenario: Scenario
    call: Recorded
    fault: str

    def __str__(self):
        return (f"{self.scenario.name}: rank {self.call.rank}, {self.call.kind} {self.call.n} "
                f"({self.call.call} of {self.call.path or 'the run folder'}): {self.fault}")


def options(*more):
    return ["--parallel.expert=2", "--run.steps=6", *SMALL, *more]


def first(calls, what):
    return next(call.index for call in calls if what(call))


def saved_to(step):
    name = checkpoint_name(step)
    return lambda call: call.kind == "mkdir" and call.path.endswith(f"{name}.partial")


# --- where the scenarios start

def trained(lab, run_dir, steps):
    lab.must_train(run_dir, RANKS, options(f"--run.steps={steps}", "--checkpoint.every=2"))


def with_a_damaged_newest(lab, run_dir):
    """Makes a run whose newest checkpoint, of step 4, is damaged. A start resumes from step 2 and replaces it."""
    trained(lab, run_dir, 4)
    shard = run_dir / "checkpoints" / checkpoint_name(4) / "rank-00001.h5"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)


def with_leftovers(lab, run_dir):
    """Makes a run with the files that kills at several times leave behind."""
    trained(lab, run_dir, 4)
    root = run_dir / "checkpoints"
    shutil.copytree(root / checkpoint_name(2), root / f"{checkpoint_name(6)}.partial")
    (root / checkpoint_name(2)).rename(root / f"{checkpoint_name(2)}.removing")
    (root / f"{checkpoint_name(2)}.removing" / "manifest.json").unlink()
    (root / checkpoint_name(4)).rename(root / f"{checkpoint_name(4)}.replaced")
    (root / checkpoint_name(8)).mkdir()
    (root / "LATEST").write_text(f"{checkpoint_name(2)}\n")
    (root / "LATEST.partial").write_text("step-0")
    with open(run_dir / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "lo')
    for name in (".routing.h5.next", ".routing.h5.spare"):
        shutil.copy(run_dir / "routing.h5", run_dir / name)
    (run_dir / ".routing.h5.journal.partial").write_text("half a jour")
    (run_dir / ".routing.h5.journal").write_text("of another file")


def scenarios():
    def whole_saves(calls):
        begin = first(calls, saved_to(2)) - 2  # includes the calls that make the folder of checkpoints
        return [call for call in calls if call.index >= begin]

    def rotations(calls):
        begin = first(calls, lambda call: call.kind == "rename" and call.more["exchange"])
        return [call for call in calls if call.index >= begin]

    def start(calls):
        end = first(calls, lambda call: call.kind == "write" and call.path == "metrics.jsonl")
        return [call for call in calls if call.index <= end]

    def stop(calls):
        begin = first(calls, lambda call: call.kind == "mkdir" and call.path == "checkpoints")
        return [call for call in calls if call.index >= begin - 2]

    return [
        Scenario("save", None, options("--run.steps=4", "--checkpoint.every=2"), whole_saves, 4, {2, 4}),
        Scenario("background", None, options("--run.steps=4", "--checkpoint.every=2", "--checkpoint.background=true"),
                 whole_saves, 4, {2, 4}),
        Scenario("rotation", with_a_damaged_newest, options("--checkpoint.every=2", "--checkpoint.keep=1"), rotations, 6,
                 {6}),
        Scenario("start", with_leftovers, options("--checkpoint.every=2"), start, 6, {4, 6}),
        Scenario("stop", None, options("--checkpoint.every=0"), stop, 6, {6}, ("USR1",), STOPPED),
    ]


# --- points

def prepare(lab, scenario, folder):
    """Records the undisturbed run of a scenario, and sets its points, template and reference."""
    if scenario.prepare:
        scenario.template = folder / f"{scenario.name}.template"
        scenario.prepare(lab, scenario.template)
    run_dir, log = folder / scenario.name, folder / f"{scenario.name}.log"
    if scenario.faults:  # sends the signal when the third step is written to metrics.jsonl
        lab.must_train(fresh(run_dir, scenario.template), RANKS, scenario.options, log=log)
        steps = [call for call in read_log(log) if call.kind == "write" and call.path == "metrics.jsonl"]
        scenario.faults = tuple(f"0:write:{steps[2].n}:{signal}" for signal in scenario.faults)
        log.unlink()
    outcome = lab.train(fresh(run_dir, scenario.template), RANKS, scenario.options, faults=scenario.faults, log=log)
    if outcome.code != scenario.code:
        raise SystemExit(f"{scenario.name} undisturbed: {outcome.summary()}")
    scenario.warnings = len(outcome.warnings())
    if scenario.code:
        lab.must_train(run_dir, RANKS, scenario.options)
    scenario.reference = run_dir
    for call in scenario.window(read_log(log)):
        fitting = FAULTS[call.kind] if call.more.get("writes", True) else READ_FAULTS
        if call.call == "openat":  # the standard library opens a folder, and does not retry after EINTR
            fitting = ["EIO"]
        scenario.points += [Point(scenario, call, fault) for fault in fitting
                            if not (fault in ("short", "torn") and len(call.data) < 2)]
    log.unlink()


def choose(all_points, count, seed):
    """Returns `count` points: random ones of each scenario, kind and fault by turns, since most points are writes."""
    if count is None or count >= len(all_points):
        return all_points
    source = random.Random(seed)
    groups = collections.defaultdict(list)
    for point in all_points:
        groups[point.scenario.name, point.call.kind, point.fault].append(point)
    queues = list(groups.values())
    for queue in queues:
        source.shuffle(queue)
    source.shuffle(queues)
    chosen = []
    while len(chosen) < count:
        chosen += [queue.pop() for queue in queues if queue]
    return chosen[:count]


# --- what must hold

def faulted_problem(point, outcome, run_dir):
    """Returns what is wrong with the end of the run with the fault, or None."""
    scenario = point.scenario
    if outcome.code is None:
        return "it hangs"
    if point.fault in KILLS:
        return None if outcome.code not in (0, STOPPED) else "the kill went unnoticed"
    if point.fault in HARMLESS:
        same = outcome.code == scenario.code and len(outcome.warnings()) == scenario.warnings
        return None if same else "not harmless"
    if outcome.code == scenario.code:
        lost = names_in(scenario.reference) - names_in(run_dir)
        if scenario.code == 0 and lost and len(outcome.warnings()) == scenario.warnings:
            return f"without a warning it lacks {', '.join(sorted(lost))}"
        last = run_dir / "checkpoints" / checkpoint_name(scenario.steps)
        return None if scenario.code or last.is_dir() else "code 0, and the last checkpoint is not there"
    if outcome.code not in (3, IO_FAILED):
        return "not an exit code that is promised"
    said = outcome.lines()
    if scenario.code and said and "saving a checkpoint after this step" in said[0]:
        said = said[1:]
    if len(said) != 1 or not said[0].startswith("lyceum train: "):
        return f"{len(said)} lines on standard error, not one"
    # A fault may end the run only before the first step or while it saves its last checkpoint.
    if " was not saved: " in said[0] or (run_dir / "metrics.jsonl").stat().st_size == 0:
        return None
    return None if scenario.name == "start" else "it does not go on"


def state_problem(lab, scenario, run_dir, outcomes):
    """Returns how a run's folder differs from that of an undisturbed run, or None."""
    if outcomes[-1].code != 0:
        return "the next start fails"
    root, last = run_dir / "checkpoints", checkpoint_name(scenario.steps)
    if not lab.same_weights(root / last, scenario.reference / "checkpoints" / last):
        return "other weights than the undisturbed run"
    if (root / "LATEST").read_text() != f"{last}\n":
        return f"LATEST says {(root / 'LATEST').read_text()!r}"
    extra = names_in(run_dir) - names_in(scenario.reference)
    if scenario.faults:  # a log that cannot be written moves the write that sends the signal, and so the step of the stop
        extra = {name for name in extra if not name.startswith("checkpoints/step-")}
    if extra:
        return f"left behind: {', '.join(sorted(extra))}"
    lost = {name for name in names_in(scenario.reference) - names_in(run_dir) if not name.startswith("checkpoints/")}
    if lost:
        return f"missing: {', '.join(sorted(lost))}"
    recorded = [(record["step"], record["loss"]) for record in steps_in(run_dir)]
    if recorded != [(record["step"], record["loss"]) for record in steps_in(scenario.reference)]:
        return "metrics.jsonl has other steps or losses"
    return None


def try_point(lab, point, folder, log_kept):
    """Tries a point. Returns what went wrong, or None."""
    scenario = point.scenario
    run_dir = fresh(folder, scenario.template)
    fault = f"{point.call.rank}:{point.call.kind}:{point.call.n}:{point.fault}"
    outcomes = [lab.train(run_dir, RANKS, scenario.options, faults=(*scenario.faults, fault))]
    problem = faulted_problem(point, outcomes[0], run_dir)
    if not problem:
        outcomes.append(lab.train(run_dir, RANKS, scenario.options))
        problem = state_problem(lab, scenario, run_dir, outcomes)
    if problem and log_kept:
        kept = log_kept / f"{scenario.name}-{fault.replace(':', '-')}"
        shutil.copytree(run_dir, kept, dirs_exist_ok=True)
        for number, outcome in enumerate(outcomes):
            (kept / f"output.{number}").write_text(outcome.out + outcome.err)
    shutil.rmtree(run_dir)
    return f"{problem} ({' / '.join(outcome.summary() for outcome in outcomes)})" if problem else None


def sweep(lab, arguments, folder):
    wanted = [s for s in scenarios() if not arguments.scenario or s.name in arguments.scenario]
    for scenario in wanted:
        prepare(lab, scenario, folder)
    every = [point for scenario in wanted for point in scenario.points]
    points = [point for point in every if not arguments.kind or point.call.kind in arguments.kind]
    points = choose(points, arguments.points, arguments.seed)
    print(f"{len(points)} of {len(every)} points, seed {arguments.seed}", flush=True)
    passed, tried, failures = collections.Counter(), collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        def one(numbered):
            number, point = numbered
            return point, try_point(lab, point, folder / f"point-{number}", arguments.keep)
        for number, (point, problem) in enumerate(pool.map(one, enumerate(points))):
            if number % 500 == 499:
                print(f"{number + 1} points, {len(failures)} failures so far", flush=True)
            key = point.scenario.name, point.call.kind, point.fault
            tried[key] += 1
            passed[key] += problem is None
            if problem:
                failures.append(f"{point}: {problem}")
                print(f"FAILED {failures[-1]}", flush=True)
    print(f"{'phase':<12}{'kind':<10}{'fault':<9}{'points':>7}{'passed':>8}")
    for key in sorted(tried):
        print(f"{key[0]:<12}{key[1]:<10}{key[2]:<9}{tried[key]:>7}{passed[key]:>8}")
    print(f"{'all':<31}{len(points):>7}{len(points) - len(failures):>8}")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lyceum", type=Path)
    parser.add_argument("shim", type=Path)
    parser.add_argument("--points", type=int, help="so many of them, each kind and fault in turn (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", nargs="+", choices=[s.name for s in scenarios()])
    parser.add_argument("--kind", nargs="+", choices=list(FAULTS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="where to leave the folders of runs that failed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lyceum-sweep-") as folder:
        return sweep(Lab(arguments.lyceum, arguments.shim, folder), arguments, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
