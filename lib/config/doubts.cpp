#include "config/doubts.h"

#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "config/continuation.h"
#include "config/keys.h"
#include "config/training_stages.h"

namespace lyceum {

namespace {

/// True if the copies of a sample (model.consistency) are computed differently.
bool differ_in_copies(const Config& config) {
  using enum RouterKind;
  const bool has_experts = config.moe.experts > 0 || config.model.attention == AttentionKind::experts;
  const bool draws = config.moe.router == noisy || config.moe.router == uniform;
  const bool is_even = config.moe.even_routing && (has_experts || chooses_sub_dimensions(config.sub_dimensions));
  return config.model.dropout.rate > 0 || (has_experts && draws) || is_even;
}

/// Returns ineffective_keys() of one stage, whose configurations these are.
std::vector<std::string> ineffective_in_stage(const Config& given, const Config& resolved) {
  constexpr std::array<std::string_view, 11> left_out{
      "attention_experts.count_of_layers", "attention_experts.gates", "balance.device_groups", "model.ffn_hidden",
      "model.window_layers", "moe.expert_sizes", "moe.experts_of_layers", "moe.gates",
      // schedule_warnings() reports these
      "optim.decay_steps", "optim.min_lr", "optim.warmup_from"};
  Config initial, own = given, derived = resolved, simple = effective(resolved);
  const ConfigKeys defaults = keys_of(initial), before = keys_of(own), after = keys_of(derived), left = keys_of(simple);
  std::vector<std::string> names;
  for (std::size_t k = 0; k < defaults.size(); ++k) {
    const std::string normal = defaults[k].setting.text();
    const bool is_left_out = std::ranges::find(left_out, defaults[k].name) != left_out.end();
    const bool is_set = before[k].setting.text() != normal && after[k].setting.text() != normal;
    if (is_set && !is_left_out && left[k].setting.text() == normal) names.push_back(defaults[k].name);
  }
  return names;
}

/// Returns the doubts about the values of one stage, whose resolved configuration this is.
std::vector<std::string> doubts_of_stage(const Config& resolved) {
  std::vector<std::string> all;
  const auto doubt = [&](bool is, std::string text) {
    if (is) all.push_back(std::move(text));
  };
  const MoeConfig& moe = resolved.moe;
  doubt(effective(resolved).moe.experts > 0 && has_scores(moe.router) && moe.top_k == 1 && moe.top_k_start <= 1 &&
            gates_of(moe) == Gates::renormalized,
        "moe.gates = renormalized with moe.top_k = 1: every gate is 1, so the loss of the tokens does not train the "
        "router; set moe.gates = raw or detached");
  doubt(resolved.model.consistency > 0 && !differ_in_copies(resolved),
        "model.consistency with equal copies of each sample: set model.dropout, moe.router = noisy or uniform, or "
        "model.consistency = 0");
  doubt(!(resolved.model.init_std > 0),
        "model.init_std = 0: the weights begin as zeros, and no gradient reaches most of them");
  const OptimConfig& optim = resolved.optim;
  doubt(optim.lr * optim.weight_decay >= 1,
        fmt::format("optim.lr * optim.weight_decay = {:.3g}: each step changes the sign of the weights; set "
                    "optim.weight_decay below {:.3g}",
                    optim.lr * optim.weight_decay, 1 / optim.lr));
  return all;
}

}  // namespace

std::vector<std::string> ineffective_keys(const Config& given, const Config& resolved) {
  std::vector<std::string> names = ineffective_in_stage(config_of_stage(given, 1), config_of_stage(resolved, 1));
  for (int stage = 2; stage <= stage_count(resolved); ++stage) {
    const std::vector<std::string> own =
        ineffective_in_stage(config_of_stage(given, stage), config_of_stage(resolved, stage));
    std::erase_if(names, [&](const std::string& name) { return std::ranges::find(own, name) == own.end(); });
  }
  return names;
}

std::vector<std::string> doubts(const Config& given, const Config& resolved) {
  std::vector<std::string> all;
  const std::vector<std::string> without_effect = ineffective_keys(given, resolved);
  if (!without_effect.empty()) {
    all.push_back(fmt::format("no effect with the other keys: {}", boost::algorithm::join(without_effect, ", ")));
  }
  for (int stage = 1; stage <= stage_count(resolved); ++stage) {
    for (std::string& text : doubts_of_stage(config_of_stage(resolved, stage))) {
      if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
    }
  }
  return all;
}

}  // namespace lyceum
