"""Tests scripts/check_includes.py on small trees with one mistake or none."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_includes.py"
HEADER = "#pragma once\n#include <string>\nstruct Shape {\n  std::string text() const;\n};\nint rows_of(const Shape& shape);\n"


class CheckIncludes(unittest.TestCase):
    def check(self, text, name="lib/io/file.cpp"):
        with tempfile.TemporaryDirectory() as folder:
            for path, content in {"lib/core/shape.h": HEADER, "lib/io/uses.h": '#include "core/shape.h"\n', name: text}.items():
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)

    def passes(self, text, **where):
        result = self.check(text, **where)
        self.assertEqual((result.returncode, result.stdout), (0, "3 files include what they use\n"))

    def fails(self, text, message, **where):
        result = self.check(text, **where)
        self.assertEqual((result.returncode, result.stdout), (1, message + "\n"))

    def test_standard_names(self):
        self.passes("#include <vector>\nstd::vector<int> a;\n")
        self.fails("#include <map>\n\nstd::vector<int> a;\n", "lib/io/file.cpp:3: uses std::vector, but does not include <vector>")
        self.fails("void f(int* a) { std::ranges::sort(a, a + 2); }\n",
                   "lib/io/file.cpp:1: uses std::ranges::sort, but does not include <algorithm>")

    def test_types_and_functions_of_the_project(self):
        self.passes('#include "core/shape.h"\nint f(const Shape& a) { return rows_of(a); }\n')
        self.passes('#include "io/uses.h"\nint f(const Shape& a) { return rows_of(a); }\n')
        self.passes("class Shape;\nint f(const Shape& a);\n")
        self.fails("int f(const Shape& a);\n", 'lib/io/file.cpp:1: uses Shape, but does not include "lib/core/shape.h"')
        self.fails("class Shape;\nint f(const Shape& a) { return rows_of(a); }\n",
                   'lib/io/file.cpp:2: uses rows_of, but does not include "lib/core/shape.h"')

    def test_a_header_stands_by_itself(self):
        self.fails("#pragma once\nShape cut(int rows);\n", 'lib/io/file.h:2: uses Shape, but does not include "lib/core/shape.h"', name="lib/io/file.h")

    def test_text_is_no_code(self):
        self.passes('// std::vector of Shape\n/* std::map\n Shape */\nconst char* a = "std::vector, Shape, rows_of(a)";\n')

    def test_names_of_others(self):
        self.passes("struct A {\n  int rows_of(int a);\n};\nint f(A& a) { return a.rows_of(2); }\n")
        self.passes("struct Shape {\n  int rows;\n};\nShape a;\n")
        self.passes("template <class Shape>\nvoid f(const Shape& a);\n")

    def test_nothing_to_check(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("no sources", result.stderr)


if __name__ == "__main__":
    unittest.main()
