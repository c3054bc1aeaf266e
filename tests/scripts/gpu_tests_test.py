"""Tests scripts/gpu_tests.py with a fake test program whose tests pass, fail, crash and take too long."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/gpu_tests.py"

# As GoogleTest: lists its tests, or runs those of the filter in order. After Device.Breaks all tests of the process fail, as
# after an error of a GPU.
PROGRAM = """#!/usr/bin/env python3
import os, sys, time
TESTS = {"Sums": ["Add", "Skips", "Crashes", "Multiply"], "Cases/Device": ["Breaks/0  # GetParam() = 1", "Works/0", "IsWrong/0"],
         "Typed/0": ["Sleeps", "DISABLED_Never"], "Last": ["CrashesAtTheEnd"], "Many": [f"Case{i}" for i in range(30)]}
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
wanted = options["--gtest_filter"]
if "--gtest_list_tests" in sys.argv:
    for suite, tests in TESTS.items():
        if wanted in ("*", suite + ".*"):
            print(suite + (".  # TypeParam = float" if "/" in suite[-2:] else "."), *("  " + test for test in tests), sep="\\n")
    sys.exit()
if wanted == "-*":
    sys.exit(77 if "NO_DEVICE" in os.environ else 0)
broken = failed = False
with open("processes", "a") as file:
    file.write(wanted + "\\n")
for name in wanted.split(":"):
    print(f"[ RUN      ] {name}", flush=True)
    if name == "Sums.Crashes":
        os.abort()
    if name == "Typed/0.Sleeps":
        time.sleep(60)
    broken = broken or name == "Cases/Device.Breaks/0"
    bad = broken or "IsWrong" in name
    failed = failed or bad
    print("a value without a line end", end="")
    parameter = ", where GetParam() = 1" if bad and "Cases/" in name else ""
    print(f"[{'  FAILED  ' if bad else '  SKIPPED ' if 'Skips' in name else '       OK '}] {name}{parameter} (7 ms)")
if name.startswith("Last."):
    os.abort()
sys.exit(failed)
"""


class GpuTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = Path(folder.name, "fake_test")
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def run_tests(self, *arguments, **environment):
        command = [sys.executable, SCRIPT, "--workers", "2", *arguments]
        done = subprocess.run(command, cwd=self.program.parent, capture_output=True, text=True, env=environment or None)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def selected(self, suite):
        return f"{self.program}:{suite}.*"

    def test_processes_have_at_most_twelve_tests_of_a_suite(self):
        code, output = self.run_tests(self.selected("Many"))
        self.assertEqual(code, 0, output)
        self.assertIn("[  PASSED  ] 30 tests.\n", output)
        processes = (self.program.parent / "processes").read_text().splitlines()
        self.assertEqual(sorted(line.count(":") + 1 for line in processes), [6, 12, 12])

    def test_a_crash_ends_one_test(self):
        code, output = self.run_tests(self.selected("Sums"))
        self.assertEqual(code, 1)
        self.assertIn("[  PASSED  ] 2 tests.\n[  SKIPPED ] 1 tests.\n[  FAILED  ] fake_test:Sums.Crashes (exit code -6)\n", output)

    def test_a_crash_after_the_last_test_is_a_failure(self):
        code, output = self.run_tests(self.selected("Last"))
        self.assertEqual(code, 1)
        self.assertIn("[  FAILED  ] fake_test:Last.CrashesAtTheEnd (exit code -6)\n", output)

    def test_tests_after_a_failure_run_again(self):
        code, output = self.run_tests(self.selected("Cases/Device"))
        self.assertEqual(code, 1)
        summary = output[output.index("[==========]") :]
        self.assertIn("[  PASSED  ] 1 tests.\n", summary)
        self.assertNotIn("Works", summary)
        self.assertIn("[  FAILED  ] fake_test:Cases/Device.Breaks/0\n[  FAILED  ] fake_test:Cases/Device.IsWrong/0\n", summary)

    def test_the_time_limit(self):
        code, output = self.run_tests("--seconds", "3", self.selected("Typed/0"))
        self.assertEqual(code, 1)
        self.assertIn("[==========] 1 tests ran.", output)
        self.assertIn("[  FAILED  ] fake_test:Typed/0.Sleeps (time limit)\n", output)

    def test_several_programs_and_no_device(self):
        code, output = self.run_tests(self.selected("Many"), self.selected("Sums"))
        self.assertEqual(code, 1)
        self.assertIn("[==========] 34 tests ran.", output)
        code, output = self.run_tests(str(self.program), NO_DEVICE="1", PATH="/usr/bin:/bin")
        self.assertEqual((code, output), (77, f"{self.program}: no device\n"))
        self.assertEqual(self.run_tests(self.selected("NoSuchSuite"))[0], 1)


if __name__ == "__main__":
    unittest.main()
