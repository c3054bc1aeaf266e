#!/usr/bin/env python3
"""Checks that every source includes the headers of the names that it uses. Several sources are compiled as one, so a missing
include may be hidden by that of another source.

    scripts/check_includes.py [ROOT]

A name of namespace std must come from a standard header, and a type, constant or function that a header of this project
declares must come from that header, included by the file itself or by a project header that it includes. Reads text, not
C++: a name that two headers declare may come from either. A build with -DLYCEUM_UNITY=OFF is the exact check. Prints one
line per violation, `file:line: what is wrong`. Exit code 1 if there is any, 2 if there is nothing to check.
"""

import functools
import re
import sys
from pathlib import Path

from check_rooms import HEADERS, INCLUDE, ROOMS, root_of, sources, print_violations

# Header -> names of std that it provides. Names that many headers provide (size_t, pair, move) are omitted.
STANDARD = {
    "algorithm": "all_of any_of clamp copy_n count_if equal fill fill_n find find_if lower_bound max_element min_element "
                 "minmax_element nth_element partial_sort remove_if replace reverse rotate shuffle sort stable_sort "
                 "transform unique upper_bound ranges::sort ranges::find ranges::any_of ranges::all_of ranges::count",
    "any": "any any_cast",
    "array": "array to_array",
    "atomic": "atomic atomic_ref atomic_thread_fence",
    "barrier": "barrier",
    "bit": "bit_cast bit_ceil bit_width countr_zero has_single_bit popcount",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "abs ceil cos erf exp exp2 fabs floor fma hypot isfinite isinf isnan lgamma log log1p log2 nearbyint pow "
             "round sin sqrt tanh trunc",
    "condition_variable": "condition_variable condition_variable_any",
    "cstdio": "FILE fclose fflush fopen fprintf fputs fread fseek fwrite printf remove snprintf",
    "cstdlib": "abort atoi exit free getenv malloc setenv strtol",
    "cstring": "memchr memcmp memcpy memmove memset strerror strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception terminate uncaught_exceptions",
    "filesystem": "filesystem",
    "forward_list": "forward_list",
    "fstream": "filebuf fstream ifstream ofstream",
    "functional": "bind function greater hash invoke less multiplies plus reference_wrapper",
    "future": "async future promise",
    "iostream": "cerr cin cout",
    "iterator": "back_inserter inserter istreambuf_iterator ostream_iterator",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock call_once",
    "new": "bad_alloc",
    "numbers": "numbers",
    "numeric": "accumulate gcd inner_product iota lcm partial_sum reduce transform_reduce exclusive_scan inclusive_scan",
    "optional": "nullopt optional",
    "queue": "priority_queue queue",
    "random": "bernoulli_distribution discrete_distribution mt19937 mt19937_64 normal_distribution random_device "
              "uniform_int_distribution uniform_real_distribution",
    "regex": "regex regex_match regex_replace regex_search smatch",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "getline stod stof stoi stol stoll stoul stoull string to_string",
    "string_view": "string_view",
    "thread": "jthread this_thread thread",
    "tuple": "make_tuple tie tuple tuple_size_v",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "exchange index_sequence make_index_sequence",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
# Header -> other standard headers that it certainly includes.
GIVES = {"string": ["string_view"], "iostream": ["ostream"], "sstream": ["string", "string_view"],
         "fstream": ["string", "string_view"], "filesystem": ["string", "string_view"], "stdexcept": ["string", "exception"],
         "regex": ["string"], "future": ["exception"], "map": ["utility"], "memory": ["exception"],
         "condition_variable": ["mutex"], "shared_mutex": ["mutex"], "span": ["array"], "exception": ["exception"]}
HEADER_OF = {name: header for header, names in STANDARD.items() for name in names.split()}

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
STD_NAME = re.compile(r"\bstd::((?:ranges::)?\w+)")
TYPE = re.compile(r"^(?:template <[^\n]*> ?\n?)?(?:class|struct|enum class|enum|union)\s+(?:alignas\(\w+\) )?(\w+)[^;\n]*\{",
                  re.MULTILINE)
ALIAS = re.compile(r"^(?:template <.*> ?\n?)?(?:using|concept) (\w+) =", re.MULTILINE)
CONSTANT = re.compile(r"^(?:inline )?constexpr [\w:<>, ]+ (\w+)\b(?:\[\w*\])?\s*[={]", re.MULTILINE)
FUNCTION = re.compile(r"^(?! |#|using|namespace|static_assert|class|struct|enum)[\w:<>,&*\[\] ]+?[ &*](\w+)\([^;{]*[;{]",
                      re.MULTILINE)
WORD = re.compile(r"(?<![\w.>:])(?:lyceum::)?(\w+)\b(\s*\()?")
# Everything that may introduce a name, also members, parameters and forward declarations.
INTRODUCED = re.compile(r"\b(?:enum class|class|struct|enum|union|using|typename|namespace)(?:\.\.\.)?\s+"
                        r"(?:alignas\(\w+\) )?(\w+)|^[A-Z_]+\((\w+)|"
                        r"[\w>](?<!return)(?<!else)(?<!not)[&*]* [&*]*(\w+)(?=\s*[(={;,)])", re.MULTILINE)


def blanked(text):
    """Returns the text with blanks instead of comments and strings, so that lines keep their numbers."""
    return NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = sources(root, ("lib", "apps", "tests"))
        self.texts = {p: (root / p).read_text(encoding="utf-8") for p in self.files}
        self.code = {p: blanked(t) for p, t in self.texts.items()}
        self.declared_in = {}  # name -> headers
        for path in self.files:
            if path.suffix in HEADERS and "host_cuda" not in path.parts:
                for name in self.declared(path):
                    self.declared_in.setdefault(name, set()).add(path)

    def declared(self, path):
        """Returns the names that a file declares at namespace level."""
        return {name for pattern in (TYPE, ALIAS, CONSTANT, FUNCTION) for name in pattern.findall(self.code[path])
                if not name.startswith("_")}

    @functools.cache
    def introduced(self, path):
        """Returns the names that a file may introduce itself."""
        return {name for names in INTRODUCED.findall(self.code[path]) for name in names if name}

    def found(self, path, included):
        """Returns the project's file that `path` includes as `included`, or None."""
        for folder in (path.parent, Path("lib"), Path("apps"), Path("tests"), Path()):
            if folder / included in self.texts:
                return folder / included
        return None

    @functools.cache
    def includes(self, path):
        """Returns (standard headers, project headers) that a file includes, directly or through others."""
        standard, project, waiting = set(), set(), [path]
        while waiting:
            now = waiting.pop()
            for quote, included in INCLUDE.findall(self.texts[now]):
                target = self.found(now, included) if quote == '"' else None
                if target is None:
                    standard.update([included, *GIVES.get(included, [])])
                elif target not in project:
                    project.add(target)
                    waiting.append(target)
        return standard, project


def violations(tree):
    """Yields (path, line number, message)."""
    for path in tree.files:
        standard, project = tree.includes(path)
        code, said = tree.code[path], set()
        for match in STD_NAME.finditer(code):
            header = HEADER_OF.get(match.group(1))
            if header and header not in standard and header not in said:
                said.add(header)
                yield path, line_of(code, match), f"uses std::{match.group(1)}, but does not include <{header}>"
        known = set().union(*(tree.introduced(p) for p in {path, *project}))
        for match in WORD.finditer(code):
            name, call = match.groups()
            if name in known or name in said or not (name[0].isupper() or (call and "_" in name)):
                continue
            headers = [h for h in tree.declared_in.get(name, ()) if may_include(path, h)]
            if headers:
                said.add(name)
                yield path, line_of(code, match), f'uses {name}, but does not include "{min(headers)}"'


def may_include(path, header):
    """Returns True if the order of the modules allows `path` to include `header` (scripts/check_rooms.py)."""
    order = [f"lib/{room}" for room in ROOMS] + ["apps", "tests"]
    rank = {p: order.index(next(o for o in order if p.as_posix().startswith(f"{o}/"))) for p in (path, header)}
    return rank[header] <= rank[path] and (header.parts[0] != "tests" or header.parts[1] in ("support", path.parts[1]))


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def main(arguments):
    tree = Tree(root_of(arguments))
    return print_violations("check_includes.py", tree.root, tree.files, violations(tree), "include what they use")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
