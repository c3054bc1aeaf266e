#!/usr/bin/env python3
"""Writes lib/io/data/tokenizer/unicode_tables.h: the characters that the package `tokenizers` and utf8proc may treat differently.

    python3.11 -m venv tables && tables/bin/pip install tokenizers==0.23.3 unicodedata2==18.0.0
    tables/bin/python scripts/unicode_tables.py >lib/io/data/tokenizer/unicode_tables.h

The libraries of `tokenizers` have the data of different versions of Unicode; utf8proc has one version, from 14 on. The
tables list every character for which `tokenizers` differs from Unicode 14 (Python 3.11) or Unicode 18 (unicodedata2), and
say what it is to `tokenizers`. So they hold with utf8proc of any version in between.
"""
import sys
import textwrap
import unicodedata as oldest

import unicodedata2 as newest
from tokenizers import normalizers, pre_tokenizers

CHARACTERS = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def isolated(pre_tokenizer):
    """Returns the characters that a pre-tokenizer separates from an x on both sides."""
    pieces = pre_tokenizer.pre_tokenize_str("".join(f"x{c}x" for c in CHARACTERS))
    return {piece for piece, _ in pieces if len(piece) == 1 and piece != "x"}


def is_numeric(unicode, c):
    return unicode.category(c)[0] == "N"


def is_punctuation(unicode, c):
    return unicode.category(c)[0] == "P" or ord(c) < 0x80 and unicode.category(c)[0] == "S"


def is_word(unicode, c):
    """The formula of is_word() in unicode.cpp."""
    enclosed = any(a <= ord(c) <= b for a, b in [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)])
    return unicode.category(c)[0] in "LM" or unicode.category(c) in ("Nd", "Nl", "Pc") or c in "\u200C\u200D" or enclosed


def ranges(characters, joins=lambda c: False):
    """Returns sorted ranges [first, last]. Characters between two ranges for which joins(c) is true are included."""
    made = []
    for c in sorted(map(ord, characters)):
        if made and all(joins(chr(between)) for between in range(made[-1][1] + 1, c)):
            made[-1][1] = c
        else:
            made.append([c, c])
    return made


def exceptions(expected, predicate):
    """Returns the ranges of characters that are in a class for `tokenizers` only, and of those that are not in it."""
    classes = [{c for c in CHARACTERS if predicate(unicode, c)} for unicode in (oldest, newest)]
    included = set().union(*(expected - one for one in classes))
    excluded = set().union(*(one - expected for one in classes))
    return ranges(included), ranges(excluded)


def lower_cases():
    """Returns [first, last, lower case of first]: characters without one are their own."""
    lower = normalizers.Lowercase().normalize_str
    made = []
    for c in CHARACTERS:
        is_new_capital = oldest.category(c) == "Cn" and newest.category(c) in ("Lu", "Lt")
        if lower(c) == c.lower() and not is_new_capital:
            continue
        first, to = ord(c), ord(lower(c))
        if made and made[-1][1] == first - 1 and made[-1][2] - made[-1][0] == to - first:
            made[-1][1] = first
        else:
            made.append([first, first, to])
    return made


def inert():
    """Returns the ranges of characters that normal forms do not change, move or compose in `tokenizers`, but do in Unicode.

    The ranges also contain characters that normal forms change in no version.
    """
    nfc, nfd, nfkd = (form().normalize_str for form in (normalizers.NFC, normalizers.NFD, normalizers.NFKD))
    parts, known_parts = set(), set()  # of compositions
    for c in CHARACTERS:
        decomposition = newest.decomposition(c)
        decomposed = newest.normalize("NFD", c)
        if decomposition and decomposition[0] != "<" and newest.normalize("NFC", decomposed) == c:
            of_c = {chr(int(part, 16)) for part in decomposition.split()}
            parts |= of_c
            known_parts |= of_c if nfc(decomposed) == c else set()
    hangul = {c for c in CHARACTERS if "\u1100" <= c <= "\u11FF" or "\uAC00" <= c <= "\uD7A3"}
    relevant = parts | hangul | {c for c in CHARACTERS if newest.combining(c) or newest.decomposition(c)}

    def unknown(c):
        if c in known_parts or c in hangul:
            return False
        if newest.combining(c):
            between = "\u0345" + c + "\u0334"  # marks of the last and the first class
            return nfd(between) != newest.normalize("NFD", between)
        return nfkd(c) == c

    return ranges(filter(unknown, relevant), joins=lambda c: c not in relevant)


def table(comment, kind, name, rows):
    cells = ", ".join("{" + ",\u00A0".join(f"0x{value:X}" for value in row) + "}" for row in rows)
    body = textwrap.fill(cells, 120, initial_indent="    ", subsequent_indent="    ").replace("\u00A0", " ")
    return f"/// {comment}\ninline constexpr auto {name} = std::to_array<{kind}>({{\n{body}\n}});\n"


def main():
    if oldest.unidata_version != "14.0.0":
        sys.exit(f"unicode_tables.py: Python 3.11 has Unicode 14.0.0, this one {oldest.unidata_version}")
    spaces = set(filter(str.isspace, CHARACTERS))
    classes = [
        ("numeric", isolated(pre_tokenizers.Digits(True)), is_numeric),
        ("punctuation", isolated(pre_tokenizers.Punctuation()), is_punctuation),
        ("word", set(CHARACTERS) - isolated(pre_tokenizers.Whitespace()) - spaces, is_word)]
    parts = []
    for name, expected, predicate in classes:
        for prefix, value, rows in zip(["", "not_"], ["true", "false"], exceptions(expected, predicate)):
            comment = f"Characters for which is_{name}() is {value}, unlike in some version of Unicode."
            parts.append(table(comment, "CharacterRange", prefix + name, rows))
    parts.append(table("Capital letters with another lower case, or none, in some version.", "LowerCases", "lower_cases",
                       lower_cases()))
    parts.append(table("Characters that normal forms do not change, move or compose, unlike in some version.", "CharacterRange",
                       "inert", inert()))
    print(HEAD + "\n".join(parts) + "\n}  // namespace lyceum::unicode_tables")


HEAD = """#pragma once

#include <array>

/// Characters that `tokenizers` treats unlike some version of Unicode from 14 to 18, and how it treats them. All ranges
/// are in ascending order. Written by scripts/unicode_tables.py.
// clang-format off
namespace lyceum::unicode_tables {

struct CharacterRange {
  char32_t first, last;
};

/// The letters first … last become lower, lower + 1, ….
struct LowerCases {
  char32_t first, last, lower;
};

"""

if __name__ == "__main__":
    main()
