#pragma once

#include <string_view>

namespace lyceum {

/// Opens /dev/null as each of standard input, output and error that the program was started without, so that no other
/// file takes its number. Reading from it, or writing to it, then fails as it would without.
void occupy_standard_streams();

/// Writes a text to standard output at once, as printable_lines() shows it: in JSON its escapes mean the characters.
/// Throws an Error (exit code 4) if it cannot be written; a reader that went away ends the process as `| head` expects.
void print(std::string_view text);
/// Writes text of which every byte counts, such as what a model generates: as it is to a file or another program; to a
/// terminal as print() does, which nothing in it can act on.
void print_exactly(std::string_view text);

/// Throws as print() does unless everything that was printed, also to std::cout, has reached the system.
void flush_output();

}  // namespace lyceum
