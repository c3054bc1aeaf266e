#!/usr/bin/env python3
"""Tests scripts/analysis/expert_sweep.py with a fake `lyceum`: which variants it evaluates, that each is evaluated once, and
that it resumes where it was stopped."""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

REPOSITORY = Path(__file__).resolve().parents[2]
python = os.environ.get("LYCEUM_PYTHON", str(REPOSITORY / ".venv/bin/python"))
if importlib.util.find_spec("matplotlib") is None and python != sys.executable:
    os.execv(python, [python, *sys.argv])
sys.path.insert(0, str(REPOSITORY / "scripts/analysis"))
import expert_sweep  # noqa: E402

# A run's folder contains its configuration. An evaluation appends its arguments to calls.log; its loss is the number of
# evaluations so far. It fails if the file "full" exists.
LYCEUM = """#!/bin/bash
case $1 in
  checkpoint) printf 'checkpoint     %s\\nrun            uuid-%s\\nstep           %s\\n' "$3" "${3##*/}" "$(cat step)" ;;
  eval)
    if [[ $* == *--print-config* ]]; then sed 's/$/   # default/' "$3/config"; exit; fi
    if [[ -e warn ]]; then echo 'warning: the token files have changed' >&2; fi
    if [[ -e full ]]; then echo 'lyceum eval: no memory' >&2; exit 4; fi
    echo "${*:5}" >> calls.log
    echo "{\\"loss\\": $(wc -l < calls.log)}" ;;
esac
"""


class ExpertSweep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)
        (self.root / "valid.bin").write_bytes(b"tokens")
        (self.root / "step").write_text("100\n")
        program = self.root / "lyceum"
        program.write_text(LYCEUM)
        program.chmod(0o755)
        self.run_folder("moe")

    def run_folder(self, name, **changes):
        keys = {"data.valid": "valid", "data.train": "train", "moe.experts": 16, "moe.top_k": 3, "moe.shared_experts": 1,
                "moe.router": "softmax", "moe.even_routing": "false", "moe.group_limit": 0, "balance.device_groups": 1}
        keys.update({key.replace("__", "."): value for key, value in changes.items()})
        (self.root / name).mkdir()
        (self.root / name / "config").write_text("".join(f"{key}     = {value}\n" for key, value in keys.items()))

    def sweep(self, *arguments, expected=0):
        """Runs the script. Returns its standard error; standard output is in self.out."""
        said, self.out = io.StringIO(), io.StringIO()
        command = ["expert_sweep.py", *arguments, "--lyceum", "./lyceum", "--out", "sweep.png"]
        with mock.patch.object(sys, "argv", command), contextlib.redirect_stderr(said), \
                contextlib.redirect_stdout(self.out):
            try:
                code = expert_sweep.main()
            except SystemExit as usage:
                code = usage.code
        self.assertEqual(code, expected, said.getvalue())
        return said.getvalue()

    def calls(self):
        log = self.root / "calls.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.removeprefix("--batches=0").strip() for line in lines]

    def test_evaluates_every_variant_once(self):
        self.sweep("moe", "--ratios=0,1/8,1/4,7/8")  # 7/8 is omitted: 14 skipped and 3 chosen experts are more than 16
        self.assertEqual(self.calls(), ["", "--skip-top=2", "--skip-top=4", "--moe.top_k=1", "--moe.top_k=2",
                                        "--moe.shared_experts=0 --moe.top_k=4"])
        self.assertEqual((self.root / "sweep.png").read_bytes()[:4], b"\x89PNG")

    def test_groups_leave_fewer_experts(self):
        self.run_folder("grouped", moe__group_limit=2, balance__device_groups=8, moe__top_k=4)  # a token chooses from 4 experts
        self.sweep("grouped", "--ratios=0,1/16")
        self.assertEqual(self.calls(), ["", "--moe.top_k=1", "--moe.top_k=2", "--moe.top_k=3"])

    def test_the_layer_with_the_fewest_experts_decides(self):
        self.run_folder("pruned", moe__experts=9, moe__experts_of_layers="9,2", moe__copy_experts=1, moe__top_k=1)
        self.sweep("pruned", "--every-k")
        self.assertEqual(self.calls(), ["", "--moe.top_k=2", "--moe.top_k=3"])

    def test_runs_without_a_choice_are_evaluated_as_they_are(self):
        self.run_folder("dense", moe__experts=0)
        self.run_folder("hash", moe__router="hash", moe__top_k=1)
        self.sweep("a label=dense", "hash", "--ratios=0,1/16")
        self.assertEqual(self.calls(), ["", ""])

    def test_uniform_choices_have_no_best_experts_to_skip(self):
        self.run_folder("thor", moe__router="uniform", moe__experts=4, moe__top_k=2)
        self.sweep("thor", "--ratios=0,1/4,1/2")
        self.assertEqual(self.calls(), ["", "--moe.top_k=1", "--moe.shared_experts=0 --moe.top_k=3"])

    def test_every_number_of_experts(self):
        self.run_folder("slim", moe__experts=5, moe__top_k=3)
        self.run_folder("dense", moe__experts=0)
        self.sweep("slim", "dense", "--every-k")
        self.assertEqual(self.calls(), ["--moe.top_k=1", "--moe.top_k=2", "", "--moe.top_k=4", "--moe.top_k=5", ""])
        self.assertEqual(self.out.getvalue().splitlines()[-8:-1],
                         ["  k         slim         dense",
                          "  1       1.0000",
                          "  2       2.0000",
                          "  3       3.0000*",
                          "  4       4.0000",
                          "  5       5.0000",
                          "  -                     6.0000*"])
        self.assertEqual((self.root / "sweep.png").read_bytes()[:4], b"\x89PNG")

    def test_goes_on_where_it_was_stopped(self):
        self.sweep("moe", "--ratios=0,1/16")
        first = self.calls()
        self.sweep("moe", "--ratios=0,1/16")
        self.assertEqual(self.calls(), [])
        (self.root / "full").touch()
        self.assertIn("expert_sweep.py: lyceum eval: no memory", self.sweep("moe", "--ratios=0,1/8", expected=4))
        (self.root / "full").unlink()
        self.sweep("moe", "--ratios=0,1/8")
        self.assertEqual(self.calls(), ["--skip-top=2"])
        (self.root / "step").write_text("200\n")  # the same run with other weights
        self.sweep("moe", "--ratios=0,1/16")
        self.assertEqual(self.calls(), first)
        (self.root / "valid.bin").write_bytes(b"TOKENS")  # of the same size
        (self.root / "warn").touch()
        self.assertEqual(self.sweep("moe", "--ratios=0,1/16"), "warning: the token files have changed\n" * len(first))
        self.assertEqual(self.calls(), first)
        self.sweep("moe", "--ratios=0,1/16", "--moe.renormalize=true")
        self.assertEqual(self.calls(), [f"--moe.renormalize=true {change}".strip() for change in first])
        kept = json.loads((self.root / "sweep.json").read_text())["evaluations"]
        self.assertEqual(len(kept), 4 * len(first) + 1)
        for text in "a", "b", "b":
            (self.root / "keys.ini").write_text(text)
            self.sweep("moe", "--ratios=0", "--config=keys.ini")
        self.assertEqual(len(self.calls()), 2 * (len(first) - 1))

    def test_paths_with_blanks_and_several_prefixes(self):
        (self.root / "two.bin").touch()
        self.run_folder("a run", data__valid="valid two", moe__experts=0)
        self.run_folder("mixed", data__valid="", data__train="0.7 valid 0.3 two", moe__experts=0)
        self.sweep("a run", "mixed")
        self.assertEqual(len(self.calls()), 2)
        for entry in json.loads((self.root / "sweep.json").read_text())["evaluations"]:
            self.assertEqual([data["prefix"] for data in entry["of"]["data"]], [os.path.realpath("valid"), os.path.realpath("two")])
        (self.root / "two.bin").unlink()
        self.assertIn("two.bin: No such file", self.sweep("mixed", expected=3))

    def test_refuses_what_it_cannot_use(self):
        (self.root / "sweep.json").write_text('{"a": 1}')
        self.assertIn("sweep.json contains no evaluations", self.sweep("moe", expected=3))
        (self.root / "sweep.json").unlink()
        (self.root / "sweep.json").mkdir()
        self.assertIn("--out sweep.png: sweep.json is a folder", self.sweep("moe", expected=2))
        (self.root / "sweep.json").rmdir()
        self.sweep("moe", "--ratios=0,1", expected=2)
        self.assertIn("no such option: --bogus", self.sweep("moe", "--bogus", expected=2))
        (self.root / "valid.bin").unlink()
        self.assertIn("valid.bin: No such file", self.sweep("moe", expected=3))
        self.assertEqual(self.calls(), [])

    def test_a_python_without_matplotlib_is_told_where_to_get_it(self):
        for script in "expert_sweep", "expert_load", "routing":
            done = subprocess.run([sys.executable, "-I", "-S", REPOSITORY / f"scripts/analysis/{script}.py"], capture_output=True, text=True,
                                  check=False)
            self.assertRegex(done.stderr, rf"^{script}.py: this Python lacks \w+: run scripts/install-deps.sh, and use .venv/bin/python\n$")


if __name__ == "__main__":
    unittest.main()
