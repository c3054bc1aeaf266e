"""Code shared by the fault tests: a small training run, starts of the program under the shim, and comparisons of results."""
import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
from known_peaks import know_peaks  # noqa: E402
STOPPED, IO_FAILED = 75, 4  # exit codes

CONFIG = """\
[run]
device = cpu
threads = 1
precision = f32
[data]
train = {data}/train
[batch]
global = 8
seq_len = 16
[model]
vocab = 384
layers = 2
hidden = 16
heads = 2
first_dense_layers = 1
init_std = 0.02
[moe]
experts = 4
shared_experts = 1
top_k = 2
expert_hidden = 16
[balance]
expert = 0.01
[optim]
lr = 3e-3
schedule = constant
warmup_steps = 3
[routing]
every = 1
"""


def checkpoint_name(step):
    return f"step-{step:08d}"


@dataclasses.dataclass
class Outcome:
    """The end and the output of one run of the program. `code` is None if it hung and was killed."""
    code: int | None
    out: str
    err: str

    def lines(self):
        """Returns the lines of standard error, except for empty ones and mpirun's notes on forwarded signals."""
        return [line for line in self.err.splitlines() if line.strip() and not line.startswith("mpirun: Forwarding")]

    def warnings(self):
        return [line for line in self.out.splitlines() if line.startswith("warning: ")]

    def summary(self):
        return f"exit code {self.code}; {' | '.join((self.warnings() + self.lines())[-4:])}"


def mpi_environment():
    """Returns the environment with the variables that scripts/mpi-env.sh exports, and with one thread per rank."""
    text = (SOURCE / "scripts/mpi-env.sh").read_text()
    environment = dict(re.findall(r"^export (\w+)=(\S+)$", text, re.MULTILINE))
    return {**os.environ, **environment, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "LC_ALL": "C.UTF-8"}


def processes_with(name, value):
    """Returns the process ids, by rank, of all ranks that have NAME=VALUE in their environment."""
    wanted = f"{name}={value}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables:
            rank = next((v for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")), None)
            if rank is not None:
                found[int(rank.split(b"=")[1])] = int(folder.name)
    return found


def kill_all(processes):
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Job:
    """A process of mpirun that runs `lyceum train` in the background. `faults`: those of FAULT_AT, see shim.cpp."""

    def __init__(self, lab, run_dir, ranks, options, faults=(), log=None):
        self.mark = f"{os.getpid()}.{time.monotonic_ns()}"
        environment = {**lab.environment, "LYCEUM_FAULT_JOB": self.mark}
        command = ["mpirun", "-n", str(ranks), "-x", "LYCEUM_FAULT_JOB"]
        if faults or log:
            environment |= {"FAULT_ROOT": str(run_dir), "FAULT_AT": ",".join(faults), "FAULT_LOG": str(log or "")}
            command += ["-x", f"LD_PRELOAD={lab.shim}", "-x", "FAULT_ROOT", "-x", "FAULT_AT", "-x", "FAULT_LOG"]
        command += [str(lab.lyceum), "train", f"--config={lab.config}", f"--run.dir={run_dir}", *options]
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        env=environment, start_new_session=True)

    def ranks(self):
        return processes_with("LYCEUM_FAULT_JOB", self.mark)

    def finish(self, timeout):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait()
        until = time.monotonic() + 10
        while self.process.returncode != 0 and time.monotonic() < until and self.ranks():
            time.sleep(0.05)  # ranks end by themselves some time after their mpirun was killed
        left = self.ranks() if self.process.returncode != 0 else {}
        kill_all(left.values())
        for stream in (self.out, self.err):
            stream.seek(0)
        text = self.out.read().decode(errors="replace"), self.err.read().decode(errors="replace")
        return Outcome(None if left else code, *text)


class Lab:
    """A folder with token files and a configuration, and the program that runs in it."""

    def __init__(self, lyceum, shim, folder):
        self.lyceum, self.shim = Path(lyceum).resolve(), Path(shim).resolve()
        self.folder = Path(folder).resolve()
        self.environment = mpi_environment() | {"LYCEUM_CACHE": str(self.folder / "cache")}
        know_peaks(self.lyceum, self.folder / "cache")
        self.config = self.folder / "tiny.ini"
        if self.config.exists():
            return
        data = self.folder / "data"
        subprocess.run([self.lyceum, "tokenize", "--input", SOURCE / "docs", "--vocab", "384", "--model",
                        data / "tokenizer.model", "--output", data / "train", "--sample-mb", "1", "--threads", "1"],
                       env=self.environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.config.write_text(CONFIG.format(data=data))

    def start(self, run_dir, ranks, options, faults=(), log=None):
        return Job(self, run_dir, ranks, options, faults, log)

    def train(self, run_dir, ranks, options, faults=(), log=None, timeout=120):
        return self.start(run_dir, ranks, options, faults, log).finish(timeout)

    def must_train(self, run_dir, ranks, options, **more):
        outcome = self.train(run_dir, ranks, options, **more)
        if outcome.code != 0:
            raise SystemExit(f"an undisturbed run of {self.lyceum} fails: {outcome.summary()}")
        return outcome

    def same_weights(self, a, b):
        """Returns True if all tensors of two checkpoints are equal bit for bit."""
        if digests(a, "rank-*.h5") == digests(b, "rank-*.h5"):  # on one mesh, equal tensors give equal shards
            return True
        result = subprocess.run([self.lyceum, "checkpoint", "diff", a, b], env=self.environment, capture_output=True)
        return result.returncode == 0


def digests(folder, pattern="*"):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(Path(folder).glob(pattern))}


def names_in(folder):
    """Returns the paths of all files and folders below a folder, relative to it."""
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*")}


def steps_in(run_dir):
    """Returns the records of metrics.jsonl in the order of the file."""
    return [json.loads(line) for line in (Path(run_dir) / "metrics.jsonl").read_text().splitlines()]


@dataclasses.dataclass
class Recorded:
    """A call that the shim has recorded. `index`: its position among the calls of all ranks."""
    index: int
    rank: int
    kind: str
    call: str
    n: int
    path: str
    errno: int
    data: bytes
    more: dict


def read_log(path):
    calls = []
    with open(path, "rb") as file:
        while line := file.readline():
            record = json.loads(line)
            data = file.read(record.pop("bytes"))
            known = {name: record.pop(name) for name in ("rank", "kind", "call", "n", "path", "errno")}
            calls.append(Recorded(index=len(calls), data=data, more=record, **known))
    return calls


def fresh(folder, template=None):
    """Removes `folder`, and copies `template` to it if given. Returns its path."""
    shutil.rmtree(folder, ignore_errors=True)
    if template:
        shutil.copytree(template, folder)
    return Path(folder)
