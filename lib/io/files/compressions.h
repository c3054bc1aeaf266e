#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "io/files/decompressor.h"

namespace lyceum {

/// Returns what decodes a file with these first bytes; null if it is not compressed.
std::unique_ptr<Decompressor> decompressor_for(std::string_view beginning);
/// Returns the name of a file without the folder, and without the ending of a compression, in upper or lower case.
std::filesystem::path uncompressed_name(const std::filesystem::path& file);

}  // namespace lyceum
