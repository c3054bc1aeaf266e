#include "model/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "core/error.h"

namespace lyceum {

namespace {

struct Parameters {
  double dense, replicated, expert;
};

/// Parameters of a rank, by the ranks that hold copies: the mean over pipeline stages and over the ranks that share out
/// the matrices, which some rank reaches.
Parameters parameters_of_rank(const Config& config) {
  const ModelConfig& model = config.model;
  const MoeConfig& moe = config.moe;
  const auto hidden = static_cast<double>(model.hidden), layers = static_cast<double>(model.layers);
  const double dense_layers =
      moe.experts ? static_cast<double>(std::min(model.first_dense_layers, model.layers)) : layers;
  const double moe_layers = layers - dense_layers;
  const double heads = static_cast<double>(model.heads) + static_cast<double>(model.kv_heads);
  const double attention = 2 * hidden * heads * static_cast<double>(model.head_dim);
  const double tables = (model.tie_embeddings ? 1 : 2) * static_cast<double>(model.vocab) * hidden;
  const auto experts = static_cast<double>(moe.experts), expert_hidden = static_cast<double>(moe.expert_hidden);
  const double widths = moe.expert_sizes.empty()
                            ? experts * expert_hidden
                            : std::accumulate(moe.expert_sizes.begin(), moe.expert_sizes.end(), 0.0);
  const double shared = static_cast<double>(moe.shared_experts) * expert_hidden;
  const auto ffn = [hidden](double width) { return 3 * hidden * width; };  // gate, up, down
  const double whole = hidden + layers * 2 * hidden + moe_layers * experts * hidden;
  const double dense = tables + layers * attention + dense_layers * ffn(static_cast<double>(model.ffn_hidden)) +
                       moe_layers * ffn(shared);
  const ParallelConfig& parallel = config.parallel;
  const double stages = parallel.pipeline, expert_ranks = static_cast<double>(parallel.expert) * parallel.expert_tensor;
  return {.dense = dense / parallel.tensor / stages,
          .replicated = whole / stages,
          .expert = moe_layers * ffn(widths) / expert_ranks / stages};
}

std::string bytes_text(double bytes) {
  constexpr std::array units{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string ways_out(const MemoryNeed& need, const Config& config) {
  if (2 * need.activations > need.total()) return "lower batch.micro, batch.seq_len or model.vocab";
  const std::string smaller = "make the model smaller (model.hidden, model.layers, model.vocab)";
  if (!config.moe.experts) return "raise parallel.tensor over more machines, or " + smaller;
  return "raise parallel.expert or parallel.tensor over more machines, or " + smaller;
}

}  // namespace

MemoryNeed least_memory(const Config& config, int world, bool train) {
  const Parameters parameters = parameters_of_rank(config);
  const ParallelConfig& parallel = config.parallel;
  const double stage = std::max(1.0, static_cast<double>(world) / parallel.pipeline);
  const double copies = std::max(1.0, stage / parallel.tensor);
  const double expert_copies = std::max(1.0, stage / (parallel.expert * parallel.expert_tensor));
  /// Parameters that a rank holds of what is shared out among copies from this ZeRO stage on.
  const auto held = [&](int from) {
    const bool shared = train && parallel.zero >= from;
    return parameters.dense / (shared ? copies : 1) + parameters.replicated / (shared ? stage : 1) +
           parameters.expert / (shared ? expert_copies : 1);
  };
  const bool bf16 = config.run.precision == "bf16";
  const double element = bf16 ? 2 : 4;
  if (!train) return {.weights = element * held(3)};
  const double tokens = static_cast<double>(config.batch.micro) * static_cast<double>(config.batch.seq_len);
  const double tensor = parallel.tensor, runs = parallel.sequence ? tensor : 1;
  const double kept = (static_cast<double>(config.model.vocab) / tensor +
                       static_cast<double>(config.model.layers) * static_cast<double>(config.model.hidden) / runs) /
                      parallel.pipeline;
  return {.weights = element * held(3),
          .gradients = 4 * held(2),
          .optimizer = (bf16 ? 12 : 8) * held(1),  // two moments; bf16: f32 masters too
          .activations = element * tokens * kept};
}

void require_fits(const MemoryNeed& need, const Config& config, double available, int ranks) {
  require_usage(need.total() <= available,
                "this takes at least {} a rank (weights {}, gradients {}, optimizer {}, activations {}) of the {} that "
                "this machine has for each of its {} ranks: {}",
                bytes_text(need.total()), bytes_text(need.weights), bytes_text(need.gradients),
                bytes_text(need.optimizer), bytes_text(need.activations), bytes_text(available), ranks,
                ways_out(need, config));
}

}  // namespace lyceum
