#!/usr/bin/env python3
"""Interrupts training runs at random, many times, and compares their results with those of undisturbed runs.

    tests/faults/chaos.py LYCEUM SHIM [--minutes N | --cycles N] [--seed S] [--gpu-stand-in PROGRAM]

Each cycle starts a run, which resumes from its newest checkpoint, and ends it in a random way: SIGKILL of a rank, of all
ranks or of mpirun; SIGUSR1, SIGTERM or SIGINT to mpirun; SIGUSR1 or SIGTERM to a rank; or a fault in a system call
(tests/faults/shim.cpp), followed by a request to stop if the run continues. Cycles alternate between two runs:

    equal     uses the same mesh in every cycle. At the end it continues undisturbed. Its weights and losses must then be
              equal, bit for bit, to those of a run that was never disturbed.
    changing  uses another mesh of 1, 2 or 4 ranks in every cycle. Another mesh sums in another order; the differences in
              rounding grow, and soon a token chooses another expert. So only the first ten steps after each start are
              compared, with an undisturbed run on one rank from the same checkpoint. Losses must agree to 1e-4.

--gpu-stand-in: a program of the sanitized build, in which the CPU emulates a GPU (run.device = cuda).

Prints the seed, the numbers of cycles, disturbances and resumes, and all failures. The exit code is 1 if there were
failures; the folder of the runs is then kept. The same seed draws the same disturbances, but not at the same steps.
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from harness import IO_FAILED, SOURCE, STOPPED, Lab, checkpoint_name, names_in, steps_in

MESHES = [
    (1, []),
    (2, ["--parallel.expert=2"]),
    (2, ["--parallel.zero=1"]),
    (2, ["--parallel.tensor=2", "--parallel.sequence=true"]),
    (2, ["--parallel.pipeline=2", "--parallel.schedule=1f1b", "--batch.micro=2"]),
    (4, ["--parallel.expert=4", "--parallel.zero=2"]),
    (4, ["--parallel.tensor=2", "--parallel.expert=2", "--parallel.expert_tensor=2"]),
    (4, ["--parallel.pipeline=2", "--parallel.tensor=2", "--parallel.sequence=true", "--parallel.expert=2",
         "--parallel.zero=3", "--parallel.schedule=zb-h1", "--batch.micro=2"]),
]
SIGNALS = {"USR1 to mpirun": signal.SIGUSR1, "TERM to mpirun": signal.SIGTERM, "INT to mpirun": signal.SIGINT}
WAYS = ["a rank killed", "all ranks killed", "mpirun killed", *SIGNALS, "USR1 to a rank", "TERM to a rank", *["fault"] * 4]
# Kinds of calls, with the approximate number of calls of rank 0 in a cycle; and the faults of one call.
CALLS = {"open": 120, "write": 600, "fsync": 50, "rename": 40, "unlink": 40, "mkdir": 4, "truncate": 3, "close": 120}
FAULTS = ["kill", "ENOSPC", "EIO", "EINTR"]
WRITE_FAULTS = [*FAULTS, "torn", "short", "ENOSPC+", "EIO+"]
TOLERANCE = 1e-4


class Failure(Exception):
    pass


def steps_done(run_dir):
    try:
        return (run_dir / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


class Run:
    """A run that is interrupted in every cycle."""

    def __init__(self, chaos, name):
        self.chaos, self.lab, self.source = chaos, chaos.lab, chaos.source
        self.dir = chaos.folder / name
        self.changing = name == "changing"
        self.mesh = self.source.choice(MESHES[1:])

    def options(self, *more):
        return [*self.mesh[1], "--checkpoint.every=10", "--checkpoint.keep=3", *self.chaos.device, *more]

    def cycle(self):
        if self.changing:
            self.mesh = self.source.choice([mesh for mesh in MESHES if mesh != self.mesh])
        way, early = self.source.choice(WAYS), self.source.random() < 0.2
        wait = self.source.random() if early else self.source.randint(1, 40)
        fault = self.draw_fault() if way == "fault" else None
        before = self.keep_checkpoints() if self.changing else None
        begun = steps_done(self.dir)
        options = self.options("--run.steps=1000000", f"--checkpoint.background={self.source.choice(['true', 'false'])}")
        job = self.lab.start(self.dir, self.mesh[0], options, [fault] if fault else ())
        if early:
            time.sleep(wait)
        else:
            until = time.monotonic() + 60
            while steps_done(self.dir) < begun + wait and job.process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
        self.disturb(job, way)
        if early and way in ("USR1 to mpirun", "fault"):
            # Open MPI loses signals that it should forward while it starts the ranks: send another one later.
            until = time.monotonic() + 10
            while job.process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            self.disturb(job, way)
        outcome = job.finish(60)
        cause = f"{fault or way} on {self.mesh[0]} ranks ({' '.join(self.mesh[1])}): {outcome.summary()}"
        self.chaos.count(way if not fault else f"fault {fault.split(':')[1]} {fault.split(':')[3]}")
        self.judge(outcome, way, early, cause)
        resumed = re.search(r"^resumed .*step-0*(\d+) ", outcome.out, re.MULTILINE)
        if resumed:
            self.chaos.resumes += 1
        if before and (resumed or not begun):  # otherwise it ended before it resumed
            self.compare_losses(before, int(resumed[1]) if resumed else 0, cause)

    def draw_fault(self):
        kind = self.source.choice(list(CALLS))
        fault = self.source.choice(WRITE_FAULTS if kind == "write" else FAULTS)
        if kind in ("rename", "unlink", "mkdir") and fault == "EINTR":  # these calls never fail with EINTR
            fault = "EIO"
        rank = self.source.choice([0, self.source.randrange(self.mesh[0])])  # more often rank 0, which writes most files
        return f"{rank}:{kind}:{self.source.randint(1, CALLS[kind])}:{fault}"

    def disturb(self, job, way):
        ranks = job.ranks()
        try:
            if way == "fault":
                job.process.send_signal(signal.SIGUSR1)  # ends the run if it survived the fault
            elif way in SIGNALS:
                job.process.send_signal(SIGNALS[way])
            elif way == "mpirun killed" or not ranks:
                job.process.kill()
            elif way == "all ranks killed":
                for process in ranks.values():
                    os.kill(process, signal.SIGKILL)
            else:
                number = {"a rank killed": signal.SIGKILL, "USR1 to a rank": signal.SIGUSR1}.get(way, signal.SIGTERM)
                os.kill(self.source.choice(sorted(ranks.items()))[1], number)
        except ProcessLookupError:
            pass  # the process has ended already

    @staticmethod
    def judge(outcome, way, early, cause):
        if outcome.code is None:
            raise Failure(f"it hangs after {cause}")
        if outcome.code == 0:
            raise Failure(f"a run of a million steps is over after {cause}")
        if way == "fault" and outcome.code == IO_FAILED:
            said = [line for line in outcome.lines() if not line.endswith(" exits at once")]
            if len(said) != 1 or not said[0].startswith("lyceum train: "):
                raise Failure(f"{len(said)} lines on standard error after {cause}")
        elif outcome.code == STOPPED:
            if way != "fault" and "stopped on request" not in outcome.out:  # a fault may hit the write of this line
                raise Failure(f"no line says where it stopped after {cause}")
        elif way in ("USR1 to mpirun", "USR1 to a rank", "TERM to a rank") and not early:
            raise Failure(f"no code {STOPPED} after {cause}")

    # --- losses on another mesh

    def keep_checkpoints(self):
        """Returns a folder of hard links to the checkpoints from which the cycle may resume. Links suffice, since files of
        checkpoints are never changed in place."""
        kept = self.chaos.folder / "before"
        shutil.rmtree(kept, ignore_errors=True)
        if (self.dir / "checkpoints").exists():
            shutil.copytree(self.dir / "checkpoints", kept, copy_function=os.link)
        return kept

    def compare_losses(self, before, step, cause):
        losses = {record["step"]: record["loss"] for record in steps_in_whole_lines(self.dir)}
        new = [s for s in range(step + 1, step + 11) if s in losses]
        if not new:
            return
        alone = self.chaos.folder / "alone"
        shutil.rmtree(alone, ignore_errors=True)
        if step:
            (alone / "checkpoints").mkdir(parents=True)
            shutil.copytree(before / checkpoint_name(step), alone / "checkpoints" / checkpoint_name(step))
        outcome = self.lab.train(alone, 1, [*self.chaos.device, f"--run.steps={new[-1]}", "--checkpoint.every=0"])
        if outcome.code != 0:
            raise Failure(f"one rank does not go on from step {step}: {outcome.summary()}")
        expected = {record["step"]: record["loss"] for record in steps_in(alone)}
        for s in new:
            if not abs(losses[s] - expected[s]) <= TOLERANCE * abs(expected[s]):
                raise Failure(f"loss of step {s} is {losses[s]}, on one rank {expected[s]}, resumed at {step}, {cause}")
        self.chaos.compared += len(new)

    # --- the end

    def conclude(self):
        steps = steps_done(self.dir) + 20
        outcome = self.lab.train(self.dir, self.mesh[0], self.options(f"--run.steps={steps}"), timeout=600 + 10 * steps)
        if outcome.code != 0:
            raise Failure(f"{self.dir.name} does not go on undisturbed: {outcome.summary()}")
        left = {name for name in names_in(self.dir)
                if not re.fullmatch(r"(checkpoints(/LATEST|/step-\d{8}(/[^/]*)?)?|config.ini|metrics.jsonl|routing.h5|starts.jsonl)", name)}
        if left:
            raise Failure(f"{self.dir.name}: left behind: {', '.join(sorted(left))}")
        recorded = [record["step"] for record in steps_in(self.dir)]
        if recorded != list(range(1, steps + 1)):
            raise Failure(f"{self.dir.name}: metrics.jsonl lacks steps or has them twice")
        if self.changing:
            return
        calm = self.chaos.folder / "calm"
        self.lab.must_train(calm, self.mesh[0], self.options(f"--run.steps={steps}"), timeout=600 + 10 * steps)
        last = Path("checkpoints") / checkpoint_name(steps)
        if not self.lab.same_weights(self.dir / last, calm / last):
            raise Failure(f"after {steps} steps the weights are not those of the undisturbed run")
        if [record["loss"] for record in steps_in(self.dir)] != [record["loss"] for record in steps_in(calm)]:
            raise Failure("the losses are not those of the undisturbed run")


def steps_in_whole_lines(run_dir):
    """Returns the same as steps_in, without an incomplete last line that a killed run leaves."""
    try:
        text = (run_dir / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    whole = run_dir.parent / "whole-lines"
    whole.mkdir(exist_ok=True)
    (whole / "metrics.jsonl").write_text(text[:text.rfind("\n") + 1])
    return steps_in(whole)


class Chaos:
    def __init__(self, arguments, folder):
        self.folder, self.source = folder, random.Random(arguments.seed)
        self.lab = Lab(arguments.lyceum, arguments.shim, folder)
        self.device = []
        if arguments.gpu_stand_in:
            self.lab.lyceum = arguments.gpu_stand_in.resolve()
            self.lab.environment["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0"
            self.device = ["--run.device=cuda"]
        self.ways, self.cycles, self.resumes, self.compared, self.failures = collections.Counter(), 0, 0, 0, []

    def count(self, way):
        self.ways[way] += 1
        self.cycles += 1

    def guarded(self, act):
        try:
            act()
        except Failure as failure:
            self.failures.append(str(failure))
            print(f"FAILED {failure}", flush=True)

    def go_on(self, arguments):
        runs = [Run(self, "equal"), Run(self, "changing")]
        print(f"seed {arguments.seed}; equal: {runs[0].mesh[0]} ranks {' '.join(runs[0].mesh[1])}", flush=True)
        until = time.monotonic() + 60 * arguments.minutes
        while len(self.failures) < 10 and (self.cycles < arguments.cycles if arguments.cycles
                                           else time.monotonic() < until):
            self.guarded(runs[self.cycles % 2].cycle)
        for run in runs:
            self.guarded(run.conclude)
        for way, count in sorted(self.ways.items()):
            print(f"{count:>6}  {way}")
        print(f"{self.cycles} cycles, {self.resumes} resumes, {steps_done(runs[0].dir)} steps on equal and "
              f"{steps_done(runs[1].dir)} on changing meshes, {self.compared} losses compared, "
              f"{len(self.failures)} failures")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lyceum", type=Path)
    parser.add_argument("shim", type=Path)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--cycles", type=int, help="so many, however long they take")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--gpu-stand-in", type=Path, metavar="PROGRAM")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lyceum-chaos-"))
    chaos = Chaos(arguments, folder)
    chaos.go_on(arguments)
    if chaos.failures:
        print(f"seed {arguments.seed}; the runs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
