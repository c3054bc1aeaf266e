#include "core/error.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "core/printable.h"

namespace lyceum {

std::string format_message(std::string_view text, std::initializer_list<MessageArgument> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const MessageArgument& argument : arguments) {
    argument.visit([&]<class T>(const T& value) {
      if constexpr (std::is_same_v<T, double>) {
        store.push_back(std::isnan(value) ? std::abs(value) : value);  // as real_text()
      } else {
        store.push_back(value);
      }
    });
  }
  return fmt::vformat(text, store);
}

void fail_with(ExitCode code, const Message& message, std::initializer_list<MessageArgument> arguments) {
  const std::string text = format_message(message.text, arguments);
  // Messages about bad input quote files, whose text must not begin a new line. Other messages may list several
  // mistakes, one per line.
  throw Error(code, code == ExitCode::bad_input ? printable(text) : printable_lines(text), message.where);
}

}  // namespace lyceum
