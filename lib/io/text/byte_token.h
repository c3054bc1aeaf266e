#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lyceum {

/// Tokens of bytes that no other token has are named so, by SentencePiece and in tokenizer.json: "<0x0A>".
std::string byte_token(std::uint8_t byte);
/// The byte of such a name.
std::optional<std::uint8_t> byte_of_token(std::string_view token);

}  // namespace lyceum
