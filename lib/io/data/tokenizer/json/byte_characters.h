#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// GPT-2's character for each byte. [Radford et al. 2019, encoder.py]
char32_t byte_character(unsigned char byte);
/// Each byte as its character.
std::string byte_characters(std::string_view text);

}  // namespace lyceum
