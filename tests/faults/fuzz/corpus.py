#!/usr/bin/env python3
"""Unpacks and packs the corpus of the fuzz targets.

    tests/faults/fuzz/corpus.py unpack FOLDER             replaces FOLDER by one with all inputs, FOLDER/TARGET/INPUT
    tests/faults/fuzz/corpus.py pack FOLDER TARGET ...    replaces the archives of these targets by their inputs in FOLDER

The inputs of a target are those in its archive, corpus/TARGET.zip, and the seeds that seeds.py makes. Archives do not
contain seeds. Equal inputs give equal archives.
"""
import shutil
import sys
import zipfile
from pathlib import Path

from seeds import ALL as SEEDS

ARCHIVES = Path(__file__).resolve().parent / "corpus"


def archived(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unpack(folder):
    shutil.rmtree(folder, ignore_errors=True)
    inputs = {target: dict(seeds) for target, seeds in SEEDS.items()}
    for path in ARCHIVES.glob("*.zip"):
        of_target = inputs.setdefault(path.stem, {})
        inputs[path.stem] = archived(path) | of_target
    for target, of_target in inputs.items():
        (folder / target).mkdir(parents=True)
        for name, content in of_target.items():
            (folder / target / name).write_bytes(content)


def pack(folder, target):
    files = sorted(path for path in (folder / target).iterdir() if path.name not in SEEDS[target])
    path = ARCHIVES / f"{target}.zip"
    if not files:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:  # not compressed, since versions of zlib differ
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())


def main(words):
    if words[:1] == ["unpack"] and len(words) == 2:
        unpack(Path(words[1]))
    elif words[:1] == ["pack"] and len(words) > 2:
        for target in words[2:]:
            pack(Path(words[1]), target)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
