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

namespace lyceum {

namespace {

/// True if the copies of a sample (model.consistency) are computed differently.
bool differ_in_copies(const Config& config) {
  using enum RouterKind;
  const bool has_router = config.moe.experts > 0 || config.model.attention == AttentionKind::experts;
  const bool draws = config.moe.router == noisy || config.moe.router == uniform || config.moe.even_routing;
  return config.model.dropout.rate > 0 || (has_router && draws);
}

}  // namespace

std::vector<std::string> ineffective_keys(const Config& given, const Config& resolved) {
  constexpr std::array<std::string_view, 4> lists{"attention_experts.count_of_layers", "model.window_layers",
                                                  "moe.expert_sizes", "moe.experts_of_layers"};
  Config initial, own = given, derived = resolved, simple = effective(resolved);
  const ConfigKeys defaults = keys_of(initial), before = keys_of(own), after = keys_of(derived), left = keys_of(simple);
  std::vector<std::string> names;
  for (std::size_t k = 0; k < defaults.size(); ++k) {
    const std::string normal = defaults[k].setting.text();
    const bool is_list = std::ranges::find(lists, defaults[k].name) != lists.end();
    const bool is_set = before[k].setting.text() != normal && after[k].setting.text() != normal;
    if (is_set && !is_list && left[k].setting.text() == normal) names.push_back(defaults[k].name);
  }
  return names;
}

std::vector<std::string> doubts(const Config& given, const Config& resolved) {
  std::vector<std::string> all;
  const auto doubt = [&](bool is, std::string text) {
    if (is) all.push_back(std::move(text));
  };
  const std::vector<std::string> without_effect = ineffective_keys(given, resolved);
  doubt(!without_effect.empty(),
        fmt::format("no effect with the other keys: {}", boost::algorithm::join(without_effect, ", ")));
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

}  // namespace lyceum
