#!/usr/bin/env python3
"""Checks the #include lines of lib/ and apps/ against the order of the modules (docs/architecture.md).

    scripts/check_rooms.py [ROOT]

A module may include only itself and the modules before it. If the folders of a module, or of one of its folders, have an
order, a folder may include only itself and the folders before it. Some libraries may be included only in some folders.
JSON must be written by json_text(), which accepts file names that are not UTF-8. Only *_tensor_core.cu may depend on the
architecture of the GPU, since some builds compile all other files for one architecture (cmake/cuda.cmake). Prints one line per
violation, `file:line: what is wrong`. Exit code 1 if there is any, 2 if there is nothing to check.
"""

import re
import sys
from pathlib import Path

ROOMS = ["core", "kernels", "autograd", "parallel", "io", "config", "model", "optim", "plan", "train", "convert"]
# Folders below lib/ whose subfolders have an order -> the subfolders in this order.
FOLDERS = {
    "parallel": ["comm", "tensor", "expert", "data", "pipeline"],
    "io": ["text", "files", "run", "data", "checkpoint", "routing", "report"],
    "io/data": ["records", "tokenizer", "tokens", "encoding", "loader"],
    "train": ["setup", "step", "eval", "run"],
    "convert": ["transforms", "hugging_face"],
}
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
HEADERS = {".h", ".cuh"}

# (pattern of an include, name of the library in messages, path prefixes of the files that may include it)
LIBRARIES = [
    (re.compile(r"mpi\.h$"), "MPI", ["lib/parallel/comm/"]),
    (re.compile(r"nccl\.h$"), "NCCL", ["lib/parallel/comm/"]),
    (re.compile(r"(oneapi/dnnl/|dnnl)"), "oneDNN", ["lib/kernels/"]),
    (re.compile(r"(cublas|cudnn|cute/|cutlass/)"), "a CUDA kernel library", ["lib/kernels/cuda/"]),
    (re.compile(r"(hdf5|H5\w*)\.h$"), "HDF5", ["lib/io/"]),
    (re.compile(r"sentencepiece"), "SentencePiece", ["lib/io/"]),
    (re.compile(r"oniguruma\.h$"), "Oniguruma", ["lib/io/data/tokenizer/json/"]),
    (re.compile(r"utf8proc\.h$"), "utf8proc", ["lib/io/data/tokenizer/"]),
    (re.compile(r"(zlib|zstd\w*)\.h$"), "zlib and zstd", ["lib/io/files/"]),
    (re.compile(r"openssl/"), "OpenSSL", ["lib/io/"]),
    (re.compile(r"boost/program_options"), "Boost.ProgramOptions", ["lib/config/", "apps/"]),
    (re.compile(r"g(test|mock)/"), "GoogleTest", []),
]

JSON_WRITER = "lib/io/text/json"  # only this file may call dump() of the library
ARCHITECTURE = re.compile(r"__CUDA_ARCH__\s*[<>=!]|__CUDA_ARCH_(FEAT|SPECIFIC|FAMILY)")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def room_of(path):
    """Returns the module of a source under ROOT, or 'apps', which comes after all modules; None if it is in no module."""
    if path.parts[0] == "apps":
        return "apps"
    return path.parts[1] if len(path.parts) > 2 and path.parts[1] in ROOMS else None


def folders_of(path):
    """Returns (folder of FOLDERS, its subfolder) for all folders that contain a source below lib/, from the outside in. The
    subfolder is "" if the source is directly in the folder."""
    parts = path.parts
    above = [("/".join(parts[1:depth]), parts[depth:-1]) for depth in range(2, len(parts))]
    return [(folder, (*below, "")[0]) for folder, below in above if folder in FOLDERS]


def order_violation(root, path, included):
    """Returns what is wrong with including `included` by "…" from `path`, or None."""
    room = room_of(path)
    target = included.split("/")[0]
    if target in ROOMS:
        if not (root / "lib" / included).is_file():
            return f'"{included}" does not exist under lib/'
        if room != "apps" and ROOMS.index(target) > ROOMS.index(room):
            return f'{room} includes "{included}", but {target} comes after {room} in the order of modules'
        others = dict(folders_of(Path("lib", included)))
        for above, folder in folders_of(path):
            other = others.get(above, folder)
            if other in FOLDERS[above] and FOLDERS[above].index(other) > FOLDERS[above].index(folder):
                return f'{above}/{folder} includes "{included}", but {other} comes after {folder} in the order of folders'
        return None
    if room == "apps" and ((root / "apps" / included).is_file() or (root / included).is_file()):
        return None
    return f'"{included}" is not a "module/file.h"; modules are {", ".join(ROOMS)}'


def library_violation(path, included):
    """Returns what is wrong with including a library's header from `path`, or None."""
    if included.startswith("fmt/") and path.suffix in HEADERS:
        return f"<{included}> in a header: nvcc cannot compile it; format in a .cpp file"
    for pattern, library, allowed in LIBRARIES:
        if pattern.match(included) and not any(path.as_posix().startswith(prefix) for prefix in allowed):
            where = " and ".join(allowed) or "tests"
            return f"<{included}>: only {where} may include {library}"
    return None


def architecture_violation(root, path):
    """Returns what is wrong if a CUDA source that must be the same for all GPUs, or a header that it reaches, asks for the
    architecture; otherwise None."""
    if path.suffix != ".cu" or path.stem.endswith("_tensor_core"):
        return None
    reached = [path]
    for file in reached:  # grows
        text = (root / file).read_text(encoding="utf-8")
        if ARCHITECTURE.search(text):
            return f"depends on the architecture of the GPU in {file.name}: name it *_tensor_core.cu"
        for quote, included in INCLUDE.findall(text):
            header = Path("lib", included)
            if quote == '"' and header not in reached and (root / header).is_file():
                reached.append(header)
    return None


def violations(root):
    """Yields (path, line number, message) for all violations."""
    for path in sources(root):
        if room_of(path) is None:
            yield path, 1, f"is in none of the modules {', '.join(ROOMS)}"
            continue
        outside = [above for above, folder in folders_of(path) if folder not in FOLDERS[above]]
        if outside:
            yield path, 1, f"is in none of the folders {', '.join(FOLDERS[outside[0]])}"
            continue
        message = architecture_violation(root, path)
        if message:
            yield path, 1, message
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            if re.search(r"(\.|->)dump\(", line) and not path.as_posix().startswith(JSON_WRITER):
                yield path, number, "dump() throws if a string is not UTF-8: use json_text() of io/text/json.h"
            if not match:
                continue
            quote, included = match.groups()
            message = library_violation(path, included)
            if message is None and quote == '"':
                message = order_violation(root, path, included)
            if message:
                yield path, number, message


def sources(root, folders=("lib", "apps")):
    """Returns the source files of these folders, relative to the root, sorted."""
    return sorted(p.relative_to(root) for folder in folders for p in (root / folder).rglob("*")
                  if p.suffix in SOURCES and p.is_file())


def print_violations(script, root, files, found, praise):
    """Prints the violations, (path, line number, message) each, and returns the exit code of a check of `files`. `praise`:
    what the files do if there are none."""
    if not files:
        print(f"{script}: no sources under {root}", file=sys.stderr)
        return 2
    found = list(found)
    for path, number, message in found:
        print(f"{path}:{number}: {message}")
    if not found:
        print(f"{len(files)} files {praise}")
    return 1 if found else 0


def root_of(arguments):
    """Returns the folder in the arguments of a check, or else that of this project."""
    return Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)


def main(arguments):
    root = root_of(arguments)
    return print_violations("check_rooms.py", root, sources(root), violations(root), "keep the order of the modules")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
