#!/usr/bin/env python3
"""Converts a local copy of a benchmark to a file for `lyceum eval --tasks`, with the prompts of lm-evaluation-harness.

    scripts/tasks/convert.py hellaswag hellaswag_val.jsonl --out hellaswag.jsonl
    scripts/tasks/convert.py piqa valid.jsonl --labels valid-labels.lst --out piqa.jsonl
    scripts/tasks/convert.py arc ARC-Easy-Test.jsonl --out arc-easy.jsonl
    scripts/tasks/convert.py lambada lambada_test.jsonl --out lambada.jsonl [--distractors 3] [--seed 1]

The input has one JSON record per line, with the field names of the benchmark's files or of its copy in the Hugging Face Hub.
"""
import argparse

import files
import formats


def converted(name: str, path: str, labels: str | None, distractors: int, seed: int) -> list[dict]:
    records = files.read(path)
    if labels:
        words = files.read_text(labels).split()
        if len(words) != len(records):
            raise ValueError(f"{labels} has {len(words)} labels for {len(records)} records")
        records = [(number, record | {"label": word}) for (number, record), word in zip(records, words)]
    items = []
    for number, record in records:
        try:
            items.append(formats.FORMATS[name](record))
        except KeyError as error:
            raise ValueError(f"{path}:{number}: the record has no {error}") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    if name != "lambada":
        return items
    try:
        return formats.with_distractors(items, distractors, seed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=formats.FORMATS)
    parser.add_argument("input")
    parser.add_argument("--out", required=True)
    parser.add_argument("--labels", help="piqa: the file with a label per record, if the records have none")
    parser.add_argument("--distractors", type=int, default=3, help="lambada: wrong words per item")
    parser.add_argument("--seed", type=int, default=1, help="lambada: seed of the choice of wrong words")
    given = parser.parse_args()
    if given.labels and given.format != "piqa":
        parser.error("--labels applies to piqa only")
    if given.distractors < 1:
        parser.error("--distractors must be at least 1")
    files.check_output(given.out, [given.input, *filter(None, [given.labels])])
    files.write(given.out, converted(given.format, given.input, given.labels, given.distractors, given.seed))


if __name__ == "__main__":
    files.conclude(main)
