#include "train/setup/samples.h"

#include <algorithm>

#include "core/copy.h"
#include "kernels/cross_entropy.h"

namespace lyceum {

SampleShape sample_shape(const Config& config) {
  return {.seq_len = config.batch.seq_len,
          .packed = config.data.samples == SampleKind::packed,
          .documents = config.data.document_mask};
}

TokenBatch allocate_batch(const Stream& stream, const Config& config, std::int64_t sequences, bool reads) {
  const auto numbers = [&](bool wanted) {
    return !wanted ? Tensor()
                   : Tensor::empty(stream, DType::i32, {sequences * config.batch.seq_len}, MemoryKind::buffers);
  };
  return {.inputs = numbers(reads),
          .targets = numbers(reads),
          .sequences = sequences,
          .seq_len = config.batch.seq_len,
          .first_keys = numbers(config.data.document_mask),
          .span_starts = numbers(needs_span_starts(config))};
}

std::vector<std::int64_t> load(const Stream& stream, const Samples& samples, std::int64_t vocab,
                               const TokenBatch& batch) {
  const ProfileScope timed(profile_of(stream), "load batch");
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch.tokens())), targets(inputs.size());
  const bool needs_keys = batch.first_keys.defined() || batch.span_starts.defined();
  std::vector<std::int32_t> first_keys(needs_keys ? inputs.size() : 0);
  samples.loader->load(samples.first, samples.count, vocab,
                       {.inputs = inputs, .targets = targets, .first_keys = first_keys});
  const auto fill = [&](const Tensor& room, const std::vector<std::int32_t>& values) {
    if (room.defined()) copy_to_device(stream, room.span<std::int32_t>(), std::span<const std::int32_t>(values));
  };
  fill(batch.inputs, inputs);
  fill(batch.targets, targets);
  fill(batch.first_keys, first_keys);
  fill(batch.span_starts, first_keys);
  std::vector<std::int64_t> counted;
  for (auto at = targets.begin(); at != targets.end(); at += batch.seq_len) {
    counted.push_back(batch.seq_len - std::count(at, at + batch.seq_len, no_target));
  }
  return counted;
}

}  // namespace lyceum
