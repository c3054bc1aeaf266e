#!/usr/bin/env python3
"""Tests scripts/tasks: items of benchmarks in the field names of their files, and cloze items of a text."""

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TASKS = Path(__file__).resolve().parents[2] / "scripts/tasks"
sys.path.insert(0, str(TASKS))
import cloze  # noqa: E402
import convert  # noqa: E402

HELLASWAG = {
    "ind": 24, "activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.", "ctx_b": "he",
    "ctx": "A man is sitting on a roof. he", "split": "val", "split_type": "indomain", "source_id": "activitynet~v_x",
    "endings": ["is using wrap [substeps] to wrap a pair of skis.", "is ripping level tiles off.", "is holding a cube.",
                "starts  pulling up roofing on a roof."], "label": 3}
WIKIHOW = HELLASWAG | {"activity_label": "Health", "ctx_a": "How to cope [title] Be calm. [step] Sit.", "ctx_b": "",
                       "label": "0"}
PIQA = {"goal": "How do I ready a guinea pig cage?", "sol1": "Provide bedding.", "sol2": "Provide jeans."}
ARC = {"id": "Mercury_7175875", "question": {"stem": "What is a planet?", "choices": [
    {"text": "a rock", "label": "A"}, {"text": "a world", "label": "B"}]}, "answerKey": "B"}
ARC_HUB = {"id": "Mercury_7175875", "question": "What is a planet?",
           "choices": {"text": ["a rock", "a world", "air"], "label": ["1", "2", "3"]}, "answerKey": "3"}


class Tasks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, records: list[dict], name: str = "in.jsonl") -> str:
        (self.folder / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return str(self.folder / name)

    def items(self, name: str, records: list[dict], **options) -> list[dict]:
        given = {"labels": None, "distractors": 2, "seed": 1} | options
        return convert.converted(name, self.write(records), **given)

    def test_hellaswag(self):
        first, second = self.items("hellaswag", [HELLASWAG, WIKIHOW])
        self.assertEqual(first["context"], "Roof shingle removal: A man is sitting on a roof. He ")
        self.assertEqual(first["choices"][0], "is using wrap to wrap a pair of skis.")
        self.assertEqual(first["choices"][3], "starts pulling up roofing on a roof.")
        self.assertEqual(first["answer"], 3)
        self.assertEqual(second["context"], "Health: How to cope. Be calm. Sit. ")
        self.assertEqual(second["answer"], 0)

    def test_piqa(self):
        labels = self.folder / "labels.lst"
        labels.write_text("1\n")
        for made in self.items("piqa", [PIQA], labels=str(labels)), self.items("piqa", [PIQA | {"label": 1}]):
            self.assertEqual(made, [{"context": "Question: How do I ready a guinea pig cage?\nAnswer: ",
                                     "choices": ["Provide bedding.", "Provide jeans."], "answer": 1}])
        labels.write_text("1\n0\n")
        with self.assertRaisesRegex(ValueError, "2 labels for 1 records"):
            self.items("piqa", [PIQA], labels=str(labels))

    def test_only_newlines_separate_records(self):
        goal = "one\u2028two\x85three\x0bfour\rfive"
        path = self.folder / "lines.jsonl"
        record = json.dumps(PIQA | {"goal": goal, "label": 1}, ensure_ascii=False)
        path.write_bytes(f"{record}\r\n{record}\n\n".encode())
        made = convert.converted("piqa", str(path), labels=None, distractors=2, seed=1)
        self.assertEqual([item["context"] for item in made], [f"Question: {goal}\nAnswer: "] * 2)

    def test_arc(self):
        own, hub = self.items("arc", [ARC, ARC_HUB])
        self.assertEqual(own, {"context": "Question: What is a planet?\nAnswer: ", "choices": ["a rock", "a world"], "answer": 1})
        self.assertEqual((hub["choices"], hub["answer"]), (["a rock", "a world", "air"], 2))

    def test_lambada(self):
        texts = ["he went to the market", "she saw a large cat", "they lived in a house", "it was a black cat"]
        made = self.items("lambada", [{"text": text + " \n"} for text in texts])
        for item, text in zip(made, texts):
            self.assertEqual(item["context"] + item["choices"][item["answer"]], text)
            self.assertEqual(len(set(item["choices"])), 3)
            self.assertLessEqual(set(item["choices"]), {"market", "cat", "house"})
        self.assertEqual(made, self.items("lambada", [{"text": text} for text in texts]))
        with self.assertRaisesRegex(ValueError, "3 different last words are too few"):
            self.items("lambada", [{"text": text} for text in texts], distractors=3)

    def test_bad_records_name_their_place(self):
        good = PIQA | {"label": 0}
        for name, record, problem in (
                ("piqa", {"goal": "x", "sol1": "y"}, "the record has no 'sol2'"), ("piqa", PIQA | {"label": 2}, "the answer 2 is not"),
                ("piqa", PIQA | {"label": "?"}, 'the label "\\?" is not a number'), ("piqa", good | {"sol2": None}, "sol2 is null, not a text"),
                ("piqa", good | {"goal": 1}, "goal is 1, not"), ("hellaswag", HELLASWAG | {"label": True}, "the label true is not"),
                ("hellaswag", HELLASWAG | {"endings": None}, "NoneType"), ("lambada", {"text": 5}, "text is 5, not a text"),
                ("arc", ARC_HUB | {"choices": {"text": ["a", None], "label": ["1", "3"]}}, "choices .* are not a list of texts"),
                ("lambada", {"text": "word \n"}, "the text is a single word")):
            first = {"piqa": good, "hellaswag": HELLASWAG, "arc": ARC, "lambada": {"text": "two words"}}[name]
            with self.subTest(problem=problem), self.assertRaisesRegex(ValueError, f"in.jsonl:2: .*{problem}"):
                self.items(name, [first, record])

    def command(self, *arguments, script="convert.py", code=3) -> str:
        """Runs a script, with an expected exit code and one line of errors, which is returned."""
        done = subprocess.run([sys.executable, TASKS / script, *arguments], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (code, 1), done.stderr)
        return done.stderr

    def test_bad_files_are_named(self):
        for content, problem in ((b"\n{\n", ":2: not JSON"), (b"\n", ": no records"), (b'{}\n\n{"text": "\xe9"}', ":3: not UTF-8"),
                                 (gzip.compress(b"{}"), ": compressed by gzip")):
            (self.folder / "bad.jsonl").write_bytes(content)
            self.assertIn(f"convert.py: bad.jsonl{problem}", self.command("arc", "bad.jsonl", "--out", "o"))
            (self.folder / "bad.txt").write_bytes(content + b"\xff")
            self.assertIn("cloze.py: bad.txt:", self.command("bad.txt", "--out", "o", script="cloze.py"))
        self.assertFalse((self.folder / "o").exists())

    def test_an_output_replaces_only_files_that_are_not_read(self):
        self.write([PIQA])
        (self.folder / "labels").write_text("1\n")
        (self.folder / "link").symlink_to("in.jsonl")
        (self.folder / "hard").hardlink_to(self.folder / "labels")
        (self.folder / "o.partial").hardlink_to(self.folder / "in.jsonl")
        os.mkfifo(self.folder / "pipe")
        for out, problem in (("in.jsonl", "would replace in.jsonl, which is read"), ("hard", "would replace labels"), ("link", "is a link"),
                             ("o", "would replace in.jsonl"), ("pipe", "is not a file"), (".", "is not a file")):
            with self.subTest(out=out):
                self.assertIn(f"--out {out} {problem}", self.command("piqa", "in.jsonl", "--labels", "labels", "--out", out, code=2))
        (self.folder / "text.md").write_text("text")
        self.assertIn("would replace text.md", self.command(".", "--out", "./text.md", script="cloze.py", code=2))
        self.assertEqual((self.folder / "labels").read_text() + (self.folder / "text.md").read_text(), "1\ntext")

    def test_cloze(self):
        words = [f"{a}{b}o" for a in "bdgklmnprt" for b in "aeiou"]
        text = " ".join(words[(7 * i * i + i) % 50] for i in range(3000))
        made = cloze.cloze([text], items=200, words=30, distractors=3, seed=1)
        self.assertEqual(len(made), 200)
        for item in made:
            right = item["choices"][item["answer"]]
            self.assertEqual((len(item["choices"]), len(set(item["choices"]))), (4, 4))
            self.assertIn(item["context"] + right, text)
            self.assertEqual(len(item["context"].split()), 30)
            self.assertNotIn(right, item["context"].split()[-20:])
        self.assertEqual(made, cloze.cloze([text], 200, 30, 3, 1))
        self.assertNotEqual(made, cloze.cloze([text], 200, 30, 3, 2))
        self.assertGreater(len({item["answer"] for item in made}), 3)  # the right choice is anywhere
        with self.assertRaisesRegex(ValueError, "room for"):
            cloze.cloze([text], 10000, 30, 3, 1)
        room = len(cloze.cloze([text], 10000, 30, 3, 1, least=10))
        self.assertTrue(10 <= room < 10000)
        with self.assertRaisesRegex(ValueError, f"room for {room} items"):
            cloze.cloze([text], 10000, 30, 3, 1, least=room + 1)
        self.assertEqual(cloze.cloze([text], 200, 30, 3, 1, least=10), made)

    def test_cloze_writes_a_file(self):
        (self.folder / "text.txt").write_text(" ".join(f"word{chr(97 + i * i % 26)}" for i in range(500)))
        with contextlib.redirect_stdout(io.StringIO()):
            sys.argv = ["cloze.py", str(self.folder), "--out", str(self.folder / "c.jsonl"), "--items", "5"]
            cloze.main()
        self.assertEqual(len((self.folder / "c.jsonl").read_text().splitlines()), 5)


if __name__ == "__main__":
    unittest.main()
