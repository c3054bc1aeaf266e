"""Tests scripts/test_targets.py: a filter finds the programs that contain matching cases, and no others."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/test_targets.py"
SOURCE = """
TEST(Shape, Text) {}
TEST_P(Meshes, Trains) {}
INSTANTIATE_TEST_SUITE_P(Small, Meshes, testing::Values(1, 2));
TYPED_TEST(Sums, Add) {}
"""


class TestTargets(unittest.TestCase):
    def targets(self, pattern):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "shape_test.cpp")
            source.write_text(SOURCE)
            programs = [{"target": "core_test", "entry": "core_test", "sources": [str(source)]},
                        {"target": "core_mpi_test", "entry": "core_mpi_test.ranks_2", "sources": [str(source)]},
                        {"target": "lyceum", "entry": "end_to_end.resume_test", "sources": []},
                        {"target": "lyceum", "entry": "slurm.crash_test", "sources": []}]
            Path(folder, "tests").mkdir()
            Path(folder, "tests/programs.json").write_text(json.dumps(programs))
            done = subprocess.run([sys.executable, SCRIPT, folder, pattern], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_cases(self):
        self.assertEqual(self.targets("core_test.Shape.Text"), ["core_test"])
        self.assertEqual(self.targets("ranks_2.Shape"), ["core_mpi_test"])
        self.assertEqual(self.targets("Shape.Text"), ["core_mpi_test", "core_test"])

    def test_parameters_and_types(self):
        self.assertEqual(self.targets("core_test.Small/Meshes.Trains/0$"), ["core_test"])
        self.assertEqual(self.targets("^core_test.Sums/0.Add$"), ["core_test"])

    def test_scripts(self):
        self.assertEqual(self.targets("resume"), ["lyceum"])
        self.assertEqual(self.targets("_test$"), ["lyceum"])

    def test_nothing_matches(self):
        self.assertEqual(self.targets("Nowhere"), [])

    def test_usage(self):
        self.assertEqual(subprocess.run([sys.executable, SCRIPT], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
