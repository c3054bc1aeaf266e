#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace lyceum {

/// Exit codes of the program. Each Error carries the one that the job ends with.
///   done       success
///   usage      the command line or the configuration is wrong
///   bad_input  an input file or a checkpoint is missing or bad
///   failed     anything else that went wrong while running
///   resubmit   training stopped on request after it saved a checkpoint; the same command resumes. Not an error
enum class ExitCode { done = 0, usage = 2, bad_input = 3, failed = 4, resubmit = 75 };

/// The exception that `main` catches. Its message is one line with the cause and, if known, the remedy. It carries the
/// source location of the failed check and an exit code.
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

/// One argument of a message. Its type is erased so that headers need not include the formatting library, which nvcc
/// cannot compile. An argument does not own its text; an object with a `text()` function is formatted only if the
/// message is made. The value passed must therefore outlive the argument.
class MessageArgument {
 public:
  enum class Kind : std::uint8_t { integer, whole, real, text, thing };

  template <class T>
  MessageArgument(const T& value) {  // NOLINT: implicit
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      kind_ = Kind::text;
      text_ = std::string_view(value);
    } else if constexpr (requires { value.text(); }) {
      kind_ = Kind::thing;
      thing_ = {&value, [](const void* thing) { return std::string(static_cast<const T*>(thing)->text()); }};
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::real;
      real_ = static_cast<double>(value);
    } else if constexpr (std::is_unsigned_v<T>) {
      kind_ = Kind::whole;
      whole_ = value;
    } else {
      kind_ = Kind::integer;
      integer_ = static_cast<std::int64_t>(value);
    }
  }

  /// Calls f with the number or the text; f must accept std::int64_t, std::uint64_t, double, std::string_view and
  /// std::string.
  template <class F>
  void visit(F&& f) const {
    switch (kind_) {
      case Kind::integer: return f(integer_);
      case Kind::whole: return f(whole_);
      case Kind::real: return f(real_);
      case Kind::text: return f(text_);
      case Kind::thing: return f(thing_.text(thing_.thing));
    }
  }

 private:
  struct Thing {
    const void* thing;
    std::string (*text)(const void*);
  };
  Kind kind_;
  union {
    std::int64_t integer_ = 0;
    std::uint64_t whole_;
    double real_;
    std::string_view text_;
    Thing thing_;
  };
};

/// A format string in the syntax of fmt, such as "rows {} of {}", and the location of the call. It does not own the
/// string. Text from elsewhere belongs in an argument, because braces in a format string are interpreted.
struct Message {
  template <std::convertible_to<std::string_view> Text>
  Message(const Text& text, std::source_location where = std::source_location::current())  // NOLINT: implicit
      : text(text), where(where) {}
  std::string_view text;
  std::source_location where;
};

/// Returns `text` with each {} (or {:format}) replaced by the next of `arguments`. Throws fmt::format_error if `text`
/// is not a valid format string or has more fields than there are arguments.
std::string format_message(std::string_view text, std::initializer_list<MessageArgument> arguments);

/// Throws an Error with the formatted message. Control characters are escaped: by printable() for ExitCode::bad_input,
/// whose messages may quote files, else by printable_lines(), since other messages may have several lines.
[[noreturn]] void fail_with(ExitCode code, const Message& message, std::initializer_list<MessageArgument> arguments);

/// Throws an Error with the formatted message: `fail(ExitCode::failed, "rank {} is gone", rank)`.
template <class... Args>
[[noreturn]] void fail(ExitCode code, const Message& message, const Args&... args) {
  fail_with(code, message, {MessageArgument(args)...});
}

/// Throws an Error with ExitCode::failed unless `condition`, for anything that goes wrong while running.
template <class... Args>
void require(bool condition, const Message& message, const Args&... args) {
  if (!condition) fail(ExitCode::failed, message, args...);
}

/// Throws an Error with ExitCode::bad_input unless `condition`, for bad files and checkpoints.
template <class... Args>
void require_input(bool condition, const Message& message, const Args&... args) {
  if (!condition) fail(ExitCode::bad_input, message, args...);
}

/// Throws an Error with ExitCode::usage unless `condition`, for mistakes in the command line or configuration.
template <class... Args>
void require_usage(bool condition, const Message& message, const Args&... args) {
  if (!condition) fail(ExitCode::usage, message, args...);
}

}  // namespace lyceum
