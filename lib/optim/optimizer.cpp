#include "optim/optimizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/tensor_kernels.h"
#include "optim/tensor_digest.h"

namespace lyceum {

namespace {

std::vector<UnitShare> shares_where(std::span<const UnitShare> shares, bool trained) {
  std::vector<UnitShare> chosen;
  std::ranges::copy_if(shares, std::back_inserter(chosen),
                       [&](const UnitShare& share) { return share.unit->trained() == trained; });
  return chosen;
}

std::vector<UpdatedShare> with_states(const Stream& stream, std::span<const UnitShare> shares, std::size_t states) {
  std::vector<UpdatedShare> updated;
  for (const UnitShare& share : shares) {
    const DType type = share.gradients.dtype();
    const auto flat = [&] { return Tensor::zeros(stream, type, {share.updated.count}, MemoryKind::optimizer); };
    UpdatedShare one{.share = share, .master = share.values.dtype() == type ? share.values : flat(), .states = {}};
    for (std::size_t s = 0; s < states; ++s) one.states.push_back(flat());
    updated.push_back(std::move(one));
  }
  return updated;
}

}  // namespace

Optimizer::Optimizer(const OptimConfig& config, Stream stream, std::vector<UnitShare> shares, bool watched)
    : config_(config),
      stream_(std::move(stream)),
      shares_(shares_where(shares, true)),
      untrained_(shares_where(shares, false)),
      updated_(with_states(stream_, shares_, update_rule(config).states.size())),
      frozen_elements_(updated_),
      watched_(watched),
      rule_(update_rule(config).make(config, stream_, updated_, watched)) {
  renew_digests();
}

void Optimizer::update(std::span<const StepVerdict> verdict, const NormSums& norms, const Tensor& sums) const {
  rule_->launch({.verdict = verdict,
                 .weight_offsets = norms.offsets(0),
                 .update_offsets = norms.offsets(1),
                 .sums = sums.span<double>()});
}

void Optimizer::adopt_weights() {
  for (const UpdatedShare& updated : updated_) {
    if (updated.master.dtype() != updated.share.values.dtype()) convert(stream_, updated.share.values, updated.master);
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
    const bool frozen = share.unit->role() == ParameterUnit::Role::frozen;
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
