"""Tests tests/faults/fuzz/corpus.py: every fuzz target has inputs, and unpacked archives are packed to the same bytes."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FUZZ = Path(__file__).parents[1] / "faults" / "fuzz"
sys.dont_write_bytecode = True
sys.path.insert(0, str(FUZZ))
import corpus


class FuzzCorpus(unittest.TestCase):
    def unpacked(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        corpus.unpack(Path(folder.name, "corpus"))
        return Path(folder.name, "corpus")

    def test_every_target_has_inputs_and_the_reverse(self):
        targets = {path.stem for path in FUZZ.glob("*.cpp")} - {"replay_main", "support"}
        folder = self.unpacked()
        self.assertEqual(targets, {path.name for path in folder.iterdir()})
        for target in folder.iterdir():
            self.assertTrue(any(target.iterdir()), target.name)

    def test_no_seed_is_archived(self):
        for path in corpus.ARCHIVES.glob("*.zip"):
            self.assertFalse(corpus.archived(path).keys() & corpus.SEEDS[path.stem].keys(), path.name)

    def test_packing_restores_the_archives(self):
        folder = self.unpacked()
        committed = {path.name: path.read_bytes() for path in corpus.ARCHIVES.glob("*.zip")}
        with tempfile.TemporaryDirectory() as archives:
            self.addCleanup(setattr, corpus, "ARCHIVES", corpus.ARCHIVES)
            corpus.ARCHIVES = Path(archives)
            for target in folder.iterdir():
                corpus.pack(folder, target.name)
            self.assertEqual(committed, {path.name: path.read_bytes() for path in corpus.ARCHIVES.iterdir()})

    def test_unknown_words_are_refused(self):
        for words in [], ["pack", "folder"], ["unpack"]:
            done = subprocess.run([sys.executable, "-B", FUZZ / "corpus.py", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("corpus.py unpack FOLDER", done.stderr)


if __name__ == "__main__":
    unittest.main()
