#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "model/transformer.h"

namespace lyceum {

/// Samples [first, first + count) of a loader's order.
struct Samples {
  const TokenLoader* loader;
  std::int64_t first, count;
};

/// How the configuration has samples made.
SampleShape sample_shape(const Config& config);

/// Room for `sequences` samples, where the stream computes: for where their documents begin, if these do not see each
/// other, and for the tokens if somebody `reads` them.
TokenBatch empty_batch(const Stream& stream, const Config& config, std::int64_t sequences, bool reads);
/// Fills the batch. Returns how many targets of each sample count in the loss. `vocab`: tokens from
/// there on are errors of the data.
std::vector<std::int64_t> load(const Stream& stream, const Samples& samples, std::int64_t vocab,
                               const TokenBatch& batch);

}  // namespace lyceum
