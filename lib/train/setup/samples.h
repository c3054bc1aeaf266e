#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "model/transformer.h"

namespace lyceum {

/// The samples at positions [first, first + count) in the order of a loader, which must outlive this.
struct Samples {
  const TokenLoader* loader;
  std::int64_t first, count;
  std::int64_t copies = 1;  // consecutive sequences of a batch that each sample fills
};

/// Returns how samples are cut from token files, as the configuration states.
SampleShape sample_shape(const Config& config);

/// Returns a batch with uninitialised memory on the stream's device for `sequences` samples. The inputs and targets are
/// allocated if `reads`, first_keys if data.document_mask is set, span_starts if needs_span_starts(); else these
/// tensors are undefined.
TokenBatch allocate_batch(const Stream& stream, const Config& config, std::int64_t sequences, bool reads);
/// Reads the samples and fills the defined tensors of the batch, which must have as many sequences as there are copies
/// of samples. Returns, for each sequence, the number of targets that count in the loss. Throws a bad_input Error if a
/// token id is not below `vocab`.
std::vector<std::int64_t> load(const Stream& stream, const Samples& samples, std::int64_t vocab,
                               const TokenBatch& batch);

}  // namespace lyceum
