#include "model/activations.h"

#include <numeric>

#include "model/expert_places.h"

namespace lyceum {

namespace {

/// Elements in the working type, and bytes of what is in accumulator precision or an index whatever that type is.
struct Kept {
  double elements = 0, bytes = 0;
  Kept& operator+=(const Kept& other) {
    elements += other.elements;
    bytes += other.bytes;
    return *this;
  }
};

struct Widths {
  explicit Widths(const Config& config)
      : hidden(static_cast<double>(config.model.hidden)),
        tensor(config.parallel.tensor),
        runs(config.parallel.sequence ? tensor : 1),
        cheap(config.model.recompute == "selective" ? 0 : 1) {}
  double hidden, tensor;
  double runs;   // among how many ranks a token lies between matrices
  double cheap;  // whether what is cheap to make again is kept
};

/// Both norms' inputs with their root mean squares; what attention's matrices and its core read.
Kept of_attention(const ModelConfig& model, const Widths& widths) {
  const auto dim = static_cast<double>(model.head_dim), heads = static_cast<double>(model.heads) / widths.tensor;
  const double keys = 2 * static_cast<double>(model.kv_heads) / widths.tensor;
  return {
      .elements = 2 * widths.hidden / widths.runs + (heads + keys) * dim + widths.cheap * (widths.hidden + heads * dim),
      .bytes = 4 * (heads + 2 / widths.runs)};
}

/// A dense FFN, or the shared experts: the norm's result and gate | up.
Kept of_ffn(double width, const Widths& widths) {
  return {.elements = widths.cheap * widths.hidden + 2 * width / widths.tensor};
}

/// Scores, choices, gates; k dispatched rows, their gate | up, and k answers.
Kept of_experts(const Config& config, const Widths& widths) {
  const MoeConfig& moe = config.moe;
  const std::vector<std::int64_t> each = expert_widths(moe);
  const auto k = static_cast<double>(moe.top_k), experts = static_cast<double>(moe.experts);
  const double mean = static_cast<double>(std::accumulate(each.begin(), each.end(), std::int64_t{0})) / experts;
  const double rows = widths.cheap * config.parallel.expert_tensor * widths.hidden + 2 * mean + widths.hidden;
  return {.elements = k * rows / widths.tensor,
          .bytes = (4 * experts + 8 * k + (moe.renormalize ? 4 : 0)) / widths.tensor};
}

}  // namespace

double kept_bytes_per_token(const Config& config, std::int64_t layer) {
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  const double element = config.run.precision == "bf16" ? 2 : 4;
  const Widths widths(config);
  if (model.recompute == "full") return element * widths.hidden / widths.runs;
  Kept kept = of_attention(model, widths);
  const auto shared = static_cast<double>(moe.shared_experts * moe.expert_hidden);
  if (!has_experts(config, layer)) {
    const bool all_shared = layer >= model.first_dense_layers && shared > 0;
    kept += of_ffn(all_shared ? shared : static_cast<double>(model.ffn_hidden), widths);
  } else {
    kept += of_experts(config, widths);
    if (moe.shared_experts > 0) kept += of_ffn(shared, widths);
    // The router reads the norm's result as well: the shared experts' own, but for that which lies in runs.
    if (moe.shared_experts == 0 || widths.runs > 1) kept.elements += widths.cheap * widths.hidden / widths.runs;
  }
  return element * kept.elements + kept.bytes;
}

}  // namespace lyceum
