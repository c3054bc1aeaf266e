#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Returns the character by which GPT-2 represents a byte. [Radford et al. 2019, encoder.py]
char32_t byte_character(unsigned char byte);
/// Returns a text in which each byte is replaced by its byte_character().
std::string byte_characters(std::string_view text);

}  // namespace lyceum
