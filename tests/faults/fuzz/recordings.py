#!/usr/bin/env python3
"""Writes the inputs of fuzz targets that must be made by programs: HDF5 files, and the files of a run.

    .venv/bin/python tests/faults/fuzz/recordings.py LYCEUM FOLDER

LYCEUM is the program; it trains a model of a few hundred weights. FOLDER is an unpacked corpus. `corpus.py pack` then puts
the files into the archives. They contain dates, so record them again only if a format changes.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy

from seeds import SMALL_RUN


def record(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def hdf5(target, name, fill):
    """Records an HDF5 file that `fill` writes, in format 1.10 as Lyceum's files, whose metadata has checksums."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "seed.h5")
        with h5py.File(path, "w", libver=("v110", "v110"), track_order=False) as file:
            fill(file)
        record(target, name, path.read_bytes())


def rows(file, path, values, dtype, chunk):
    values = numpy.asarray(values, dtype)
    return file.create_dataset(path, data=values, chunks=(chunk, *values.shape[1:]), maxshape=(None, *values.shape[1:]),
                               fletcher32=True)


def routing_log(file, records=3, attention=True):
    file.attrs["format"], file.attrs["format_version"] = "lyceum.routing", 1
    rows(file, "step", range(1, records + 1), "i8", 4)
    for group, experts in [("/layers/001", 3)] + ([("/layers/001/attention", 2)] if attention else []):
        counts = numpy.arange(records * 2 * experts).reshape(records, 2, experts)
        rows(file, group + "/counts", counts, "i8", 4)
        rows(file, group + "/dropped", counts // 2, "i8", 4)
        rows(file, group + "/mean_probability", numpy.full((records, experts), 1 / experts), "f4", 4)
        rows(file, group + "/mean_entropy", [0.5] * records, "f4", 4)
        file[group].attrs["expert_sizes"] = numpy.arange(1, experts + 1, dtype="i8")
        file[group].attrs["expert_rank"] = numpy.zeros(experts, "i8")


def token_log(file, tokens=5):
    file.attrs["format"], file.attrs["format_version"] = "lyceum.tokens", 1
    file.attrs["checkpoint"], file.attrs["data"], file.attrs["step"] = "run/checkpoints/step-00000002", "data/valid", 2
    for name, dtype in [("token", "i8"), ("source", "i4"), ("target", "i4"), ("loss", "f4")]:
        rows(file, name, range(tokens), dtype, tokens)
    for group in ["/layers/000", "/layers/001/attention"]:
        rows(file, group + "/chosen", numpy.arange(2 * tokens).reshape(tokens, 2) % 3, "i4", tokens)
        rows(file, group + "/gate", numpy.ones((tokens, 2)), "f4", tokens)
        file[group].attrs["expert_sizes"] = numpy.array([4, 8, 8], "i8")


def replaced(fill, path, **dataset):
    """Returns a function that fills a file as `fill` does, and then replaces the dataset at `path`."""
    def with_other(file):
        fill(file)
        attributes = dict(file[path].attrs)
        del file[path]
        made = file.create_dataset(path, **dataset)
        made.attrs.update(attributes)
    return with_other


def shard(file):
    for name, shape in [("model/norm/weight", (6,)), ("w", (2, 3))]:
        file.create_dataset(name, data=numpy.arange(6, dtype="f4").reshape(shape), chunks=shape, fletcher32=True)


def record_hdf5():
    vast = {"shape": (1 << 40,), "maxshape": (None,), "chunks": (4,), "dtype": "i8"}
    hdf5("routing_log", "seed-two-routers", routing_log)
    hdf5("routing_log", "seed-one-record", lambda file: routing_log(file, 1, False))
    hdf5("routing_log", "seed-no-record", lambda file: routing_log(file, 0, False))
    def one_router(file):
        routing_log(file, attention=False)
    hdf5("routing_log", "odd-vast-step", replaced(one_router, "step", **vast))
    hdf5("routing_log", "odd-text-step", replaced(one_router, "step", data=["a", "b", "c"]))
    hdf5("routing_log", "odd-vast-counts", replaced(
        one_router, "layers/001/counts", **vast | {"shape": (3, 1 << 30, 1 << 30), "maxshape": None, "chunks": (1, 4, 4)}))
    hdf5("routing_log", "odd-five-dimensions", replaced(one_router, "step", data=numpy.zeros((1, 1, 1, 1, 1))))
    hdf5("token_log", "seed-two-routers", token_log)
    hdf5("token_log", "seed-one-token", lambda file: token_log(file, 1))

    def vast_log(file):
        token_log(file)
        for name, dtype in [("token", "i8"), ("source", "i4"), ("target", "i4"), ("loss", "f4")]:
            del file[name]
            file.create_dataset(name, **vast | {"dtype": dtype})
        del file["layers"]
    hdf5("token_log", "odd-vast", vast_log)
    hdf5("checkpoint", "seed-as-written", shard)
    hdf5("checkpoint", "seed-doubles", replaced(shard, "w", data=numpy.ones((2, 3))))
    hdf5("checkpoint", "odd-shape", replaced(shard, "w", data=numpy.ones((3, 2))))
    hdf5("checkpoint", "odd-texts", replaced(shard, "w", data=[["a"] * 3] * 2))
    hdf5("checkpoint", "odd-elsewhere", replaced(
        shard, "w", shape=(2, 3), dtype="f4", external=[("/dev/zero", 0, 24)]))


def record_run(lyceum, folder):
    def run(*words):
        done = subprocess.run([lyceum, *words], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout
    Path(folder, "text").mkdir()
    words = "the quick brown fox jumps over a lazy dog and so it goes on for some more words\n".split(" ")
    Path(folder, "text/a.txt").write_text("".join(" ".join(words[i % 7:] + words[:i % 5]) for i in range(200)))
    run("tokenize", "--input", "text", "--vocab", "320", "--model", "data/tokenizer.model", "--output", "data/train")
    Path(folder, "run.ini").write_text(SMALL_RUN)
    run("train", "--config", "run.ini")
    folder = Path(folder)
    record("config", "seed-all-keys", run("train", "--config", "run.ini", "--print-config"))
    record("tokenizer", "small.model", (folder / "data/tokenizer.model").read_bytes())
    record("token_meta", "seed-tokenize", (folder / "data/train.json").read_bytes())
    record("metrics", "seed-run", (folder / "run/metrics.jsonl").read_bytes())
    starts = (folder / "run/starts.jsonl").read_text()
    record("starts", "seed-run", starts)
    manifest = (folder / "run/checkpoints/step-00000002/manifest.json").read_text()
    record("manifest", "seed-run", manifest)
    record("trainer_state", "seed-run", json.loads(manifest)["trainer_state"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    CORPUS = Path(sys.argv[2])
    record_hdf5()
    with tempfile.TemporaryDirectory() as folder:
        record_run(str(Path(sys.argv[1]).resolve()), folder)
