#include "config/attention_experts.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "io/text/table.h"

namespace lyceum {

std::int64_t most_attention_experts(const Config& config) {
  const AttentionExpertsConfig& experts = config.attention_experts;
  if (config.model.attention != AttentionKind::experts) return 0;
  return experts.count_of_layers.empty() ? experts.count : std::ranges::max(experts.count_of_layers);
}

void declare_keys(ConfigKeys& keys, AttentionExpertsConfig& experts) {
  const KeySection key(keys, KeyRole::identity);
  key("attention_experts.count", &experts.count, {.low = 0, .high = 65536},
      "with model.attention = moa: number of experts, which share keys and values",
      {.other_names = {"attention_experts"}});  // moe.attention_experts in earlier versions
  key("attention_experts.top_k", &experts.top_k, {.low = 1}, "attention experts that a token chooses, by moe.router");
  key("attention_experts.count_of_layers", &experts.count_of_layers, {.low = 1, .high = 65536},
      "attention experts of each layer, if they differ; overrides count");
  key("attention_experts.gates", &experts.gates,
      "as moe.gates; auto: renormalized for a sigmoid, sqrt_softplus or uniform router, ones for hash, else detached");
}

void check_attention_experts(Findings& findings, const Config& config) {
  const AttentionExpertsConfig& experts = config.attention_experts;
  const bool mixture = config.model.attention == AttentionKind::experts;
  const std::vector<std::int64_t>& own = experts.count_of_layers;
  findings.unless(!mixture || experts.count != 0 || !own.empty(),
                  "model.attention = moa with no attention experts: set attention_experts.count");
  if (mixture && experts.count > 0 && own.empty()) {
    findings.unless(experts.top_k <= experts.count,
                    "attention_experts.top_k = {} is more than attention_experts.count = {}", experts.top_k,
                    experts.count);
  }
  if (mixture && !own.empty()) {
    findings.unless(std::ssize(own) == config.model.layers,
                    "attention_experts.count_of_layers lists {} numbers for model.layers = {}: give one per layer",
                    own.size(), config.model.layers);
    const auto fewest = std::ranges::min_element(own);
    findings.unless(experts.top_k <= *fewest, "attention_experts.top_k = {} is more than the {} of layer {}",
                    experts.top_k, count_text(*fewest, "attention expert"), fewest - own.begin());
  }
  findings.unless(mixture || own.empty(),
                  "attention_experts.count_of_layers without model.attention = moa: set both, or leave it out");
  findings.unless(
      mixture || experts.count == 0,
      "attention_experts.count = {} without model.attention = moa: set both, or attention_experts.count = 0",
      experts.count);
}

void simplify_attention_experts(Config& config) {
  AttentionExpertsConfig& experts = config.attention_experts;
  if (config.model.attention != AttentionKind::experts) experts = {};
  std::vector<std::int64_t>& own = experts.count_of_layers;
  if (own.empty()) return;
  experts.count = std::ranges::max(own);
  if (std::ranges::adjacent_find(own, std::ranges::not_equal_to()) == own.end()) own.clear();
}

}  // namespace lyceum
