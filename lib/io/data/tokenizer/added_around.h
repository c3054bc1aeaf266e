#pragma once

#include <cstdint>
#include <vector>

namespace lyceum {

/// The tokens that a tokenizer adds before and after each text.
struct AddedAround {
  std::vector<std::int32_t> before, after;
};

}  // namespace lyceum
