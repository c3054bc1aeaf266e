"""Trains the runs of a sweep on this machine, several at a time."""
import contextlib
import itertools
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field

from .description import Sweep, SweepError, SweepRun
from .state import REFUSED, record

STOPPED = 75  # exit code of a run that saved a checkpoint on request
POLL = 0.1  # seconds


@dataclass
class Outcome:
    failed: list[str] = field(default_factory=list)  # names
    busy: list[str] = field(default_factory=list)  # names of runs that another process trains
    stopped: bool = False  # the sweep was interrupted


@dataclass
class Running:
    run: SweepRun
    digest: str  # of its settings; empty if they are not known
    process: subprocess.Popen
    started: float
    slot: int


class Trainer:
    def __init__(self, sweep: Sweep, pending: list[SweepRun], jobs: int, gpus: list[list[str]], program: str):
        self.sweep, self.pending, self.jobs, self.gpus, self.program = sweep, list(pending), jobs, gpus, program
        self.running: list[Running] = []
        self.outcome = Outcome()
        self.requests = 0  # signals so far
        self.handled = 0  # those that the runs have been sent
        self.silent = False
        self.started = len(sweep.runs) - len(pending)

    def train(self) -> Outcome:
        """Trains all runs. If this fails, such as on a full disk or a closed pipe, the runs are stopped before the error is raised."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.request) for number in numbers}
        try:
            self.work()
        except BaseException:
            self.pending.clear()
            self.requests = max(self.requests, 1)
            self.silent = True
            while self.running:
                with contextlib.suppress(OSError):
                    self.work()
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self.outcome.stopped = self.requests > 0
        return self.outcome

    def work(self) -> None:
        while self.running or (self.pending and not self.requests):
            while self.pending and not self.requests and len(self.running) < self.jobs:
                self.start(self.pending.pop(0))
            if self.requests > self.handled:
                self.handled = self.requests
                self.stop(self.handled)
            self.collect()
            time.sleep(POLL)

    def request(self, *_) -> None:
        self.requests += 1

    def say(self, text: str) -> None:
        if not self.silent:
            print(f"sweep: {text}", flush=True)

    def start(self, run: SweepRun) -> None:
        self.started += 1
        run.folder.mkdir(parents=True, exist_ok=True)
        stop_file(run).unlink(missing_ok=True)
        # A configuration that was edited meanwhile has unknown settings: the next sweep starts this run again.
        digest = run.digest if self.sweep.config.stat().st_mtime_ns == self.sweep.config_time else ""
        slot = min(set(range(self.jobs)) - {other.slot for other in self.running})
        environment = {**os.environ, "LYCEUM_STOP_FILE": str(stop_file(run).absolute())}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[slot])
        launcher = []
        if self.sweep.ranks > 1:
            launcher = ["mpirun", "-n", str(self.sweep.ranks)]
            if self.jobs > 1:  # else each mpirun binds its ranks to the same cores
                environment.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")
        with open(run.folder / "train.log", "ab") as log:
            # A session of its own: a Ctrl-C on the terminal reaches only this script, which asks for a checkpoint.
            process = subprocess.Popen([*launcher, self.program, "train", "--config", *run.arguments], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, env=environment, start_new_session=True)
        self.running.append(Running(run, digest, process, time.monotonic(), slot))
        self.say(f"[{self.started}/{len(self.sweep.runs)}] {run.name}: started")

    def stop(self, requests: int) -> None:
        for other in self.running:
            if requests > 1 or not ask_to_stop(other.run):
                os.killpg(other.process.pid, signal.SIGTERM if requests < 3 else signal.SIGKILL)
        if requests == 1:
            self.say("stopping all runs after a checkpoint; once more ends them at once")

    def collect(self) -> None:
        """Records and reports the runs that have ended."""
        for ended in [other for other in self.running if other.process.poll() is not None]:
            self.running.remove(ended)
            run, code = ended.run, ended.process.returncode
            code = 128 - code if code < 0 else code
            stop_file(run).unlink(missing_ok=True)
            reason = failure(run) if code not in (0, STOPPED) else ""
            if code == REFUSED and " is in use by " in reason:
                self.outcome.busy.append(run.name)
                self.say(f"{run.name}: still running: {reason}")
                continue
            record(run, code, ended.digest)
            seconds = f"{time.monotonic() - ended.started:.0f} s"
            if code == 0:
                self.say(f"{run.name}: complete, {seconds}")
            elif code == STOPPED or self.requests:
                self.say(f"{run.name}: stopped, {seconds}")
            else:
                self.outcome.failed.append(run.name)
                self.say(f"{run.name}: failed with code {code}, see {run.folder}/train.log: {reason}")


def ask_to_stop(run: SweepRun) -> bool:
    """Returns whether the run can be asked for a checkpoint: not on a full disk."""
    try:
        stop_file(run).write_text("asked to stop\n")
    except OSError:
        return False
    return True


def stop_file(run: SweepRun):
    return run.folder / "stop-request"


def failure(run: SweepRun) -> str:
    """Returns the last message of `lyceum` in the run's log, with the indented lines that belong to it; else the last line. It names
    keys of the sweep."""
    with open(run.folder / "train.log", "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    lines = [line.replace("set another run.dir", "use another dir in [sweep]") for line in lines]
    begin = max((i for i, line in enumerate(lines) if line.startswith("lyceum ")), default=None)
    if begin is None:
        return (lines or ["no output"])[-1]
    details = itertools.takewhile(lambda line: line.startswith(" "), lines[begin + 1:])
    return "\n".join([lines[begin], *details])


def gpus_of_slots(text: str | None, jobs: int, ranks: int) -> list[list[str]]:
    """Returns the GPUs of each of `jobs` simultaneous runs; an empty list if none were named."""
    if not text:
        return []
    gpus = [name.strip() for name in text.split(",")]
    if "" in gpus or len(set(gpus)) < len(gpus) or len(gpus) < jobs * ranks:
        raise SweepError(f"--gpus {text}: {jobs} runs at a time with {ranks} ranks each need {jobs * ranks} different GPUs")
    return [gpus[slot * ranks:(slot + 1) * ranks] for slot in range(jobs)]


def train(sweep: Sweep, pending: list[SweepRun], jobs: int, gpus: str | None, program: str) -> Outcome:
    """Trains the pending runs. Returns when all have ended, or were stopped by SIGINT, SIGTERM or SIGHUP."""
    return Trainer(sweep, pending, jobs, gpus_of_slots(gpus, jobs, sweep.ranks), program).train()
