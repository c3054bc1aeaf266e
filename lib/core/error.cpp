#include "core/error.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>

namespace lyceum {

std::string format_message(std::string_view text, std::initializer_list<MessageArgument> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const MessageArgument& argument : arguments) {
    argument.visit([&](const auto& value) { store.push_back(value); });
  }
  return fmt::vformat(text, store);
}

void fail_with(ExitCode code, const Message& message, std::initializer_list<MessageArgument> arguments) {
  std::string line = format_message(message.text, arguments);
  if (code == ExitCode::bad_input) {  // texts of files are in it: they begin no line and move no cursor
    std::ranges::replace_if(
        line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; }, ' ');
  }
  throw Error(code, line, message.where);
}

}  // namespace lyceum
