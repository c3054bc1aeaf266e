#!/usr/bin/env python3
"""Runs the tests of GoogleTest programs in many processes, several at a time, so that a crash does not end all of them:

    scripts/gpu_tests.py [--workers N] [--seconds N] PROGRAM[:FILTER] ...

A process has at most 12 tests of one suite. A test that crashes, or is interrupted by the time limit, counts as failed, and a
new process continues after it. Since an error of the device makes later tests of its process fail too, failed tests after the
first one run again in a new process. Prints the output of processes with failed tests, and a summary like GoogleTest's.

Exit codes: 0 all tests passed or were skipped, 1 a test failed or was not run, 77 a program finds no GPU.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

TESTS_PER_PROCESS = 12
SECONDS_PER_PROCESS = 150
STARTED = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|SKIPPED|FAILED) +\] ([^\s,]+).* \((\d+) ms\)$", re.MULTILINE)


def list_suites(program: str, selected: str) -> list[list[str]]:
    """Returns the names of the tests that match the filter, one list per suite."""
    command = [program, "--gtest_list_tests", f"--gtest_filter={selected}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    suites = []
    for line in shown.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suites.append([])
            suite = name
        elif name.startswith("  ") and "DISABLED_" not in suite + name:
            suites[-1].append(suite + name.strip())
    return suites


def run_process(program: str, tests: list[str], seconds: float) -> tuple[str, str]:
    """Returns the output of a process that runs these tests, and how it ended."""
    command = [program, "--gtest_color=no", "--gtest_filter=" + ":".join(tests)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        output, end = done.stdout, f"exit code {done.returncode}"
    except subprocess.TimeoutExpired as error:
        output, end = error.stdout or b"", "time limit"
    return output.decode(errors="replace"), end


def run_tests(program: str, tests: list[str], deadline: float) -> tuple[dict[str, tuple[str, int]], str]:
    """Returns for each test how it ended ("OK", "SKIPPED" or a reason of failure) and its milliseconds; and all output."""
    left, results, log = tests, {}, ""
    while left and (seconds := deadline - time.monotonic()) > 1:
        output, end = run_process(program, left, min(seconds, SECONDS_PER_PROCESS))
        log += output
        done = {name: (status, int(ms)) for status, name, ms in ENDED.findall(output)}
        failed = [name for name, (status, _) in done.items() if status == "FAILED"]
        last = (STARTED.findall(output) or left[:1])[-1]
        if last not in done or (end != "exit code 0" and not failed):
            done[last] = (end, 0)
        for name in failed[1:]:
            del done[name]
        results |= done
        left = [name for name in left if name not in done]
    return results | {name: ("not run", 0) for name in left}, log


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=min(12, len(os.sched_getaffinity(0))), help="processes at a time")
    parser.add_argument("--seconds", type=float, default=3600, help="tests that did not run by then fail")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM[:FILTER]")
    arguments = parser.parse_args()
    started = time.monotonic()
    jobs = []
    for argument in arguments.programs:
        program, _, selected = argument.partition(":")
        if subprocess.run([program, "--gtest_filter=-*"], capture_output=True).returncode == 77:
            print(f"{program}: no device")
            return 77
        for suite in list_suites(program, selected or "*"):
            jobs += [(program, suite[i : i + TESTS_PER_PROCESS]) for i in range(0, len(suite), TESTS_PER_PROCESS)]
    jobs.sort(key=lambda job: -len(job[1]))

    results = {}
    with ThreadPoolExecutor(arguments.workers) as pool:
        running = {pool.submit(run_tests, *job, started + arguments.seconds): job[0] for job in jobs}
        for future in as_completed(running):
            ended, log = future.result()
            if any(status not in ("OK", "SKIPPED") for status, _ in ended.values()):
                print(log, flush=True)
            results |= {f"{Path(running[future]).name}:{name}": result for name, result in ended.items()}

    slowest = sorted(results, key=lambda name: -results[name][1])[:5]
    print("slowest:", *(f"{name} {results[name][1]} ms" for name in slowest), sep="\n  ")
    statuses = [status for status, _ in results.values()]
    print(f"[==========] {len(results)} tests ran. ({time.monotonic() - started:.0f} s)")
    print(f"[  PASSED  ] {statuses.count('OK')} tests.")
    print(f"[  SKIPPED ] {statuses.count('SKIPPED')} tests.")
    failures = {name: status for name, (status, _) in sorted(results.items()) if status not in ("OK", "SKIPPED")}
    for name, status in failures.items():
        print(f"[  FAILED  ] {name}" + (f" ({status})" if status != "FAILED" else ""))
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main())
