#!/usr/bin/env python3
"""Tests scripts/quickstart.sh with a fake `lyceum`: order of phases, interruption, resuming, errors."""

import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Writes its arguments to calls.log. Training lasts until the file "finish" exists, whose content is the exit code. On USR1 it
# ends with 75, as the real program does after a checkpoint.
LYCEUM = """#!/bin/bash
(( ${OMPI_COMM_WORLD_RANK:-0} )) || echo "$*" >> calls.log
[[ $1 == train ]] || exit 0
stop=0; trap 'stop=1' USR1
touch "training.${OMPI_COMM_WORLD_RANK}"
until [[ -e finish ]]; do
  sleep 0.1
  if (( stop )); then touch "saved.${OMPI_COMM_WORLD_RANK}"; exit 75; fi
done
exit "$(cat finish)"
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name, "a tree")
        (self.root / "scripts").mkdir(parents=True)
        for name in ("quickstart.sh", "mpi-env.sh"):
            shutil.copy(REPOSITORY / "scripts" / name, self.root / "scripts" / name)
        self.executable("scripts/install-deps.sh", "#!/bin/bash\n")
        (self.root / "CMakeLists.txt").touch()
        self.executable("bin/cmake", "#!/bin/bash\n")
        self.executable("build/cpu/apps/lyceum", LYCEUM)
        self.environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}

    def executable(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def calls(self):
        log = self.root / "calls.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def run_through(self, *arguments):
        return subprocess.run([self.root / "scripts/quickstart.sh", *arguments], cwd="/usr", env=self.environment,
                              capture_output=True, text=True, timeout=60, check=False)

    def finish_with(self, code):
        (self.root / "finish").write_text(str(code), encoding="utf-8")

    def test_phases_in_order_and_done_ones_skipped(self):
        self.finish_with(0)
        first = self.run_through("include", "--", "--run.steps=7")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual([call.split()[0] for call in self.calls()], ["tokenize", "train", "routing", "generate"])
        self.assertIn("--input /usr/include ", self.calls()[0])  # relative to the folder in which it was started
        self.assertTrue(self.calls()[1].endswith("--run.steps=7"))
        headings = re.findall(r"^(\d)/6  ", first.stdout, flags=re.MULTILINE)
        self.assertEqual(headings, list("123456"))
        self.assertIn("Two commands to try next", first.stdout)

        again = self.run_through()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual([call.split()[0] for call in self.calls()[4:]], ["train", "routing", "generate"])

    def test_an_installed_one_works_where_it_is_called(self):
        share = self.root / "prefix/share/lyceum"
        share.mkdir(parents=True)
        for name in ("quickstart.sh", "mpi-env.sh"):
            shutil.copy(REPOSITORY / "scripts" / name, share / name)
        self.executable("prefix/bin/lyceum", LYCEUM)
        self.finish_with(0)
        done = subprocess.run([share / "quickstart.sh"], cwd=self.root, env=self.environment, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"--config {share}/configs/quickstart.ini", self.calls()[1])
        self.assertEqual(re.findall(r"^(\d)/6  ", done.stdout, flags=re.MULTILINE), list("3456"))

    def test_other_inputs_are_refused_until_fresh(self):
        self.finish_with(0)
        self.assertEqual(self.run_through().returncode, 0)
        other = self.run_through("/usr/share")
        self.assertEqual(other.returncode, 2)
        self.assertIn("--fresh", other.stderr)
        self.assertEqual(self.run_through("--fresh", "/usr/share").returncode, 0)
        self.assertIn("--input /usr/share ", self.calls()[-4])

    def test_absent_input(self):
        absent = self.run_through("no-such-folder")
        self.assertEqual((absent.returncode, self.calls()), (3, []))
        self.assertIn("no-such-folder", absent.stderr)

    def test_failed_training_ends_with_its_code(self):
        self.finish_with(4)
        failed = self.run_through()
        self.assertEqual(failed.returncode, 4)
        self.assertIn("4/6", failed.stderr)
        self.assertEqual([call.split()[0] for call in self.calls()], ["tokenize", "train"])

    def test_interrupt_saves_and_the_same_command_resumes(self):
        code, output = self.interrupt_training()
        self.assertEqual(code, 75, output)
        self.assertTrue((self.root / "saved.0").exists() and (self.root / "saved.1").exists(), output)
        self.assertIn("resumes from it", output)
        self.finish_with(0)
        resumed = self.run_through()
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual([call.split()[0] for call in self.calls()],
                         ["tokenize", "train", "train", "routing", "generate"])

    def interrupt_training(self):
        """Starts the script on a terminal, and types Ctrl-C when both ranks train. Returns the exit code and the output."""
        pid, terminal = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(self.root / "scripts/quickstart.sh", ["quickstart.sh"], self.environment)
        deadline = time.monotonic() + 60
        while not all((self.root / f"training.{rank}").exists() for rank in (0, 1)):
            self.assertLess(time.monotonic(), deadline, "training did not start")
            time.sleep(0.05)
        os.write(terminal, b"\x03")
        output = b""
        try:
            while chunk := os.read(terminal, 4096):
                output += chunk
        except OSError:  # how Linux reports that the other end is closed
            pass
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode(errors="replace")


if __name__ == "__main__":
    unittest.main()
