#!/usr/bin/env python3
"""Tests scripts/check_rooms.py on small trees: each violation must be found at its line, and a correct tree must pass."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_rooms  # noqa: E402

GOOD = {
    "lib/core/tensor.h": "#pragma once\n#include <vector>\n",
    "lib/core/error.cpp": '#include "core/tensor.h"\n\n#include <fmt/format.h>\n',
    "lib/kernels/gemm.h": '#include "core/tensor.h"\n',
    "lib/kernels/cpu/gemm.cpp": '#include "kernels/gemm.h"\n#include <oneapi/dnnl/dnnl.hpp>\n',
    "lib/parallel/comm/process_group.cpp": '#include <mpi.h>\n#include "core/tensor.h"\n',
    "lib/io/files/hdf5.h": "#pragma once\n",
    "lib/io/data/tokens/index.h": "#pragma once\n",
    "lib/io/data/loader/json/load.cpp": '#include "io/data/tokens/index.h"\n#include "io/files/hdf5.h"\n',
    "lib/io/checkpoint/read.cpp": '#include <hdf5.h>\n#include "io/files/hdf5.h"\n#include "kernels/gemm.h"\n',
    "lib/model/transformer.h": "#pragma once\n",
    "apps/train.h": "#pragma once\n",
    "apps/train.cpp": '#include "train.h"\n#include "model/transformer.h"\n#include <boost/program_options.hpp>\n',
}


def check(files):
    """Returns exit code and printed lines for a tree with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            code = check_rooms.main([folder])
    return code, output.getvalue().splitlines()


class CheckRooms(unittest.TestCase):
    def expect_violation(self, name, text, line, fragment):
        code, lines = check({**GOOD, name: text})
        self.assertEqual(code, 1, lines)
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(f"{name}:{line}: "), lines[0])
        self.assertIn(fragment, lines[0])

    def test_good_tree_passes(self):
        self.assertEqual(check(GOOD), (0, [f"{len(GOOD)} files keep the order of the modules"]))

    def test_empty_tree_is_an_error(self):
        self.assertEqual(check({}), (2, []))

    def test_room_that_comes_later(self):
        self.expect_violation("lib/core/bad.h", '\n\n#include "kernels/gemm.h"\n', 3, "kernels comes after core")
        self.expect_violation("lib/io/text/bad.cpp", '#include "model/transformer.h"\n', 1, "model comes after io")
        self.expect_violation("lib/parallel/pipeline/bad.h", '# include "model/transformer.h"\n', 1, "model comes after")

    def test_folder_that_comes_later(self):
        self.expect_violation("lib/io/text/bad.cpp", '\n#include "io/files/hdf5.h"\n', 2, "files comes after text")
        self.expect_violation("lib/io/files/bad.cpp", '#include "io/data/tokens/index.h"\n', 1, "data comes after files")
        self.expect_violation("lib/io/data/records/bad.cpp", '#include "io/data/tokens/index.h"\n', 1,
                              "io/data/records includes \"io/data/tokens/index.h\", but tokens comes after records")

    def test_file_outside_the_folders_of_its_room(self):
        self.expect_violation("lib/io/bad.cpp", "", 1, "is in none of the folders text, files, run")
        self.expect_violation("lib/io/others/bad.cpp", "", 1, "is in none of the folders")
        self.expect_violation("lib/io/data/bad.cpp", "", 1, "is in none of the folders records, tokenizer")
        self.expect_violation("lib/io/data/others/bad.cpp", "", 1, "is in none of the folders records, tokenizer")

    def test_include_that_is_not_of_a_room(self):
        self.expect_violation("lib/core/bad.cpp", '#include "tensor.h"\n', 1, "not a \"module/file.h\"")
        self.expect_violation("lib/train/step/bad.cpp", '#include "apps/train.h"\n', 1, "not a \"module/file.h\"")
        self.expect_violation("lib/kernels/bad.cpp", '#include "core/absent.h"\n', 1, "does not exist")

    def test_file_outside_the_rooms(self):
        self.expect_violation("lib/misc/bad.cpp", "\n", 1, "in none of the modules")
        self.expect_violation("lib/bad.cpp", "\n", 1, "in none of the modules")

    def test_libraries_stay_where_they_belong(self):
        self.expect_violation("lib/train/step/bad.cpp", "#include <mpi.h>\n", 1, "only lib/parallel/comm/ may include MPI")
        self.expect_violation("lib/parallel/expert/bad.cpp", "#include <mpi.h>\n", 1, "may include MPI")
        self.expect_violation("apps/bad.cpp", "#include <mpi.h>\n", 1, "may include MPI")
        self.expect_violation("lib/autograd/bad.cpp", "#include <oneapi/dnnl/dnnl.hpp>\n", 1, "may include oneDNN")
        self.expect_violation("lib/train/step/bad.cpp", "#include <hdf5.h>\n", 1, "may include HDF5")
        self.expect_violation("lib/train/step/bad.cpp", "#include <H5Cpp.h>\n", 1, "may include HDF5")
        self.expect_violation("lib/train/step/bad.cpp", "#include <sentencepiece_processor.h>\n", 1, "may include Sentence")
        self.expect_violation("lib/core/bad.cpp", "#include <gtest/gtest.h>\n", 1, "only tests may include GoogleTest")

    def test_fmt_in_a_header(self):
        self.expect_violation("lib/io/text/bad.h", "#pragma once\n#include <fmt/format.h>\n", 2, "in a header")
        self.expect_violation("apps/bad.h", "#include <fmt/core.h>\n", 1, "in a header")

    def test_only_tensor_core_sources_depend_on_the_gpu(self):
        header = {"lib/kernels/cuda/hopper.cuh": "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n#endif\n",
                  "lib/kernels/cuda/tiles.cuh": '#include "kernels/cuda/hopper.cuh"\n',
                  "lib/kernels/cuda/plain.cu": "#ifdef __CUDA_ARCH__\n#endif\n",
                  "lib/kernels/cuda/gemm_tensor_core.cu": '#include "kernels/cuda/tiles.cuh"\n'}
        self.assertEqual(check({**GOOD, **header})[0], 0)
        code, lines = check({**GOOD, **header, "lib/kernels/cuda/gemm.cu": '#include "kernels/cuda/tiles.cuh"\n'})
        self.assertEqual((code, len(lines)), (1, 1), lines)
        self.assertIn("lib/kernels/cuda/gemm.cu:1: depends on the architecture of the GPU in hopper.cuh", lines[0])
        self.expect_violation("lib/kernels/cuda/bad.cu", "#if __CUDA_ARCH__ >= 900\n#endif\n", 1, "name it *_tensor_core.cu")

    def test_json_is_written_by_one_function(self):
        self.expect_violation("lib/train/step/bad.cpp", "\nwrite(json.dump(2));\n", 2, "json_text()")
        self.assertEqual(check({**GOOD, "lib/io/text/json.cpp": "json.dump();\n"})[0], 0)


if __name__ == "__main__":
    unittest.main()
