#include "train/samples.h"

#include <vector>

#include "core/copy.h"

namespace lyceum {

Transformer::Batch empty_batch(const Stream& stream, std::int64_t sequences, std::int64_t seq_len, bool reads) {
  const auto tokens = [&] {
    return !reads ? Tensor() : Tensor::empty(stream, DType::i32, {sequences * seq_len}, MemoryKind::buffers);
  };
  return {.inputs = tokens(), .targets = tokens(), .sequences = sequences, .seq_len = seq_len};
}

void load(const Stream& stream, const Samples& samples, std::int64_t vocab, const Transformer::Batch& batch) {
  const ProfileScope timed(profile_of(stream), "load batch");
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch.tokens())), targets(inputs.size());
  samples.loader->load(samples.first, samples.count, vocab, inputs, targets);
  copy_to_device(stream, batch.inputs.span<std::int32_t>(), std::span<const std::int32_t>(inputs));
  copy_to_device(stream, batch.targets.span<std::int32_t>(), std::span<const std::int32_t>(targets));
}

}  // namespace lyceum
