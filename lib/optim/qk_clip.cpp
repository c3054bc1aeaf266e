#include "optim/qk_clip.h"

#include "kernels/qk_clip.h"

namespace lyceum {

namespace {

std::int64_t factor_count(const Config& config, int tensor_ranks) {
  return 2 * all_blocks(config) * QkClip::key_heads(config.model, tensor_ranks);
}

}  // namespace

QkClip::QkClip(const Config& config, const Mesh& mesh, const Stream& stream, const AttentionLogits& logits)
    : mesh_(mesh),
      stream_(stream),
      logits_(logits),
      threshold_(config.optim.qk_clip),
      group_(config.model.heads / key_heads(config.model, 1)),
      factors_(Tensor::empty(stream, DType::f64, {factor_count(config, mesh.tensor.size())}, MemoryKind::buffers)) {}

std::span<const double> QkClip::factors() const {
  const Tensor& largest = logits_.largest();
  mesh_.data.all_reduce_async(largest, Reduction::max).wait();
  launch(stream_, QkClipFactors{.largest = largest.span<const double>(),
                                .group = group_,
                                .threshold = threshold_,
                                .factors = factors_.span<double>()});
  return factors_.span<const double>();
}

std::int64_t QkClip::key_heads(const ModelConfig& model, int tensor_ranks) {
  const bool latent = model.attention == AttentionKind::latent;  // each head has its own keys
  return (latent ? model.heads : model.kv_heads) / tensor_ranks;
}

std::int64_t QkClip::bytes(const Config& config, int tensor_ranks) {
  return AttentionLogits::bytes(config, tensor_ranks) +
         factor_count(config, tensor_ranks) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace lyceum
