"""Reads and writes files with a JSON record per line."""

import itertools
import json
import os
import sys
from pathlib import Path

PARTIAL = ".partial"  # suffix of a file that is being written


class UsageError(Exception):
    """The command line is wrong."""


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file, without translating line ends. Raises ValueError that names the line of other bytes."""
    content = Path(path).read_bytes()
    if content.startswith(b"\x1f\x8b"):
        raise ValueError(f"{path}: compressed by gzip: decompress it first")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: not UTF-8") from None


def read(path: str) -> list[tuple[int, dict]]:
    """Returns the records of JSON lines, each with the number of its line. Raises ValueError that names the line of a bad one."""
    records = []
    for number, line in enumerate(read_text(path).split("\n"), 1):  # only \n separates: texts may contain U+2028 and the like
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{path}:{number}: not a JSON object")
        records.append((number, record))
    if not records:
        raise ValueError(f"{path}: no records")
    return records


def check_output(path: str, inputs: list[str]) -> None:
    """Raises UsageError if write() would replace an input, or something that is no file."""
    if os.path.islink(path):
        raise UsageError(f"--out {path} is a link, which would be replaced: name the file itself")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"--out {path} is not a file, and would be replaced by one: name another file")
    for written, each in itertools.product((path, path + PARTIAL), inputs):
        if os.path.exists(written) and os.path.exists(each) and os.path.samefile(written, each):
            raise UsageError(f"--out {path} would replace {each}, which is read: name another file")


def write(path: str, records: list[dict]) -> None:
    """Replaces the file at once, so that it is never incomplete."""
    partial = path + PARTIAL
    with open(partial, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    os.replace(partial, path)
    print(f"{path}: {len(records)} items")


def conclude(main) -> None:
    """Runs main(). Prints its error on one line and exits with 2 for wrong usage, 3 for bad input, 4 for other failures of files."""
    name = Path(sys.argv[0]).name
    try:
        main()
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        print(f"{name}: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(3 if isinstance(error, FileNotFoundError) else 4)
