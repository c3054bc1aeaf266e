#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lyceum {

/// Exit codes of the program; an error carries the one that it ends the job with.
enum class ExitCode { done = 0, usage = 2, bad_input = 3, failed = 4, resubmit = 75 };

/// What `main` catches: one line that names the cause and the mend, the place in the source, the exit code.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message, std::source_location where)
      : std::runtime_error(message), code_(code), where_(where) {}
  ExitCode code() const { return code_; }
  const std::source_location& where() const { return where_; }

 private:
  ExitCode code_;
  std::source_location where_;
};

/// One argument of a message, its type erased so that no header needs the formatting library (nvcc cannot compile it).
using MessageArgument = std::variant<std::int64_t, std::uint64_t, double, std::string>;

template <class T>
MessageArgument message_argument(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::int64_t>(value);
  }
}

/// A format string ("rows {} of {}") and the place that it was written at.
struct Message {
  template <std::convertible_to<std::string_view> Text>
  Message(const Text& text, std::source_location where = std::source_location::current())  // NOLINT: implicit
      : text(text), where(where) {}
  std::string_view text;
  std::source_location where;
};

/// `text` with its {} replaced.
std::string format_message(std::string_view text, const std::vector<MessageArgument>& arguments);

template <class... Args>
[[noreturn]] void fail(ExitCode code, Message message, const Args&... args) {
  throw Error(code, format_message(message.text, {message_argument(args)...}), message.where);
}

/// Throws unless `condition`: something went wrong while running (exit code 4).
template <class... Args>
void require(bool condition, Message message, const Args&... args) {
  if (!condition) fail(ExitCode::failed, message, args...);
}

/// Throws unless `condition`: a file or checkpoint is bad (exit code 3).
template <class... Args>
void require_input(bool condition, Message message, const Args&... args) {
  if (!condition) fail(ExitCode::bad_input, message, args...);
}

/// Throws unless `condition`: the command line or configuration is wrong (exit code 2).
template <class... Args>
void require_usage(bool condition, Message message, const Args&... args) {
  if (!condition) fail(ExitCode::usage, message, args...);
}

}  // namespace lyceum
