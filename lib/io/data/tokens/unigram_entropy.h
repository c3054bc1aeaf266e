#pragma once

#include <cstdint>

#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Entropy of the unigram distribution of tokens [first, first + count), nats per token, by empirical frequency. Reads
/// no others; tokens beyond 2^24 are a bad_input Error.
double unigram_entropy(const TokenSource& source, std::int64_t first, std::int64_t count);

}  // namespace lyceum
