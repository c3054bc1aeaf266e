"""Reads and writes files with a JSON record per line."""

import json
import os
import sys
from pathlib import Path


def read(path: str) -> list[dict]:
    """Returns the records of JSON lines. Raises ValueError that names the line of a bad one."""
    records = []
    with open(path, encoding="utf-8", newline="\n") as file:  # only \n separates: texts may contain U+2028 and the like
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}:{number}: not a JSON object")
            records.append(record)
    return records


def write(path: str, records: list[dict]) -> None:
    """Replaces the file at once, so that it is never incomplete."""
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    os.replace(partial, path)
    print(f"{path}: {len(records)} items")


def conclude(main) -> None:
    """Runs main(). Prints its error on one line and exits with 3 for bad input, 4 for other failures of files."""
    name = Path(sys.argv[0]).name
    try:
        main()
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        print(f"{name}: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(3 if isinstance(error, FileNotFoundError) else 4)
