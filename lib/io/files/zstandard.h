#pragma once

#include <memory>
#include <string_view>

#include "io/files/decompressor.h"

namespace lyceum {

/// True for the first bytes of a file that zstd compressed: a frame of data, or a skippable one, as all files of pzstd
/// begin with.
bool begins_zstandard(std::string_view beginning);
/// Decodes one Zstandard frame after another, of which some may be skippable, with windows of up to 2 GiB, which take
/// that much memory. [RFC 8878]
std::unique_ptr<Decompressor> make_zstandard();

}  // namespace lyceum
