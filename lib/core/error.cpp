#include "core/error.h"

#include <fmt/args.h>
#include <fmt/format.h>

namespace lyceum {

std::string format_message(std::string_view text, const std::vector<MessageArgument>& arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const MessageArgument& argument : arguments) {
    std::visit([&](const auto& value) { store.push_back(value); }, argument);
  }
  return fmt::vformat(text, store);
}

}  // namespace lyceum
