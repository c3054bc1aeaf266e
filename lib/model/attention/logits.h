#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// The largest scaled attention logit, q·k · scale before the softmax, of each head in the passes of a step on this
/// rank. Masked pairs of tokens and sinks do not count, and NaNs are ignored.
class AttentionLogits {
 public:
  /// True if the model has such logits: its attention is a softmax, and no mixture of experts.
  static bool exist(const ModelConfig& model);
  /// Returns the number of logits of a rank, for cost estimates.
  static std::int64_t count(const Config& config, int tensor_ranks);
  /// Returns the bytes of device memory that an object keeps, for cost estimates.
  static std::int64_t bytes(const Config& config, int tensor_ranks) {
    return 2 * count(config, tensor_ranks) * static_cast<std::int64_t>(sizeof(double));
  }

  /// Throws an Error if the model has no such logits.
  AttentionLogits(const Config& config, const Mesh& mesh, const Stream& stream);
  /// Sets all logits to −∞. Call before the passes of a step, whose batches have largest() as
  /// TokenBatch::attention_logits.
  void reset() const;
  /// Returns the logits: f64 [all_blocks(), heads of this rank], −∞ for blocks of other pipeline stages.
  const Tensor& largest() const { return largest_; }
  /// Collective over `world`, all ranks of the mesh. Returns the largest logit of each block of the model over all
  /// heads and ranks, [model.layers]. Waits for the device.
  std::vector<double> by_block(const ProcessGroup& world) const;

 private:
  Stream stream_;
  std::int64_t blocks_;  // model.layers
  Tensor largest_;
  Tensor lowest_;  // as largest_: −∞
};

/// Returns the logits of one block, f64 [heads of this rank], as views of `all`, see AttentionLogits::largest().
/// Undefined if `all` is.
Tensor logits_of_block(const Tensor& all, std::int64_t layer);

}  // namespace lyceum
