#pragma once

#include <memory>
#include <string_view>

#include "io/files/decompressor.h"

namespace lyceum {

/// True if a file that begins with these bytes was compressed with gzip.
bool begins_gzip(std::string_view beginning);
/// Returns a decoder of gzip files. A file may have several members, with zero bytes between and after them. [RFC 1952]
std::unique_ptr<Decompressor> make_gzip();

}  // namespace lyceum
