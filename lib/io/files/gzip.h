#pragma once

#include <memory>
#include <string_view>

#include "io/files/decompressor.h"

namespace lyceum {

/// True for the first bytes of a file that gzip compressed.
bool begins_gzip(std::string_view beginning);
/// Decodes one gzip member after another, with zeros between and behind them. [RFC 1952]
std::unique_ptr<Decompressor> make_gzip();

}  // namespace lyceum
