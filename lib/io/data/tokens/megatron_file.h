#pragma once

#include <memory>
#include <string>

#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Opens PREFIX.bin and PREFIX.idx, see megatron_format.h. Throws the errors of TokenSource.
std::unique_ptr<TokenSource> open_megatron(const std::string& prefix);

}  // namespace lyceum
