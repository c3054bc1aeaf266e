#include "io/text/byte_token.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace lyceum {

std::string byte_token(std::uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<std::uint8_t> byte_of_token(std::string_view token) {
  std::uint8_t value = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return value;
}

}  // namespace lyceum
