#!/usr/bin/env python3
"""Checks that every test of a run really ran.

    scripts/check_left_out.py REPORT TESTS [--no-gpu]

REPORT is what ctest --output-junit wrote, TESTS what ctest --show-only=json-v1 prints. Ends with 1 when a test was skipped,
is disabled or could not start, or when there is none. With --no-gpu, for a machine without one, tests of label gpu may
say "no device": they are counted, on the error output like everything else here.
"""
import json
import sys
import xml.etree.ElementTree as xml


def labels(tests):
    found = {}
    for test in tests["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        found[test["name"]] = properties.get("LABELS", [])
    return found


def needs_device(case):
    """The test itself asked to be counted as not run, for want of a device."""
    skipped = case.find("skipped")
    asked = skipped is not None and skipped.get("message", "").startswith("SKIP_")
    return asked and "no device" in (case.findtext("system-out") or "")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--no-gpu"]
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    cases = xml.parse(arguments[0]).getroot().findall("testcase")
    with open(arguments[1]) as file:
        label_of = labels(json.load(file))
    left_out = [c for c in cases if c.get("status") in ("disabled", "notrun") or c.find("skipped") is not None]
    no_gpu = "--no-gpu" in sys.argv
    waiting = [c for c in left_out if no_gpu and "gpu" in label_of.get(c.get("name"), []) and needs_device(c)]
    for case in left_out:
        if case not in waiting:
            print(f"test.sh: {case.get('name')} was skipped or is disabled", file=sys.stderr)
    if waiting:
        count = "1 test needs" if len(waiting) == 1 else f"{len(waiting)} tests need"
        print(f"test.sh: {count} a GPU, which is not here, and did not run", file=sys.stderr)
    return 1 if len(left_out) > len(waiting) or len(cases) == len(waiting) else 0


if __name__ == "__main__":
    sys.exit(main())
