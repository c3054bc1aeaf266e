#!/usr/bin/env python3
"""Simulates a power failure after every file system call of training runs, and checks that a valid checkpoint remains.

    tests/faults/power_loss.py LYCEUM SHIM CHECKPOINT_STATES [--states N] [--starts N] [--seed S] [--keep FOLDER]

The file system calls of two runs with two ranks are recorded (tests/faults/shim.cpp). The first run saves three times and
keeps one checkpoint. The second one finds a damaged checkpoint, resumes from the one before it, and replaces it. After a
crash a disk holds all operations that were durable before, and any subset of the others. Bytes and size of a file are
durable after an fsync of the file, entries of a directory after an fsync of the directory, a rename after an fsync of both
directories [Pillai et al. 2014, ALICE]. For every prefix of the record, these states of the disk are built:

    lost      durable operations only
    applied   all operations
    metadata  all names and sizes, but zeros instead of bytes that were not durable
    one       all operations but one, for each one that was not durable
    random    a random half of the operations that were not durable, three times; of the last write only half the bytes

In each state, the program CHECKPOINT_STATES does what a start of a run does. It must choose a checkpoint whose files have
the bytes that were published under its name, and which is at least as new as the last one that LATEST was about to name.
It may find none only before the first was published. Nothing but checkpoints may remain in the folder. --starts N: in N
states, drawn by the seed, the whole run folder is built; there the real program trains to the end, and must have the
weights of the undisturbed run.

Without --states all states are tried. The exit code is 0 if all passed, or else 1.
"""
import argparse
import collections
import dataclasses
import hashlib
import itertools
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Lab, checkpoint_name, fresh, names_in, read_log
from sweep import RANKS, options, with_a_damaged_newest

ROOT = "checkpoints"
NAME = re.compile(r"step-\d{8}")


@dataclasses.dataclass(eq=False)
class Inode:
    number: int
    is_directory: bool
    entries: dict = dataclasses.field(default_factory=dict)  # of a directory, as processes see it: name -> Inode
    base: bytes = b""  # contents of a file before the record began


@dataclasses.dataclass(eq=False)
class Operation:
    """A change of the bytes or the size of one file, or of entries of directories."""
    inode: Inode | None = None
    offset: int = 0
    data: bytes | None = None
    size: int | None = None
    entries: list = dataclasses.field(default_factory=list)  # (directory, name, inode or None)
    number: int = 0
    synced: set = dataclasses.field(default_factory=set)  # those of inodes() that were synced afterwards
    durable: float = math.inf  # number of events after which it is durable

    def inodes(self):
        return {directory.number for directory, _, _ in self.entries} or {self.inode.number}

    def is_write(self):
        return self.data is not None


class Record:
    """The operations and syncs of a log, and the checkpoints that were published and promised at each time."""

    def __init__(self, calls, template, blobs):
        self.blobs = blobs  # folder with the contents of files in states, named by digest
        self.inodes = []
        self.root = self.make(True)
        self.operations = []  # (number of events before it, Operation)
        self.events = 0
        self.published = {}  # (name, digests of its files) -> number of events before
        self.promises = []  # (number of events before, step): LATEST is about to name this step
        self.digests = {}
        if template:
            self.adopt(self.root, template)
        self.initial = {inode.number: dict(inode.entries) for inode in self.inodes if inode.is_directory}
        for call in calls:
            if call.errno == 0:
                self.follow(call)

    def make(self, is_directory):
        self.inodes.append(Inode(len(self.inodes), is_directory))
        return self.inodes[-1]

    def adopt(self, directory, folder):
        for path in sorted(folder.iterdir()):
            inode = directory.entries[path.name] = self.make(path.is_dir())
            if path.is_dir():
                self.adopt(inode, path)
            else:
                inode.base = path.read_bytes()

    def find(self, path):
        """Returns the directory of a path, the last name in the path, and the inode with this name or None."""
        parts = path.split("/") if path else []
        directory, inode = None, self.root
        for name in parts:
            directory, inode = inode, inode.entries.get(name) if inode else None
        return directory, parts[-1] if parts else "", inode

    def change(self, operation):
        for directory, name, inode in operation.entries:
            if inode is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = inode
        operation.number = len(self.operations)
        self.operations.append((self.events, operation))
        self.events += 1

    def follow(self, call):
        directory, name, inode = self.find(call.path)
        if call.kind == "open":
            if call.more["made"]:
                self.change(Operation(entries=[(directory, name, self.make(False))]))
            elif call.more["emptied"]:
                self.change(Operation(inode=inode, size=0))
        elif call.kind in ("write", "copy"):
            self.change(Operation(inode=inode, offset=call.more["offset"], data=call.data))
        elif call.kind == "truncate":
            self.change(Operation(inode=inode, size=call.more["size"]))
        elif call.kind == "mkdir":
            if call.path:
                self.change(Operation(entries=[(directory, name, self.make(True))]))
        elif call.kind == "unlink":
            self.change(Operation(entries=[(directory, name, None)]))
        elif call.kind in ("rename", "link"):
            self.rename(call, directory, name, inode)
        elif call.kind == "fsync" and inode:
            for _, operation in self.operations:
                if operation.durable == math.inf and inode.number in operation.inodes():
                    operation.synced.add(inode.number)
                    if operation.synced == operation.inodes():
                        operation.durable = self.events + 1
            self.events += 1

    def rename(self, call, directory, name, inode):
        to_directory, to_name, there = self.find(call.more["to"])
        entries = [(to_directory, to_name, inode)]
        if call.kind == "rename":
            entries.append((directory, name, there if call.more["exchange"] else None))
        parts = call.more["to"].split("/")
        if call.path.endswith(".partial") and len(parts) == 2 and parts[0] == ROOT:
            if to_name == "LATEST":
                latest = self.content(inode, self.contents_at(self.events))
                self.promises.append((self.events, int(latest.decode().removeprefix("step-"))))
            else:
                self.publish(to_name, inode)
        self.change(Operation(entries=entries))

    def publish(self, name, directory):
        """Records that a directory gets the name of a checkpoint. From now on its files must keep their contents."""
        contents = self.contents_at(self.events)
        files = {file: digest_of(self.content(inode, contents)) for file, inode in directory.entries.items()}
        self.published[name, frozenset(files.items())] = self.events

    # --- states

    def contents_at(self, events, chosen=None):
        """Returns the operations on each file before an event, by inode: a list of (operation, fate). `chosen(operation)`
        returns the fate of an operation: "whole", "half", "zeros" or "lost"."""
        by_inode = collections.defaultdict(list)
        for event, operation in self.operations:
            if event >= events:
                break
            if not operation.entries:
                by_inode[operation.inode.number].append((operation, chosen(operation) if chosen else "whole"))
        return by_inode

    def content(self, inode, contents):
        data = bytearray(inode.base)
        for operation, how in contents[inode.number]:
            if how == "lost":
                continue
            if operation.size is not None:
                data[operation.size:] = bytes(max(0, operation.size - len(data)))
                continue
            written = operation.data[: len(operation.data) // 2] if how == "half" else operation.data
            if how == "zeros":
                data.extend(bytes(max(0, operation.offset + len(written) - len(data))))
                continue
            data.extend(bytes(max(0, operation.offset - len(data))))
            data[operation.offset:operation.offset + len(written)] = written
        return bytes(data)

    def tree(self, events, chosen):
        """Returns the paths of a state, each with the digest of the file, or None for a directory."""
        entries = {number: dict(names) for number, names in self.initial.items()}
        for event, operation in self.operations:
            if event >= events:
                break
            if operation.entries and chosen(operation) != "lost":
                for directory, name, inode in operation.entries:
                    names = entries.setdefault(directory.number, {})
                    names.pop(name, None)
                    if inode:
                        names[name] = inode
        contents = self.contents_at(events, chosen)
        paths = {}

        def walk(directory, prefix):
            for name, inode in entries.get(directory.number, {}).items():
                path = prefix + name
                paths[path] = None if inode.is_directory else self.cached(inode, contents)
                if inode.is_directory:
                    walk(inode, path + "/")
        walk(self.root, "")
        return paths

    def cached(self, inode, contents):
        """Returns the digest of a file in a state. Stores its bytes in self.blobs under the digest."""
        key = hash((inode.number, tuple((operation.number, how) for operation, how in contents[inode.number])))
        if key not in self.digests:
            data = self.content(inode, contents)
            self.digests[key] = digest_of(data)
            (self.blobs / self.digests[key]).write_bytes(data)
        return self.digests[key]

    def forget(self):
        """Removes the stored contents of files once there are many. They are stored since states share them."""
        if len(self.digests) > 3000:
            self.digests.clear()
            fresh(self.blobs).mkdir()


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def variants(record, seed):
    """Yields all states, as (number of events before the crash, kind of the state, its function `chosen`)."""
    for events in range(record.events + 1):
        done = [operation for event, operation in record.operations if event < events]
        open_ones = [operation for operation in done if operation.durable > events]
        volatile = {id(operation) for operation in open_ones}

        def all_lost(operation, volatile=volatile):
            return "lost" if id(operation) in volatile else "whole"

        def no_data(operation, volatile=volatile):
            return "zeros" if id(operation) in volatile and operation.is_write() else "whole"

        yield events, "lost", all_lost
        yield events, "applied", lambda operation: "whole"
        yield events, "metadata", no_data
        for lost in open_ones:
            yield events, "one", lambda operation, lost=lost: "lost" if operation is lost else "whole"
        for toss in range(3 if open_ones else 0):
            source = random.Random(f"{seed} {events} {toss}")
            fate = {id(operation): source.choice(["lost", "whole"]) for operation in open_ones}
            last = next((operation for operation in reversed(done) if operation.is_write()), None)
            if last and fate.get(id(last)) == "whole":
                fate[id(last)] = "half"
            yield events, "random", lambda operation, fate=fate: fate.get(id(operation), "whole")


class Checker:
    """The process of CHECKPOINT_STATES, which starts in one folder of checkpoints after another."""

    def __init__(self, program, lab, folder):
        self.process = subprocess.Popen([program], env=lab.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.folder, self.blobs = folder / "state", fresh(folder / "blobs")
        self.blobs.mkdir()

    def start_in(self, tree):
        """Builds a state and returns the answer of the program. Files are hard links, since it only moves and removes
        them."""
        fresh(self.folder).mkdir()
        for path, digest in tree.items():
            if digest is None:
                (self.folder / path).mkdir()
                continue
            os.link(self.blobs / digest, self.folder / path)
        self.process.stdin.write(f"{self.folder / ROOT}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("the program that checks states ended")
        return answer.strip()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def problem_of(record, events, tree, checker):
    """Returns what is wrong with a start in a state, or None."""
    answer = checker.start_in(tree)
    promised = max((step for event, step in record.promises if event <= events), default=None)
    left = {path.name for path in (checker.folder / ROOT).glob("*")}
    if answer == "none":
        return None if promised is None else f"no checkpoint is found, {checkpoint_name(promised)} was promised"
    if answer.startswith("error: "):
        return answer
    files = {path.split("/")[2]: digest for path, digest in tree.items() if path.startswith(f"{ROOT}/{answer}/")}
    if (answer, frozenset(files.items())) not in record.published:
        return f"{answer} is not what was published under that name"
    if promised is not None and int(answer.removeprefix("step-")) < promised:
        return f"goes back to {answer}, {checkpoint_name(promised)} was promised"
    if (checker.folder / ROOT / "LATEST").read_text() != f"{answer}\n":
        return "LATEST does not name what the run goes on from"
    behind = [name for name in left - {"LATEST"}
              if not NAME.fullmatch(name) or not (checker.folder / ROOT / name / "manifest.json").exists()]
    return f"left behind: {', '.join(sorted(behind))}" if behind else None


def write_tree(folder, tree, blobs):
    fresh(folder).mkdir(parents=True)
    for path, digest in tree.items():
        if digest is None:
            (folder / path).mkdir()
        else:
            shutil.copyfile(blobs / digest, folder / path)


def start_problem(lab, folder, tree, blobs, reference, more):
    """Returns what is wrong with a run of the real program from a state, or None."""
    # Without the lock: a lock with lost contents would be observed for 20 seconds, which tests of the lock cover.
    write_tree(folder, {path: digest for path, digest in tree.items() if path != "LOCK"}, blobs)
    outcome = lab.train(folder, RANKS, more)
    if outcome.code != 0:
        return f"the real run: {outcome.summary()}"
    last = Path(ROOT) / checkpoint_name(6)
    if not lab.same_weights(folder / last, reference / last):
        return "the real run ends with other weights"
    extra = names_in(folder) - names_in(reference)
    return f"the real run leaves {', '.join(sorted(extra))}" if extra else None


def in_turn(kinds, count, source):
    """Returns the indices of `count` elements of `kinds`, random ones of each kind by turns."""
    places = {kind: [place for place, other in enumerate(kinds) if other == kind] for kind in sorted(set(kinds))}
    for queue in places.values():
        source.shuffle(queue)
    order = itertools.chain.from_iterable(itertools.zip_longest(*places.values()))
    return set(list(filter(lambda place: place is not None, order))[:count])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lyceum", type=Path)
    parser.add_argument("shim", type=Path)
    parser.add_argument("checker", type=Path)
    parser.add_argument("--states", type=int, help="so many, drawn by the seed (default: all)")
    parser.add_argument("--starts", type=int, default=0, help="of them in which the real program trains")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where to leave the folders of states that failed")
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    tried, distinct, failures = collections.Counter(), 0, []
    with tempfile.TemporaryDirectory(prefix="lyceum-power-") as name:
        folder = Path(name)
        lab = Lab(arguments.lyceum, arguments.shim, folder)
        checker = Checker(arguments.checker, lab, folder)
        with_a_damaged_newest(lab, folder / "template")
        for scenario, template, routing in (("save", None, 0), ("replace", folder / "template", 1)):
            more = options("--checkpoint.every=2", "--checkpoint.keep=1", f"--routing.every={routing}")
            log, run_dir = folder / f"{scenario}.log", fresh(folder / scenario, template)
            lab.must_train(run_dir, RANKS, more, log=log)
            record = Record(read_log(log), template, checker.blobs)
            if template:
                record.promises.append((0, 2))
                whole = template / ROOT / checkpoint_name(2)
                record.published[whole.name, frozenset((p.name, digest_of(p.read_bytes())) for p in whole.iterdir())] = 0
            states = list(variants(record, arguments.seed))
            every = len(states)
            if arguments.states:
                states = source.sample(states, min(every, arguments.states // 2))
            to_start = in_turn([kind for _, kind, _ in states], arguments.starts // 2, source)
            print(f"{scenario}: {record.events} events, {len(states)} of {every} states", flush=True)
            seen = {}
            for number, (events, kind, chosen) in enumerate(states):
                record.forget()
                tree = record.tree(events, chosen)
                key = frozenset((path, digest) for path, digest in tree.items() if path.split("/")[0] == ROOT)
                promised = sum(event <= events for event, _ in record.promises)
                if (key, promised) not in seen:
                    seen[key, promised] = problem_of(record, events, dict(sorted(
                        (path, digest) for path, digest in tree.items() if path.split("/")[0] == ROOT)), checker)
                problem = seen[key, promised]
                if not problem and number in to_start:
                    problem = start_problem(lab, folder / "start", dict(sorted(tree.items())), checker.blobs, run_dir,
                                            more)
                    tried[scenario, "started"] += 1
                tried[scenario, kind] += 1
                if problem:
                    failures.append(problem)
                    print(f"FAILED {scenario}, after event {events}, {kind}: {problem}", flush=True)
                    if arguments.keep and len(failures) <= 20:
                        write_tree(arguments.keep / f"{scenario}-{events}-{kind}-{number}", dict(sorted(tree.items())),
                                   checker.blobs)
            distinct += len(seen)
        checker.close()
    for (scenario, kind), count in sorted(tried.items()):
        print(f"{scenario:<10}{kind:<10}{count:>8}")
    print(f"{distinct} different folders of checkpoints, {len(failures)} failures, seed {arguments.seed}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
