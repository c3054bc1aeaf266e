"""Tests scripts/gpu_results.py: the table between the comments of a page, several files of results, and the file to commit."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts/gpu_results.py"
COMMITTED = sorted((REPOSITORY / "benchmarks/results").glob("*.json"))
PAGE = "before\n<!-- gpu results: written by scripts/gpu_results.py -->\nold\n<!-- end of gpu results -->\nafter\n"


def results(commit, *steps):
    return {"date": "2026-12-01T10:00:00+00:00", "commit": commit, "device": "A fake", "driver": "1.2", "steps": list(steps)}


def tests(passed, *failed):
    outcome = "FAILED: exit code 1" if failed else "ok"
    return {"part": 1, "name": "tests", "seconds": 9, "result": outcome, "tests": {"passed": passed, "skipped": 0, "failed": list(failed)}}


class GpuResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.page = self.folder / "page.md"
        self.page.write_text(PAGE)

    def write(self, *contents, options=()):
        """Runs the script with these results, and returns the new page."""
        files = [self.folder / f"{i}.json" for i in range(len(contents))]
        for file, content in zip(files, contents):
            file.write_text(json.dumps(content))
        done = subprocess.run([sys.executable, SCRIPT, *files, "--page", self.page, *options], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.page.read_text()

    def test_only_the_text_between_the_comments_changes(self):
        page = self.write(results("c1", tests(3)))
        self.assertTrue(page.startswith("before\n<!-- gpu results") and page.endswith("<!-- end of gpu results -->\nafter\n"), page)
        self.assertNotIn("old", page)
        self.assertIn("A fake, driver 1.2, 2026-12-01, commit `c1`.\n", page)
        self.assertIn("| `gpu_test`, `gpu_training_test` | 3 passed | `c1` |\n", page)
        self.assertEqual(self.write(results("c1", tests(3))), page)

    def test_files_are_merged(self):
        crashed = {"part": 1, "name": "tests-nccl", "seconds": 1, "result": "FAILED: exit code 139"}
        page = self.write(results("c1", tests(3, "A.B"), crashed), results("c2", tests(4)))
        self.assertIn("| 4 passed | `c2` |", page)
        self.assertNotIn("A.B", page)
        self.assertIn("| `nccl_carrier_test` | FAILED: exit code 139 | `c1` |", page)

    def test_files_to_commit_have_no_folders(self):
        step = {"part": 3, "name": "train-small", "seconds": 1, "result": "ok",
                "results": {"config": "/home/me/configs/a.ini --run.gemm_file=/tmp/x/gemm.json docs/b.md", "gemms": [1]}}
        saved = self.folder / "saved.json"
        self.write(results("c1", step), options=["--save", saved])
        content = json.loads(saved.read_text())
        self.assertEqual(content["steps"][0]["results"], {"config": "a.ini --run.gemm_file=gemm.json docs/b.md"})

    def test_committed_results(self):
        self.assertTrue(COMMITTED)
        for file in COMMITTED:
            page = self.write(json.loads(file.read_text()))
            for text in "| AdamW, the router's choices |", "| up forward |", "PyTorch 2", "`gpu_test`":
                self.assertIn(text, page, file)

    def test_a_page_without_comments(self):
        self.page.write_text("before\n")
        done = subprocess.run([sys.executable, SCRIPT, COMMITTED[0], "--page", self.page], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("page.md: has no comments <!-- gpu results", done.stderr)
        self.assertEqual(self.page.read_text(), "before\n")


if __name__ == "__main__":
    unittest.main()
