#!/usr/bin/env python3
"""Prints the build targets that contain tests whose names match.

    scripts/test_targets.py BUILD REGEX

BUILD is a configured build folder, REGEX as for ctest -R. Prints one target per line; none if nothing matches.
A case is named PROGRAM[.ranks_N].SUITE.CASE, a script FOLDER.NAME; see tests/CMakeLists.txt. Case names are read from the
sources, so that tests that are not built yet are found too.
"""
import json
import re
import sys
from pathlib import Path

CASE = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
INSTANCE = re.compile(r"^\s*INSTANTIATE_(?:TYPED_)?TEST_SUITE_P\(\s*(\w+)\s*,\s*(\w+)", re.MULTILINE)


def names_in(source):
    """Yields GoogleTest's names of the cases in a source; of parameterised cases only those with parameter 0."""
    text = source.read_text(encoding="utf-8")
    prefixes = {}
    for prefix, suite in INSTANCE.findall(text):
        prefixes.setdefault(suite, []).append(prefix + "/")
    for suite, case in CASE.findall(text):
        for prefix in prefixes.get(suite, [""]):
            yield f"{prefix}{suite}.{case}"
            yield f"{prefix}{suite}/0.{case}"
            yield f"{prefix}{suite}.{case}/0"


def matching(programs, pattern):
    for program in programs:
        entry = program["entry"]
        cases = [f"{entry}.{case}" for source in program["sources"] for case in names_in(Path(source))]
        if any(pattern.search(name) for name in cases or [entry]):  # a script has none
            yield program["target"]


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    programs = json.loads(Path(sys.argv[1], "tests/programs.json").read_text())
    for target in sorted(set(matching(programs, re.compile(sys.argv[2])))):
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
