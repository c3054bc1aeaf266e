#pragma once

#include <cstdint>

#include "io/data/tokens/token_source.h"

namespace lyceum {

/// Returns the entropy of the unigram distribution of tokens [first, first + count), in nats per token, from their
/// empirical frequencies. Reads no other tokens. Throws a bad_input Error if a token is negative or not below 2^24, and
/// a failed Error unless count > 0 and the range is within the tokens.
double unigram_entropy(const TokenSource& source, std::int64_t first, std::int64_t count);

}  // namespace lyceum
