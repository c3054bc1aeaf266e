#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "io/files/decompressor.h"

namespace lyceum {

/// Returns the decoder for a file that begins with these bytes; null if it is not compressed. At least the first 8
/// bytes are needed if the file has them.
std::unique_ptr<Decompressor> decompressor_for(std::string_view beginning);
/// Returns the name of a file without its folder and without the extension of a compression, such as ".gz" or ".ZST":
/// "a.txt" for "data/a.txt.gz".
std::filesystem::path uncompressed_name(const std::filesystem::path& file);

}  // namespace lyceum
