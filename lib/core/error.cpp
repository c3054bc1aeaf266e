#include "core/error.h"

#include <fmt/args.h>
#include <fmt/format.h>

namespace lyceum {

std::string format_message(std::string_view text, std::initializer_list<MessageArgument> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const MessageArgument& argument : arguments) {
    argument.visit([&](const auto& value) { store.push_back(value); });
  }
  return fmt::vformat(text, store);
}

void fail_with(ExitCode code, const Message& message, std::initializer_list<MessageArgument> arguments) {
  throw Error(code, format_message(message.text, arguments), message.where);
}

}  // namespace lyceum
