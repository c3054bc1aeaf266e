#include "model/attention/logits.h"

#include <algorithm>
#include <limits>
#include <span>

#include "core/copy.h"
#include "core/device_table.h"
#include "core/error.h"
#include "kernels/tensor_kernels.h"

namespace lyceum {

bool AttentionLogits::exist(const ModelConfig& model) {
  return model.attention != AttentionKind::experts && model.attention_weights == AttentionWeights::softmax;
}

std::int64_t AttentionLogits::count(const Config& config, int tensor_ranks) {
  return all_blocks(config) * (config.model.heads / tensor_ranks);
}

AttentionLogits::AttentionLogits(const Config& config, const Mesh& mesh, const Stream& stream)
    : stream_(stream), blocks_(config.model.layers) {
  require(exist(config.model), "this attention has no logits of a softmax");
  const Shape shape{all_blocks(config), config.model.heads / mesh.tensor.size()};
  largest_ = Tensor::empty(stream, DType::f64, shape, MemoryKind::buffers);
  lowest_ = Tensor::empty(stream, DType::f64, shape, MemoryKind::buffers);
  const std::vector<double> lowest(static_cast<std::size_t>(shape.size()), -std::numeric_limits<double>::infinity());
  copy_to_device(stream, lowest_.span<double>(), std::span<const double>(lowest));
}

// A kernel rather than a copy from the host, so that a recorded step repeats it.
void AttentionLogits::reset() const { convert(stream_, lowest_, largest_); }

std::vector<double> AttentionLogits::by_block(const ProcessGroup& world) const {
  const std::vector<double> all = values_of<double>(stream_, largest_);
  const std::span values(all);
  const auto heads = static_cast<std::size_t>(largest_.shape()[1]);
  std::vector<double> largest;
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks_); ++block) {
    largest.push_back(std::ranges::max(values.subspan(block * heads, heads)));
  }
  world.all_reduce(std::span(largest), Reduction::max);
  return largest;
}

Tensor logits_of_block(const Tensor& all, std::int64_t layer) {
  return all.defined() ? all.view(layer * all.shape()[1], {all.shape()[1]}) : Tensor();
}

}  // namespace lyceum
