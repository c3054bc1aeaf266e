#pragma once

#include <exception>
#include <string_view>

namespace lyceum {

/// Opens /dev/null in place of each standard stream that the program was started without, so that no other file gets
/// its descriptor. Reading or writing it still fails.
void occupy_standard_streams();

/// Writes text to standard output and flushes it. Control characters are escaped by printable_lines(); in JSON the
/// escapes denote the same characters. Throws an Error (exit code 4) if the text cannot be written. If the reader has
/// closed the pipe, the process ends by SIGPIPE, as `| head` expects.
void print(std::string_view text);
/// Writes text whose bytes matter, such as generated text: unchanged to a file or a pipe; on a terminal as print()
/// does, so that control characters cannot act on it. Throws as print() does.
void print_exactly(std::string_view text);

/// Flushes standard output, including std::cout. Throws as print() does if anything could not be written.
void flush_output();

/// Calls write() and returns what it throws, so that results can be printed before that is thrown again; null if
/// nothing.
template <class Write>
std::exception_ptr failure_of(Write&& write) {
  try {
    write();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace lyceum
