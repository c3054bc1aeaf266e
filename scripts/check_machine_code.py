#!/usr/bin/env python3
"""Reads the machine code that nvcc made for sm_90a, and reports problems that slow down kernels with tensor cores without
changing their results. A benchmark would show them, too, but needs a GPU.

  - A kernel spills: it keeps values in memory that do not fit into its registers.
  - Products of a warpgroup wait for each other: ptxas serialises a group if other code uses its registers.
  - The forward attention computes the next exponentials after the products, instead of at the same time.
  - A kernel in clusters waits at every stage until the whole GPU sees its writes, not only at the barriers of its cluster.
  - A warpgroup uses more registers than it requests (setmaxnreg), or all warpgroups request more than the block has; they
    would wait forever.

Usage: .venv/bin/python scripts/check_machine_code.py OBJECT... (*_tensor_core.cu.o of a build with CUDA). That Python has
NVIDIA's disassembler. --table prints one line per kernel.
"""
import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CONSUMERS, PRODUCERS, WARPGROUP = 2, 1, 128  # warpgroups per block of a kernel that calls setmaxnreg, and threads per warpgroup

# Accepted bytes of spills per thread, by kernel: values that are read once per step. Other kernels must not spill.
KNOWN_SPILLS = {"Dkv<DkvTiling<192, 8, 1, 1, 32, 128>": 16,
                "StickDq<DqTiling<128, 4, 2, 32, 128>": 64,
                "StickDkv<StickDkvTiling<DkvTiling<64, 4, 2, 1, 32, 64>": 24}


@dataclass
class Instruction:
    address: int
    predicate: str  # "" if it is always executed
    name: str
    operands: str


@dataclass
class Kernel:
    name: str
    code: list[Instruction] = field(default_factory=list)
    registers: int = 0
    stack: int = 0  # bytes per thread

    def all(self, name: str) -> list[Instruction]:
        return [line for line in self.code if line.name.startswith(name)]

    @cached_property
    def readable(self) -> str:
        text = subprocess.run(["c++filt", self.name], capture_output=True, text=True, check=True).stdout.strip()
        text = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::|lyceum::|cuda::|^void ", "", text)
        return re.sub(r"(?<=>)\([^)]*\)$", "", text)

    def uses_tensor_cores(self) -> bool:
        return bool(self.all("HGMMA") or self.all("HMMA"))

    def reachable(self, start: Instruction) -> list[Instruction]:
        """Returns the instructions that a thread may execute after `start`."""
        place = {line.address: i for i, line in enumerate(self.code)}
        found, waiting = set(), [place[start.address]]
        while waiting:
            i = waiting.pop()
            if i in found or i >= len(self.code):
                continue
            found.add(i)
            line = self.code[i]
            if re.match(r"BRA|BSSY|CALL|JMP|BRX", line.name):
                target = re.search(r"0x([0-9a-f]+)\s*$", line.operands)
                if not target:
                    raise ValueError(f"{self.readable}: {line.name} {line.operands} at {line.address:#x}: where to?")
                waiting.append(place[int(target[1], 16)])
            if line.predicate or line.name not in ("BRA", "EXIT"):
                waiting.append(i + 1)
        return [self.code[i] for i in sorted(found)]

    def events(self) -> str:
        """Returns the instructions of the tensor cores as letters: Arrive, Product, last product of a group (G), Wait,
        Exponential."""
        letters = []
        for line in self.code:
            if line.name.startswith("WARPGROUP.ARRIVE"):
                letters.append("A")
            elif line.name.startswith("HGMMA"):
                letters.append("G" if "gsb" in line.operands else "P")
            elif line.name.startswith("WARPGROUP.DEPBAR"):
                letters.append("W")
            elif line.name == "MUFU.EX2":
                letters.append("E")
        return "".join(letters)


def kernels_of(assembly: str, usage: str) -> list[Kernel]:
    """Returns the kernels in the output of cuobjdump -sass and cuobjdump -res-usage."""
    kernels: dict[str, Kernel] = {}
    current = None
    for line in assembly.splitlines():
        if match := re.match(r"\s*Function : (\S+)", line):
            current = kernels[match[1]] = Kernel(match[1])
        elif current and (match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?\w+)?\s*([A-Z][\w.]*)\s*([^;]*);", line)):
            current.code.append(Instruction(int(match[1], 16), match[2] or "", match[3], match[4].strip()))
    for name, registers, stack in re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage):
        if name in kernels:
            kernels[name].registers, kernels[name].stack = int(registers), int(stack)
    return list(kernels.values())


def highest_register(code: list[Instruction]) -> int:
    return max((int(number) for line in code for number in re.findall(r"\bR(\d+)\b", line.operands)), default=-1)


def moved_registers(kernel: Kernel) -> list[str]:
    moves = kernel.all("USETMAXREG")
    if not moves:
        return []
    of = lambda line: int(line.operands.split(",")[-1], 16)
    fewer = [line for line in moves if ".DEALLOC" in line.name]
    more = [line for line in moves if line not in fewer]
    if len(more) != 1 or len(fewer) != 1:
        return [f"{len(moves)} setmaxnreg, expected one for consumers and one for producers"]
    problems = []
    total = WARPGROUP * (CONSUMERS * of(more[0]) + PRODUCERS * of(fewer[0]))
    if total > (there := WARPGROUP * (CONSUMERS + PRODUCERS) * kernel.registers):
        problems.append(f"its warpgroups request {total} registers, but its block starts with {there}")
    for who, line in (("consumers", more[0]), ("producers", fewer[0])):
        if (highest := highest_register(kernel.reachable(line))) >= of(line):
            problems.append(f"{who} use R{highest}, but have {of(line)} registers")
    return problems


def problems_of(kernel: Kernel) -> list[str]:
    if not kernel.uses_tensor_cores():
        return []
    problems, events = [], kernel.events()
    if not kernel.registers:
        problems.append("cuobjdump -res-usage does not report its number of registers")
    if kernel.stack > next((known for name, known in KNOWN_SPILLS.items() if name in kernel.readable), 0):
        problems.append(f"{kernel.stack} bytes of a thread's values are in memory, not in registers")
    products = re.sub("[^APG]", "", events)
    if products and not re.fullmatch(r"(AP+G)+", products):
        problems.append("products of a warpgroup are serialised: they wait for each other one by one")
    if "HopperForward" in kernel.readable and not re.search(r"AP+GAP+GWE{66,}W", events):
        problems.append("exponentials of the next scores do not overlap the products of the previous probabilities")
    if (barriers := kernel.all("UCGABAR_ARV")) and len(kernel.all("MEMBAR.ALL.GPU")) > len(barriers):
        problems.append("waits until the whole GPU sees its writes, outside of the barriers of its cluster")
    return problems + moved_registers(kernel)


def disassembler() -> Path:
    for package in ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm"):
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            sys.exit(f"check_machine_code.py: this Python lacks {package}: run scripts/install-deps.sh, and use .venv/bin/python")
    found = [file for file in importlib.metadata.files("nvidia-cuda-cuobjdump") if file.name == "cuobjdump"]
    return Path(found[0].locate())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("objects", type=Path, nargs="+", metavar="OBJECT")
    parser.add_argument("--table", action="store_true", help="print one line per kernel")
    given = parser.parse_args()
    tool = disassembler()
    environment = os.environ | {"PATH": f"{tool.parent}:{os.environ['PATH']}"}  # cuobjdump runs nvdisasm from PATH

    def run(option, file):
        done = subprocess.run([tool, option, "-arch", "sm_90a", file], capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"check_machine_code.py: cuobjdump {option} {file} fails: {done.stderr.strip()}")
        return done.stdout

    kernels = [kernel for file in given.objects for kernel in kernels_of(run("-sass", file), run("-res-usage", file))
               if kernel.uses_tensor_cores()]
    if not kernels:
        sys.exit("check_machine_code.py: no kernel for the tensor cores of sm_90a in these files")
    bad = 0
    for what, there in (("HopperForward", any("HopperForward" in kernel.readable for kernel in kernels)),
                        ("a kernel in clusters", any(kernel.all("UCGABAR_ARV") for kernel in kernels)),
                        ("a kernel that calls setmaxnreg", any(kernel.all("USETMAXREG") for kernel in kernels)),
                        *((f"{name}, of KNOWN_SPILLS", any(name in kernel.readable for kernel in kernels)) for name in KNOWN_SPILLS)):
        if not there:
            bad += 1
            print(f"{what} is not in these files, so it was not checked", file=sys.stderr)
    for kernel in kernels:
        if given.table:
            print(f"{kernel.readable[:90]:<90} {kernel.registers:>4} registers {len(kernel.code):>6} instructions")
        for problem in problems_of(kernel):
            bad += 1
            print(f"{kernel.readable}: {problem}", file=sys.stderr)
    print(f"{len(kernels)} tensor-core kernels, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
