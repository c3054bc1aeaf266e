#include "convert/transforms/insertion_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "config/router_penalty.h"
#include "model/routing/mixture.h"
#include "model/routing/router.h"
#include "model/sublayer_tensor.h"

namespace lyceum {

namespace {

/// Returns the optim.train_only that trains only the inserted experts and their routers' rows.
std::string training_text(const Config& config, Site site, const ExpertOrigins& origins) {
  std::map<std::int64_t, std::vector<std::size_t>> layers;  // layers by their number of old experts
  std::size_t routing = 0;
  std::int64_t count = 0, old_of_modules = -1;
  for (const auto& [layer, experts] : origins) {
    const std::int64_t fresh = std::ranges::count(experts, new_expert), old = std::ssize(experts) - fresh;
    if (layer >= config.model.layers) {
      if (fresh > 0) old_of_modules = old;
      continue;
    }
    ++routing;
    if (fresh == 0) continue;
    count = fresh;
    layers[old].push_back(static_cast<std::size_t>(layer));
  }
  std::vector<std::string> patterns;
  const auto add = [&](const std::string& block, std::int64_t some_layer, std::int64_t first) {
    const std::string prefix = half_prefix(block, site) + "/";
    for (std::int64_t e = first; e < first + count; ++e) patterns.push_back(prefix + expert_tensor_name(e, "*"));
    const Mixture mixture = experts_at(config, {some_layer, site}).value();
    for (const SublayerTensor& tensor : router_tensors(config, mixture)) {
      if (tensor.trained && tensor.rows_are_choices) {
        patterns.push_back(fmt::format("{}{}[{}:]", prefix, tensor.name, first));
      }
    }
  };
  for (const auto& [first, numbers] : layers) {
    const bool all = numbers.size() == routing;
    if (all) add(any_block_prefix, static_cast<std::int64_t>(numbers.front()), first);
    for (const std::size_t layer : all ? std::vector<std::size_t>{} : numbers) {
      add(block_prefix(static_cast<std::int64_t>(layer)), static_cast<std::int64_t>(layer), first);
    }
  }
  if (old_of_modules >= 0) add(any_module_prefix, config.model.layers, old_of_modules);
  return fmt::format("To train only the new tensors and rows: optim.train_only = {}", fmt::join(patterns, ","));
}

/// Returns the keys of optim.router_penalty with which it applies only to the new rows; empty if routers train no
/// matrix. The penalty is ModuleFormer's.
std::string penalty_text(const Config& config, Site site, const ExpertOrigins& origins) {
  if (config.moe.router == RouterKind::random || config.moe.router == RouterKind::uniform) return {};
  std::set<std::int64_t> firsts;  // numbers of old experts in the layers that have new ones
  std::int64_t others = 0;        // largest number of experts in the layers that have none
  for (const auto& [layer, experts] : origins) {
    const std::int64_t old = std::ssize(experts) - std::ranges::count(experts, new_expert);
    if (old < std::ssize(experts)) {
      firsts.insert(old);
    } else {
      others = std::max(others, old);
    }
  }
  if (firsts.size() != 1 || others > *firsts.begin()) {
    return "optim.router_penalty would also apply to old rows: the layers had different numbers of experts";
  }
  std::string keys = "To keep the new rows of routers small, also: optim.router_penalty = 0.25";
  const auto add = [&](const char* key, std::int64_t row) { keys += fmt::format(", {} = {}", key, row); };
  const bool ffn = site == Site::ffn;
  const std::int64_t first = *firsts.begin(), of_other = router_rows(config, ffn ? Site::attention : Site::ffn);
  // Starting after the last row of the other half's routers, the penalty applies to none of them.
  if (ffn || of_other > 0) add("optim.router_penalty_from", ffn ? first : of_other);
  if (!ffn || of_other > 0) add("optim.router_penalty_from_attention", ffn ? of_other : first);
  return keys;
}

}  // namespace

std::vector<std::string> insertion_notes(const Config& config, Site site, const ExpertOrigins& origins) {
  std::vector<std::string> notes{training_text(config, site, origins)};
  if (std::string penalty = penalty_text(config, site, origins); !penalty.empty()) notes.push_back(std::move(penalty));
  return notes;
}

}  // namespace lyceum
