#include "optim/optimizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/tensor_kernels.h"
#include "kernels/weight_average.h"
#include "optim/tensor_digest.h"
#include "optim/update_tables.h"

namespace lyceum {

namespace {

std::vector<UnitShare> shares_where(std::span<const UnitShare> shares, bool trained) {
  std::vector<UnitShare> chosen;
  std::ranges::copy_if(shares, std::back_inserter(chosen),
                       [&](const UnitShare& share) { return share.unit->trained() == trained; });
  return chosen;
}

/// Divides a share's updated range by rule, with views of the states that the rules keep.
std::vector<UpdatedShare::Part> parts_of(std::span<const RuleRange> ranges, std::span<const Tensor> states) {
  std::vector<UpdatedShare::Part> parts;
  std::vector<std::int64_t> next(states.size());
  for (const auto& [range, rule] : ranges) {
    UpdatedShare::Part& part = parts.emplace_back(UpdatedShare::Part{range, rule, {}});
    for (std::size_t s = 0; s < states_of(rule).size(); ++s) {
      part.states.push_back(states[s].slice(std::exchange(next[s], next[s] + range.count), range.count));
    }
  }
  return parts;
}

std::vector<UpdatedShare> with_states(const OptimConfig& config, const Stream& stream,
                                      std::span<const UnitShare> shares) {
  const RuleAssignment rules(config);
  std::vector<UpdatedShare> updated;
  for (const UnitShare& share : shares) {
    const DType type = share.gradients.dtype();
    const auto flat = [&](std::int64_t count) { return Tensor::zeros(stream, type, {count}, MemoryKind::optimizer); };
    const DType state = state_type(config, type);
    const std::vector<RuleRange> ranges = rule_ranges(update_ranges(rules, *share.unit), share.updated);
    UpdatedShare one{.share = share,
                     .master = share.values.dtype() == type ? share.values : flat(share.updated.count),
                     .states = {},
                     .parts = {}};
    if (config.ema > 0) one.average = flat(share.updated.count);
    for (std::size_t s = 0; s < UpdateTables::states; ++s) {
      one.states.push_back(Tensor::zeros(stream, state, {elements_with_state(ranges, s)}, MemoryKind::optimizer));
    }
    one.parts = parts_of(ranges, one.states);
    updated.push_back(std::move(one));
  }
  return updated;
}

}  // namespace

Optimizer::Optimizer(const OptimConfig& config, const Mesh& mesh, Stream stream, std::vector<UnitShare> shares,
                     const OptimizerOptions& options)
    : config_(config),
      stream_(std::move(stream)),
      shares_(shares_where(shares, true)),
      untrained_(shares_where(shares, false)),
      updated_(with_states(config, stream_, shares_)),
      frozen_elements_(updated_),
      watched_(options.watched),
      rule_(make_update_rule({.config = config,
                              .mesh = mesh,
                              .stream = stream_,
                              .shares = updated_,
                              .watched = options.watched,
                              .seed = options.seed})) {
  renew_digests();
}

void Optimizer::update(std::span<const StepVerdict> verdict, const NormSums& norms, const Tensor& sums,
                       std::span<const double> head_factors) const {
  rule_->launch({.verdict = verdict,
                 .weight_offsets = norms.offsets(0),
                 .update_offsets = norms.offsets(1),
                 .sums = sums.span<double>(),
                 .head_factors = head_factors});
  for (const UpdatedShare& updated : updated_) {
    if (!updated.average.defined()) continue;
    dispatch_accumulator(updated.master.dtype(), [&]<class A>() {
      launch(stream_, AverageWeights<A>{.weights = updated.master.span<A>(),
                                        .average = updated.average.span<A>(),
                                        .decay = config_.ema,
                                        .verdict = verdict});
    });
  }
}

void Optimizer::adopt_weights() {
  for (const UpdatedShare& updated : updated_) {
    if (updated.master.dtype() != updated.share.values.dtype()) convert(stream_, updated.share.values, updated.master);
    if (updated.average.defined()) convert(stream_, updated.master, updated.average);
  }
  renew_digests();
}

void Optimizer::renew_digests() {
  rule_->check_digests(true);
  frozen_digests_ = frozen_digests();
}

std::vector<std::uint64_t> Optimizer::frozen_digests() const {
  std::vector<std::uint64_t> digests;
  if (!watched_) return digests;
  for (const UnitShare& share : untrained_) {
    const bool frozen = share.unit->role() != ParameterUnit::Role::buffer;
    digests.push_back(frozen ? digest_of(stream_, share.values) : 0);
  }
  return digests;
}

std::string Optimizer::find_frozen_damage() const {
  const std::vector<std::uint64_t> now = frozen_digests();
  const auto [before, after] = std::ranges::mismatch(frozen_digests_, now);
  if (before == frozen_digests_.end()) return {};
  return "parameters of " + untrained_[static_cast<std::size_t>(before - frozen_digests_.begin())].unit->name() +
         ", which are frozen, changed in memory";
}

std::string Optimizer::damage_seen_by_updates() const {
  const std::optional<UpdateRule::Damage> damage = rule_->damage();
  if (!damage) return {};
  const UnitShare& share = shares_[damage->share];
  return "weights or moments changed in memory between two updates: " +
         describe_range(*share.unit,
                        common({share.updated.first + damage->block * flat_block, flat_block}, share.updated));
}

std::string Optimizer::find_damage() const {
  rule_->check_digests(false);
  const std::string trained = damage_seen_by_updates();
  return trained.empty() ? find_frozen_damage() : trained;
}

}  // namespace lyceum
