#!/usr/bin/env python3
"""Makes cloze items from plain text, for `lyceum eval --tasks`: the context is some words of the text, the right choice the word
that follows, and the others are words of the same text that occur about as often.

    scripts/tasks/cloze.py TEXT… --out cloze.jsonl [--items 300] [--least N] [--words 40] [--distractors 3] [--seed 1]

TEXT is a UTF-8 file, or a folder whose *.txt and *.md files are read. The right word is not among the last words of the context
(it could be copied otherwise), has at least three letters and occurs several times in the whole text. Use text that the models
were not trained on. With --least, a text that has room for fewer items gives as many as it can, but not fewer than N.
"""
import argparse
import random
import re
from collections import Counter
from pathlib import Path

import files
import formats

WORD = re.compile(r"[^\W\d_]{3,}")
LEAST_COUNT = 3    # occurrences that a word needs
COPY_WINDOW = 20   # last words of the context that must not contain the right one
BAND = 40          # wrong words are drawn from the nearest words in order of frequency


def files_of(paths: list[str]) -> list[str]:
    found = []
    for path in map(Path, paths):
        found += sorted(file for file in path.rglob("*") if file.suffix in (".txt", ".md")) if path.is_dir() else [path]
    if not found:
        raise ValueError("no text: the folders have neither *.txt nor *.md")
    return [str(file) for file in found]


def candidates(text: str, words: int, frequent: set[str]) -> list[tuple[str, str]]:
    """Returns all pairs of a context of `words` words, with its original white space, and a right word."""
    pieces = list(re.finditer(r"\S+", text))
    pairs = []
    for i in range(words, len(pieces)):
        word = pieces[i].group()
        if text[pieces[i - 1].end():pieces[i].start()] != " " or not WORD.fullmatch(word) or word not in frequent:
            continue
        if word in {piece.group().strip(".,;:!?()\"'") for piece in pieces[i - COPY_WINDOW:i]}:
            continue
        pairs.append((text[pieces[i - words].start():pieces[i - 1].end()], word))
    return pairs


def cloze(texts: list[str], items: int, words: int, distractors: int, seed: int, least: int | None = None) -> list[dict]:
    counts = Counter(word for text in texts for word in text.split() if WORD.fullmatch(word))
    ranked = [word for word, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])) if count >= LEAST_COUNT]
    rank = {word: i for i, word in enumerate(ranked)}
    if len(ranked) <= distractors:
        raise ValueError(f"{len(ranked)} words occur {LEAST_COUNT} times or more: the text is too short")
    pairs = [pair for text in texts for pair in candidates(text, words, set(ranked))]
    if len(pairs) < (items if least is None else min(items, least)):
        raise ValueError(f"the text has room for {len(pairs)} items of {words} words: lower --items, or add text")
    drawn = random.Random(seed)
    made = []
    for context, word in drawn.sample(pairs, min(items, len(pairs))):
        first = max(0, min(rank[word] - BAND // 2, len(ranked) - BAND))
        others = [other for other in ranked[first:first + BAND] if other.lower() != word.lower()]
        if len(others) < distractors:
            raise ValueError(f"{len(others)} words are too few for {distractors} distractors")
        made.append(formats.shuffled(context, word, drawn.sample(others, distractors), drawn))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--least", type=int, metavar="N", help="accept fewer items, but at least N, if the text has no room for more")
    parser.add_argument("--words", type=int, default=40, help="words of a context")
    parser.add_argument("--distractors", type=int, default=3, help="wrong words per item")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for name in "items", "least", "distractors":
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if given.words < COPY_WINDOW:
        parser.error(f"--words must be at least {COPY_WINDOW}")
    sources = files_of(given.text)
    files.check_output(given.out, sources)
    texts = [re.sub(r"\r\n?", "\n", files.read_text(source)) for source in sources]
    files.write(given.out, cloze(texts, given.items, given.words, given.distractors, given.seed, given.least))


if __name__ == "__main__":
    files.conclude(main)
