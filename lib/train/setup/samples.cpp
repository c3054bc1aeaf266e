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

namespace {

/// Repeats each run of `length` numbers, the last one first, so that all `copies` of a run are consecutive. `numbers`:
/// the runs at the front, followed by the space for the copies.
void repeat_runs(std::vector<std::int32_t>& numbers, std::int64_t length, std::int64_t copies) {
  const std::int64_t runs = std::ssize(numbers) / (length * copies);
  for (std::int64_t run = runs; copies > 1 && run-- > 0;) {
    for (std::int64_t copy = copies; copy-- > 0;) {
      const std::int64_t to = (run * copies + copy) * length;
      if (to != run * length) std::copy_n(numbers.begin() + run * length, length, numbers.begin() + to);
    }
  }
}

}  // namespace

std::vector<std::int64_t> load(const Stream& stream, const Samples& samples, std::int64_t vocab,
                               const TokenBatch& batch) {
  const ProfileScope timed(profile_of(stream), "load batch");
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch.tokens())), targets(inputs.size());
  const bool needs_keys = batch.first_keys.defined() || batch.span_starts.defined();
  std::vector<std::int32_t> first_keys(needs_keys ? inputs.size() : 0);
  require(samples.count * samples.copies == batch.sequences, "{} copies of {} samples do not fill {} sequences",
          samples.copies, samples.count, batch.sequences);
  const auto read = static_cast<std::size_t>(samples.count * batch.seq_len);
  samples.loader->load(samples.first, samples.count, vocab,
                       {.inputs = std::span(inputs).first(read),
                        .targets = std::span(targets).first(read),
                        .first_keys = std::span(first_keys).first(needs_keys ? read : 0)});
  for (std::vector<std::int32_t>* const numbers : {&inputs, &targets, &first_keys}) {
    repeat_runs(*numbers, batch.seq_len, samples.copies);
  }
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
