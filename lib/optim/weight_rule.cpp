#include "optim/weight_rule.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "kernels/muon.h"
#include "model/model_tensors.h"

namespace lyceum {

namespace {

constexpr std::array<std::string_view, AdamW::states> adamw_states{"exp_avg", "exp_avg_sq"};
constexpr std::array<std::string_view, Muon::states> muon_states{"momentum"};
constexpr std::array<std::string_view, 2> block_tensors{"model/layers/", "model/mtp/"};

std::int64_t bytes(DType type) { return static_cast<std::int64_t>(size_of(type)); }

}  // namespace

std::span<const std::string_view> states_of(WeightRule rule) {
  if (rule == WeightRule::muon) return muon_states;
  return adamw_states;
}

RuleAssignment::RuleAssignment(const OptimConfig& optim)
    : muon_(optim.rule == UpdateRuleName::muon), scales_heads_(optim.qk_clip > 0) {
  if (muon_) adamw_only_ = whole_tensor_patterns("optim.adamw_only", optim.adamw_only);
}

WeightRule RuleAssignment::rule_of(const std::string& name, const Shape& shape) const {
  const bool matrix_of_block =
      shape.rank() == 2 && std::ranges::any_of(block_tensors, [&](auto prefix) { return name.starts_with(prefix); });
  if (!muon_ || !matrix_of_block) return WeightRule::adamw;
  return matches_any(adamw_only_, name) ? WeightRule::adamw : WeightRule::muon;
}

void require_ruled_tensors(const Config& config) {
  std::vector<TensorPattern> unused = RuleAssignment(config.optim).adamw_only();
  if (unused.empty()) return;
  for (const ModelTensor& tensor : model_tensors(config)) {
    std::erase_if(unused, [&](const TensorPattern& pattern) { return pattern.matches(tensor.name); });
  }
  require_usage(unused.empty(),
                "optim.adamw_only: no tensor of the model has this name: {}; docs/checkpoints.md lists the names",
                text_of(unused));
}

namespace {

/// Divides the ranges where elements of heads begin and end.
std::vector<UpdateRange> with_heads(std::span<const UpdateRange> ranges, const ParameterUnit& unit) {
  std::vector<UpdateRange> divided;
  std::int64_t begin = 0;
  for (const UpdateRange& whole : ranges) {
    const auto append = [&](std::int64_t end, const HeadScaling& heads) {
      if (end > begin) divided.push_back({end, whole.decays, whole.rule, heads});
      begin = std::max(begin, end);
    };
    for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
      for (const auto& [range, scaling] : unit.parameters()[p]->heads) {
        const Range part = common({unit.first_of(p) + range.first, range.count}, {begin, whole.end - begin});
        if (part.count == 0) continue;
        HeadScaling heads = scaling;
        heads.begin += unit.first_of(p);
        append(part.first, {});
        append(part.end(), heads);
      }
    }
    append(whole.end, {});
  }
  return divided;
}

}  // namespace

std::vector<UpdateRange> update_ranges(const RuleAssignment& rules, const ParameterUnit& unit) {
  std::vector<RuleRange> by_rule;  // of each slice, up to the next one
  for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
    for (const ParameterSlice& slice : unit.parameters()[p]->slices) {
      const std::int64_t first = by_rule.empty() ? 0 : unit.first_of(p) + slice.first;
      if (!by_rule.empty()) by_rule.back().range.count = first - by_rule.back().range.first;
      by_rule.push_back({{first, 0}, rules.rule_of(slice.name, slice.shape)});
    }
  }
  if (!by_rule.empty()) by_rule.back().range.count = unit.size() - by_rule.back().range.first;
  std::vector<UpdateRange> ranges;
  std::int64_t begin = 0;
  for (const DecayRange& decay : decay_ranges(unit)) {
    for (const RuleRange& ruled : by_rule) {
      const Range part = common(ruled.range, {begin, decay.end - begin});
      if (part.count == 0) continue;
      const bool like = !ranges.empty() && ranges.back().decays == decay.decays && ranges.back().rule == ruled.rule;
      if (!like) ranges.push_back({part.end(), decay.decays, ruled.rule});
      ranges.back().end = part.end();
    }
    begin = decay.end;
  }
  return rules.scales_heads() ? with_heads(ranges, unit) : ranges;
}

std::vector<RuleRange> rule_ranges(std::span<const UpdateRange> updates, const Range& range) {
  std::vector<RuleRange> ranges;
  std::int64_t begin = 0;
  for (std::size_t u = 0; u < updates.size(); ++u) {
    const std::int64_t end = u + 1 < updates.size() ? updates[u].end : std::max(range.end(), updates[u].end);
    const Range part = common({begin, end - begin}, range);
    begin = end;
    if (part.count == 0) continue;
    if (!ranges.empty() && ranges.back().rule == updates[u].rule) {
      ranges.back().range.count += part.count;
    } else {
      ranges.push_back({part, updates[u].rule});
    }
  }
  return ranges;
}

std::int64_t elements_with_state(std::span<const RuleRange> ranges, std::size_t state) {
  std::int64_t elements = 0;
  for (const RuleRange& each : ranges) elements += states_of(each.rule).size() > state ? each.range.count : 0;
  return elements;
}

DType state_type(const OptimConfig& optim, DType type) {
  return optim.moments == MomentType::bf16 ? DType::bf16 : accumulator_of(type);
}

std::int64_t state_bytes(WeightRule rule, const OptimConfig& optim, DType type) {
  const DType sums = accumulator_of(type);
  return bytes(state_type(optim, type)) * std::ssize(states_of(rule)) + (type == sums ? 0 : bytes(sums));
}

std::int64_t average_bytes(const OptimConfig& optim, DType type) {
  return optim.ema > 0 ? bytes(accumulator_of(type)) : 0;
}

std::int64_t update_bytes(WeightRule rule, const OptimConfig& optim, DType type) {
  const DType sums = accumulator_of(type);
  const std::int64_t states = bytes(state_type(optim, type));
  // Reads gradient, master and states; writes master, states and weight.
  const std::int64_t update =
      3 * bytes(sums) + 2 * states * std::ssize(states_of(rule)) + (type == sums ? 0 : bytes(type));
  // The first half of a step reads and writes gradient and momentum; packing and unpacking do so once more.
  return rule == WeightRule::muon ? update + 4 * bytes(sums) + 2 * states + 2 * bytes(type) : update;
}

}  // namespace lyceum
