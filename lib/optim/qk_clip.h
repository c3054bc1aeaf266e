#pragma once

#include <cstdint>
#include <span>

#include "config/config.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "model/attention/logits.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/norm_sums.h"

namespace lyceum {

/// QK-clip [Kimi K2, section 2.1]: limits attention logits to optim.qk_clip by scaling the weights of queries and keys
/// after an update. kernels/qk_clip.h has the formula, HeadScaling the weights.
class QkClip {
 public:
  /// `logits` must outlive the object.
  QkClip(const Config& config, const Mesh& mesh, const Stream& stream, const AttentionLogits& logits);
  /// Collective over mesh.data. Returns the factors of this rank's heads in all blocks (QkClipFactors::factors), in
  /// device memory. Replaces AttentionLogits::largest() by the maxima over the data ranks, from which the factors are
  /// computed. The host does not wait.
  std::span<const double> factors() const;

  /// Returns the number of key heads of a rank.
  static std::int64_t key_heads(const ModelConfig& model, int tensor_ranks);
  /// Returns the all-reduce of factors(), for cost estimates.
  static NormSums::Exchange exchange(const Config& config, int tensor_ranks) {
    return {Axis::data, AttentionLogits::count(config, tensor_ranks)};
  }
  /// Returns the bytes of device memory that the object and its logits keep, for cost estimates.
  static std::int64_t bytes(const Config& config, int tensor_ranks);

 private:
  const Mesh& mesh_;
  Stream stream_;
  const AttentionLogits& logits_;
  double threshold_;
  std::int64_t group_;  // query heads per key head
  Tensor factors_;
};

}  // namespace lyceum
