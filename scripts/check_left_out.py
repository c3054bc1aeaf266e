#!/usr/bin/env python3
"""Checks that no test of a run was left out, and prints the end of the output of failed tests.

    scripts/check_left_out.py REPORT TESTS [--no-gpu] [--no-avx512] [--cases FOLDER ...]

REPORT is the file of ctest --output-junit, TESTS the output of ctest --show-only=json-v1. Exit code 1 if a test was skipped,
is disabled or could not start, or if there is no test. With --no-gpu, for a machine without a GPU, tests with the label gpu
may report "no device"; their number is printed. All output is on standard error.
FOLDER contains the reports of GoogleTest programs, PROGRAM.ANYTHING.xml. A case that was skipped in one run, for example
because it needs two ranks, must have run in another run of its program. Exceptions are cases that report "no device" or
"no AVX-512", with --no-gpu or --no-avx512. The number of cases is printed.
"""
import argparse
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def labels(tests):
    found = {}
    for test in tests["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        found[test["name"]] = properties.get("LABELS", [])
    return found


def needs_device(case):
    """Returns True if the test reported that it could not run without a device."""
    skipped = case.find("skipped")
    asked = skipped is not None and skipped.get("message", "").startswith("SKIP_")
    return asked and "no device" in (case.findtext("system-out") or "")


def cases_of(report):
    """Yields (program, suite.case, True if it ran, the reason otherwise) for all cases in a report of GoogleTest."""
    program = report.name.removeprefix("sanitized.").split(".")[0]
    try:
        suites = xml.parse(report).getroot().findall("testsuite")
    except xml.ParseError as error:
        sys.exit(f"test.sh: {report}: not a report of GoogleTest: {error}")
    for suite in suites:
        for case in suite.findall("testcase"):
            reasons = " ".join(" ".join(s.get("message", "").split()) for s in case.findall("skipped"))
            yield program, f"{suite.get('name')}.{case.get('name')}", case.get("result") == "completed", reasons


def check_cases(folders, accepted):
    """Returns the number of executions, the number of cases that ran, and those that ran in no run of their program, with the
    reasons: (program, suite.case) -> reason. Cases whose reason contains a text of `accepted` are not among them, but counted
    on standard error."""
    runs, ran, left = 0, set(), {}
    for report in sorted(r for folder in folders for r in Path(folder).glob("*.xml")):
        for program, case, completed, why in cases_of(report):
            runs += completed
            if completed:
                ran.add((program, case))
            else:
                left[program, case] = why
    missing = {key: why for key, why in left.items() if key not in ran}
    for text in accepted:
        count = sum(text in why for why in missing.values())
        if count:
            print(f"test.sh: {count} case{'s' * (count > 1)} of GoogleTest programs did not run: {text}", file=sys.stderr)
        missing = {key: why for key, why in missing.items() if text not in why}
    return runs, len(ran), missing


def print_failures(cases):
    """Prints the last lines of the output of failed tests, so that they are at the end of a long log."""
    for case in cases:
        if case.get("status") == "fail":
            last = (case.findtext("system-out") or "").rstrip().splitlines()[-40:]
            print(f"test.sh: {case.get('name')} failed:", *last, sep="\n  ", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("report")
    parser.add_argument("tests")
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--no-avx512", action="store_true")
    parser.add_argument("--cases", nargs="+", default=[])
    options = parser.parse_args()
    cases = xml.parse(options.report).getroot().findall("testcase")
    print_failures(cases)
    with open(options.tests, encoding="utf-8") as file:
        label_of = labels(json.load(file))
    left_out = [c for c in cases if c.get("status") in ("disabled", "notrun") or c.find("skipped") is not None]
    waiting = [c for c in left_out
               if options.no_gpu and "gpu" in label_of.get(c.get("name"), []) and needs_device(c)]
    for case in left_out:
        if case not in waiting:
            print(f"test.sh: {case.get('name')} was skipped or is disabled", file=sys.stderr)
    if waiting:
        count = "1 test needs" if len(waiting) == 1 else f"{len(waiting)} tests need"
        print(f"test.sh: {count} a GPU, which this machine lacks, and did not run", file=sys.stderr)
    missing = {}
    if options.cases:
        accepted = ["no device"] * options.no_gpu + ["no AVX-512"] * options.no_avx512
        runs, different, missing = check_cases(options.cases, accepted)
        for (program, case), why in missing.items():
            print(f"test.sh: {case} of {program} ran nowhere: {why or 'it is disabled'}", file=sys.stderr)
        print(f"test.sh: {different} cases of GoogleTest programs ran, {runs} times in total", file=sys.stderr)
    return 1 if missing or len(left_out) > len(waiting) or len(cases) == len(waiting) else 0


if __name__ == "__main__":
    sys.exit(main())
