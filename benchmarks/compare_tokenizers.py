#!/usr/bin/env python3
"""Compares the speed of `lyceum tokenize` with a tokenizer.json to that of the package `tokenizers` on the same text.

    .venv/bin/python benchmarks/compare_tokenizers.py LYCEUM [--input FILE …] [--megabytes 20] [--vocab 32000] [--rounds 3]

Both encode the same documents on one thread, in turns; the best of the rounds counts. The time of `lyceum` includes reading
and writing files, while `tokenizers` has the texts in memory. Both must produce the same tokens. Without --input the text is
the documentation of Python and of this machine.
"""
import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
SPLITS = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": lambda: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}


def english():
    """Yields English prose: documentation strings of Python's library, and texts of installed packages."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        for text in re.findall(r'"""(.{200,}?)"""', path.read_text(encoding="utf-8", errors="ignore"), re.DOTALL):
            yield text
    for folder in ["/usr/share/common-licenses", "/usr/share/doc", "/usr/share/perl"]:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and path.suffix in {"", ".txt", ".md", ".pod", ".rst"}:
                try:
                    yield path.read_text(encoding="utf-8")
                except (UnicodeDecodeError, OSError):
                    pass


def documents(inputs, most):
    """Returns texts of about `most` bytes in total. Repeats the given texts, with their lines in reverse order, if they are
    too short."""
    texts = [Path(path).read_text(encoding="utf-8") for path in inputs] or list(english())
    chosen, size = [], 0
    while size < most:
        before = size
        for text in texts:
            chosen.append(text)
            size += len(text.encode())
            if size >= most:
                break
        texts = ["\n".join(text.split("\n")[::-1]) for text in texts]
        if size == before:
            sys.exit("no text")
    return chosen


def trained(split, vocab, texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def ours(lyceum, file, folder):
    out = subprocess.run([lyceum, "tokenize", "--input", folder / "text", "--tokenizer", file, "--output", folder / "out",
                          "--threads", "1"], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"encoded .* in ([0-9.]+) s", out)[1])


def theirs(tokenizer, texts):
    begin = time.perf_counter()
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return time.perf_counter() - begin, ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lyceum")
    parser.add_argument("--input", nargs="*", default=[])
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts = documents(options.input, options.megabytes * 1e6)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{megabytes:.1f} MB in {len(texts)} documents, one thread")
    print("split     vocab   lyceum MB/s   tokenizers MB/s   ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").mkdir()
        for i, text in enumerate(texts):
            (folder / "text" / f"{i:06}").write_bytes(text.encode())
        for split, make in SPLITS.items():
            tokenizer = trained(make(), options.vocab, texts)
            file = folder / "tokenizer.json"
            tokenizer.save(str(file))
            seconds, other_seconds = [], []
            for _ in range(options.rounds):
                seconds.append(ours(options.lyceum, file, folder))
                used, ids = theirs(tokenizer, texts)
                other_seconds.append(used)
            end = tokenizer.token_to_id("<|endoftext|>")
            expected = numpy.concatenate([numpy.array(one + [end]) for one in ids])
            made = numpy.fromfile(folder / "out.bin", numpy.uint16 if tokenizer.get_vocab_size() <= 65536 else numpy.int32)
            if not numpy.array_equal(made, expected):
                sys.exit(f"{split}: tokens differ")
            speed, other = megabytes / min(seconds), megabytes / min(other_seconds)
            print(f"{split:8} {tokenizer.get_vocab_size():6} {speed:13.1f} {other:17.1f} {speed / other:7.2f}", flush=True)


if __name__ == "__main__":
    main()
