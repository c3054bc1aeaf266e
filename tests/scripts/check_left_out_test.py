"""Tests scripts/check_left_out.py: with tests that ran, that were left out, and that may be left out without a GPU or AVX-512."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/check_left_out.py"
RAN = '<testcase name="{}" status="run"><system-out>ok</system-out></testcase>'
SKIPPED = '<testcase name="{}" status="notrun"><skipped message="{}"/><system-out>{}</system-out></testcase>'
FAILED = '<testcase name="{}" status="fail"><failure message=""/><system-out>{}</system-out></testcase>'
DISABLED = '<testcase name="{}" status="disabled"><system-out>Disabled</system-out></testcase>'


class CheckLeftOut(unittest.TestCase):
    def check(self, cases, *options, gpu=("kernel",)):
        """Returns exit code and error output. The tests in `gpu` have the label gpu, and another one."""
        with tempfile.TemporaryDirectory() as folder:
            report, tests = Path(folder, "report.xml"), Path(folder, "tests.json")
            report.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            listed = [{"name": name, "properties": [{"name": "LABELS", "value": ["mpi", "gpu"]}]} for name in gpu]
            listed += [{"name": "other", "properties": [{"name": "LABELS", "value": ["unit"]}]}, {"name": "bare"}]
            tests.write_text(json.dumps({"tests": listed}))
            done = subprocess.run([sys.executable, SCRIPT, report, tests, *options], capture_output=True, text=True)
            self.assertEqual(done.stdout, "")
            return done.returncode, done.stderr

    def test_all_ran(self):
        self.assertEqual(self.check([RAN.format("other"), RAN.format("kernel")]), (0, ""))

    def test_the_end_of_what_failed(self):
        code, said = self.check([RAN.format("other"), FAILED.format("kernel", "".join(f"line {i}\n" for i in range(50)))])
        self.assertEqual(code, 0)  # the exit code of ctest reports failures
        lines = said.splitlines()
        self.assertEqual(lines[:2] + lines[-1:], ["test.sh: kernel failed:", "  line 10", "  line 49"])

    def check_reports(self, *options, **reports):
        """Returns the result of check() with GoogleTest reports: PROGRAM_ENTRY={case: its result, or why it was skipped}."""
        with tempfile.TemporaryDirectory() as folder:
            for name, cases in reports.items():
                listed = [f'<testcase name="{case}" status="run" result="{said}"/>' if said in ("completed", "suppressed") else
                          f'<testcase name="{case}" status="run" result="skipped"><skipped message="a.cpp:1&#x0A;{said}"/></testcase>'
                          for case, said in cases.items()]
                Path(folder, name.replace("_at_", ".ranks_") + ".xml").write_text(
                    f'<testsuites><testsuite name="Suite">{"".join(listed)}</testsuite></testsuites>')
            return self.check([RAN.format("other")], *options, "--cases", folder)

    def test_cases_that_skip_themselves(self):
        alone, together = {"A": "completed", "B": "needs two ranks"}, {"A": "completed", "B": "completed"}
        self.assertEqual(self.check_reports(mpi_at_1=alone, mpi_at_2=together),
                         (0, "test.sh: 2 cases of GoogleTest programs ran, 3 times in total\n"))
        code, said = self.check_reports(mpi_at_1=alone)
        self.assertEqual(code, 1)
        self.assertIn("test.sh: Suite.B of mpi ran nowhere: a.cpp:1 needs two ranks\n", said)
        self.assertEqual(self.check_reports(mpi_at_1=alone, other_at_2=together)[0], 1)  # the case ran in another program
        self.assertEqual(self.check_reports(unit={"A": "suppressed"})[0], 1)  # disabled

    def test_cases_that_need_a_gpu(self):
        reports = {"unit": {"A": "completed", "B": "no device here"}}
        self.assertEqual(self.check_reports(**reports)[0], 1)
        self.assertEqual(self.check_reports("--no-avx512", **reports)[0], 1)
        self.assertEqual(self.check_reports("--no-gpu", **reports),
                         (0, "test.sh: 1 case of GoogleTest programs did not run: no device\n"
                             "test.sh: 1 cases of GoogleTest programs ran, 1 times in total\n"))

    def test_cases_that_need_avx512(self):
        reports = {"unit": {"A": "completed", "B": "no AVX-512 here", "C": "no AVX-512 here", "D": "suppressed"}}
        self.assertEqual(self.check_reports("--no-gpu", **reports)[0], 1)
        code, said = self.check_reports("--no-avx512", **reports)
        self.assertEqual(code, 1)  # the disabled one
        self.assertIn("test.sh: 2 cases of GoogleTest programs did not run: no AVX-512\n", said)
        self.assertIn("test.sh: Suite.D of unit ran nowhere: it is disabled\n", said)

    def test_a_report_that_is_no_xml(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "unit.xml").write_text("<a/><b/>")
            code, said = self.check([RAN.format("other")], "--cases", folder)
        self.assertEqual(code, 1)
        self.assertIn("unit.xml: not a report of GoogleTest", said)

    def test_nothing_ran(self):
        self.assertEqual(self.check([])[0], 1)

    def test_left_out(self):
        for case in (SKIPPED.format("other", "SKIP_RETURN_CODE=77", "no device"), DISABLED.format("other"),
                     SKIPPED.format("bare", "Unable to find executable", "")):
            for options in ((), ("--no-gpu",)):
                code, said = self.check([RAN.format("kernel"), case], *options)
                self.assertEqual(code, 1)
                self.assertIn("was skipped or is disabled", said)

    def test_needs_a_gpu(self):
        kernel = SKIPPED.format("kernel", "SKIP_RETURN_CODE=77", "no device: needs a GPU")
        self.assertEqual(self.check([RAN.format("other"), kernel])[0], 1)
        code, said = self.check([RAN.format("other"), kernel], "--no-gpu")
        self.assertEqual((code, said), (0, "test.sh: 1 test needs a GPU, which this machine lacks, and did not run\n"))
        self.assertEqual(self.check([kernel], "--no-gpu")[0], 1)  # nothing ran

    def test_gpu_label_is_no_excuse(self):
        for case in (SKIPPED.format("kernel", "SKIP_RETURN_CODE=77", "no licence"), DISABLED.format("kernel"),
                     SKIPPED.format("kernel", "Unable to find executable", "no device")):
            self.assertEqual(self.check([RAN.format("other"), case], "--no-gpu")[0], 1)


if __name__ == "__main__":
    unittest.main()
