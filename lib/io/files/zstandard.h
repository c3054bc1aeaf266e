#pragma once

#include <memory>
#include <string_view>

#include "io/files/decompressor.h"

namespace lyceum {

/// True if a file that begins with these bytes was compressed with zstd. It begins with a frame of data or a skippable
/// frame (as all files of pzstd do).
bool begins_zstandard(std::string_view beginning);
/// Returns a decoder of zstd files. A file may have several frames, some of them skippable, with windows of up to 2
/// GiB, which take that much memory. [RFC 8878]
std::unique_ptr<Decompressor> make_zstandard();

}  // namespace lyceum
