#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lyceum {

/// Returns the name of the token for a single byte, as in SentencePiece and tokenizer.json: "<0x0A>". Such tokens
/// encode bytes that no other token covers.
std::string byte_token(std::uint8_t byte);
/// Returns the byte of such a name; nothing if `token` is not one.
std::optional<std::uint8_t> byte_of_token(std::string_view token);

}  // namespace lyceum
