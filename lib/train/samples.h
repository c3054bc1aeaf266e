#pragma once

#include "io/data/token_data.h"
#include "model/transformer.h"

namespace lyceum {

/// Samples [first, first + count) of a loader's order.
struct Samples {
  const TokenLoader* loader;
  std::int64_t first, count;
};

/// Room for the tokens of `sequences` samples of `seq_len`, where the stream computes; none unless somebody `reads`
/// them.
Transformer::Batch empty_batch(const Stream& stream, std::int64_t sequences, std::int64_t seq_len, bool reads);
/// Fills a batch that has room. `vocab`: tokens from there on are errors of the data.
void load(const Stream& stream, const Samples& samples, std::int64_t vocab, const Transformer::Batch& batch);

}  // namespace lyceum
