#!/usr/bin/env python3
"""Writes a peak of matrix products into the cache of the program, as if it had measured it on this machine, so that no start of a
test measures it. On a busy machine no measurement is steady, and every start of every rank would repeat it for a second.

    known_peaks.py LYCEUM FOLDER [HOST ...]

FOLDER is what LYCEUM_CACHE names; HOST are further names of this machine in namespaces. The form of the file is that of
lib/train/run/peak_cache.cpp. end_to_end/resume_test.sh and slurm/requeue_test.sh check that the program accepts it.
"""
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

SECONDS_TO_2174 = 6437664000  # the clock of std::filesystem in libstdc++ begins in 2174


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "cpu"


def know_peaks(lyceum, folder, hosts=()):
    status = Path(lyceum).resolve().stat()
    build = f"{status.st_size} B, {status.st_mtime_ns - SECONDS_TO_2174 * 10**9}"
    entry = {"flops": 1e11, "date": time.strftime("%Y-%m-%d"), "method": 2, "build": build}
    counts = range(1, len(os.sched_getaffinity(0)) + 1)  # a quota of processor time may leave fewer cores
    known = {f"{processor()}, {count} {'core' if count == 1 else 'cores'}, {precision}": entry
             for count in counts for precision in ("f32", "bf16")}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for host in {socket.gethostname(), *hosts}:
        file = Path(folder) / f"peak-{host}.json"
        try:
            before = json.loads(file.read_text())
        except (OSError, ValueError):
            before = {}
        if before | known == before:
            continue
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as new:  # other tests may read the file now
            json.dump(before | known, new)
        os.replace(new.name, file)


if __name__ == "__main__":
    know_peaks(sys.argv[1], sys.argv[2], sys.argv[3:])
