#!/usr/bin/env python3
"""Tests the batch scripts of scripts/slurm with a fake Slurm and a fake program: which folder and which arguments they find."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = ("train.sbatch", "train-srun.sbatch", "evaluate.sbatch", "routing.sbatch")

# A job as Slurm 22.05 prints it. Command is the path and the arguments, separated by blanks and not quoted.
JOB = """JobId=7 JobName={name}
   Priority=1 Nice=0 Account=(null) QOS=(null)
   JobState=RUNNING Reason=None Dependency=(null)
   Command={command}
   WorkDir=/somewhere
   Comment={comment}
   StdOut=/dev/null
"""


class Slurm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.home = self.root / "a tree" / "scripts" / "slurm"
        shutil.copytree(REPOSITORY / "scripts" / "slurm", self.home)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.program("scontrol", f'cat "{self.root}/job"')
        for name in ("mpirun", "srun", "lyceum"):
            self.program(name, f'printf "%s\\0" "$0" "$@" >>"{self.root}/{name}.calls"')
        (self.root / "config.ini").touch()

    def program(self, name, text):
        file = self.bin / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)

    def run_job(self, script, arguments, name="lyceum", comment="", original=None):
        """Runs a script as Slurm does: a copy under another name."""
        copy = self.root / "slurm_script"
        original = original or self.home / script
        shutil.copy(self.home / script, copy)
        (self.root / "job").write_text(
            JOB.format(name=name, command=" ".join([str(original), *arguments]), comment=comment))
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1",
                       "LYCEUM": str(self.bin / "lyceum")}
        with open(self.root / "log", "w+") as log:  # a pipe would stay open: the watcher of mpirun outlives the script by a second
            code = subprocess.run(["bash", str(copy), *arguments], cwd=self.root, env=environment, stdout=log, stderr=log,
                                  check=False, timeout=60).returncode
            log.seek(0)
            return code, log.read()

    def calls(self, name):
        return (self.root / f"{name}.calls").read_text().split("\0")

    def test_arguments_may_be_anything(self):
        odd = ["--run.dir=out/a.sbatch/x.sbatch", "two words", "it's", '"quoted"', "*", "$(false)", "a\nb", "", " ",
               "--data.train=/z/train.sbatch", "Command=/z/evil.sbatch", "tail "]
        for script in ("train.sbatch", "train-srun.sbatch"):
            with self.subTest(script=script):
                code, log = self.run_job(script, ["config.ini", *odd])
                self.assertEqual(code, 0, log)
                called = self.calls("srun" if "srun" in script else "mpirun")
                self.assertEqual(called[-len(odd) - 1:-1], odd)

    def test_every_script_finds_its_folder(self):
        (self.root / "step.sbatch").mkdir()
        for script in SCRIPTS:
            arguments = ["config.ini"] if script.startswith("train") else ["step.sbatch", "out.sbatch"]
            with self.subTest(script=script):
                code, log = self.run_job(script, arguments)
                self.assertEqual(code, 0, log)

    def test_without_arguments_the_folder_is_found_and_the_usage_told(self):
        for script in SCRIPTS:
            with self.subTest(script=script):
                code, log = self.run_job(script, [])
                self.assertEqual(code, 2)
                self.assertIn("no c", log)

    def test_a_renamed_script(self):
        original = self.home / "my own job"
        code, log = self.run_job("train.sbatch", ["config.ini"], original=original)
        self.assertEqual(code, 0, log)

    def test_a_folder_that_is_not_found_is_told(self):
        for script in SCRIPTS:
            with self.subTest(script=script):
                code, log = self.run_job(script, ["config.ini"], original=self.root / "copied" / script)
                self.assertEqual(code, 2)
                self.assertRegex(log, f"^lyceum job 7: no job.sh in '{self.root}/copied'")
                self.assertEqual(log.count("\n"), 1, log)

    def test_fields_are_those_of_the_job(self):
        self.run_job("train.sbatch", ["config.ini", "JobState=FAILED", "Comment=other"], comment="mine JobState=X")
        job = f'SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1; . "{self.home}/job.sh"; field JobState; field Comment'
        text = subprocess.run(["bash", "-c", job], env={"PATH": f"{self.bin}:/usr/bin:/bin",
                                                        "LYCEUM": str(self.bin / "lyceum")},
                              capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertEqual(text.splitlines(), ["RUNNING Reason=None Dependency=(null)", "mine JobState=X"])


if __name__ == "__main__":
    unittest.main()
