#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/copy.h"
#include "core/device_table.h"
#include "kernels/muon.h"
#include "optim/rounded_slices.h"
#include "optim/update_rule.h"

namespace lyceum {

/// The device tables of an update, see UpdateWeights: pointers to the memory of its shares, their spans, their slices
/// if states are rounded (optim.moments = bf16) and, if watched, the digests of their memory. The values of all shares
/// must have one type, and the memory of the shares must not move.
class UpdateTables {
 public:
  /// The largest number of states of a rule.
  static constexpr std::size_t states = AdamWOrMuon::states;

  explicit UpdateTables(const UpdateRuleInput& input)
      : stream_(input.stream),
        shares_(input.shares),
        seed_(input.seed),
        rounds_(input.config.moments == MomentType::bf16) {
    if (!input.shares.empty()) type_ = input.shares.front().share.values.dtype();
    dispatch([&]<class T, class S>() { fill<T, S>(input); });
    if (input.watched) digests_ = Tensor::zeros(stream_, DType::i32, {blocks_ + 1}, MemoryKind::optimizer);
  }

  /// Returns the bytes of the tables for `shares` shares with `spans` update ranges and, if states are rounded,
  /// `slices` slices in total. Does not include digests, see digest_bytes().
  static std::int64_t bytes(std::int64_t shares, std::int64_t spans, std::int64_t slices) {
    return shares * std::int64_t{sizeof(UpdatedTensor<float, states>)} + spans * std::int64_t{sizeof(UpdateSpan)} +
           slices * std::int64_t{sizeof(RoundedSlice)};
  }

  /// Launches one update of all shares. `number`: StateRounding::update.
  template <class Rule>
  void update(const Rule& rule, std::span<const std::int64_t> number, const UpdateRule::Launch& launched) const {
    dispatch([&]<class T, class S>() {
      launch(stream_, UpdateWeights<T, Rule, S>{.tensors = rows_of<UpdatedTensor<T, states, S>>(tensors_),
                                                .spans = rows_of<UpdateSpan>(spans_),
                                                .blocks = blocks_,
                                                .rule = rule,
                                                .verdict = launched.verdict,
                                                .weight_offsets = launched.weight_offsets,
                                                .update_offsets = launched.update_offsets,
                                                .sums = launched.sums,
                                                .digests = digests(),
                                                .head_factors = launched.head_factors,
                                                .rounding = rounding(number)});
    });
  }
  /// Launches UpdateMomentum. `number`: StateRounding::update.
  void update_momentum(double momentum, std::span<const std::int64_t> number,
                       std::span<const StepVerdict> verdict) const {
    dispatch([&]<class T, class S>() {
      launch(stream_, UpdateMomentum<T, S>{.tensors = rows_of<UpdatedTensor<T, states, S>>(tensors_),
                                           .spans = rows_of<UpdateSpan>(spans_),
                                           .blocks = blocks_,
                                           .momentum = momentum,
                                           .verdict = verdict,
                                           .digests = digests(),
                                           .rounding = rounding(number)});
    });
  }

  /// See UpdateRule::slices_renamed().
  void slices_renamed() const {
    if (!rounds_ || !slices_.defined()) return;
    std::vector<RoundedSlice> slices;
    for (const UpdatedShare& updated : shares_) append_slices(updated.share, slices);
    require(slices.size() * sizeof(RoundedSlice) == slices_.bytes(), "slices have changed their shapes");
    copy_to_device(stream_, slices_.raw(), slices.data(), slices_.bytes());
  }

  /// See UpdateRule::check_digests() and damage().
  void check_digests(bool renew) const {
    constexpr std::uint32_t none = 0;
    if (!digests_.defined()) return;
    if (renew) copy_to_device(stream_, digests().damaged.data(), &none, sizeof none);
    dispatch([&]<class T, class S>() {
      launch(stream_, CheckDigests<T, states, S>{.tensors = rows_of<UpdatedTensor<T, states, S>>(tensors_),
                                                 .spans = rows_of<UpdateSpan>(spans_),
                                                 .blocks = blocks_,
                                                 .digests = digests(),
                                                 .renew = renew});
    });
  }

  std::optional<UpdateRule::Damage> damage() const {
    if (!digests_.defined()) return std::nullopt;
    std::array<std::uint32_t, 1> found{};
    copy_to_host(stream_, found.data(), digests().damaged.data(), sizeof found);
    if (found[0] == 0) return std::nullopt;
    const std::int64_t block = blocks_ - static_cast<std::int64_t>(found[0]);
    std::size_t share = 0;
    while (share + 1 < first_block_.size() && first_block_[share + 1] <= block) ++share;
    return UpdateRule::Damage{.share = share, .block = block - first_block_[share]};
  }

 private:
  /// Calls f<T, S>() with the type of the weights and that of the states.
  template <class F>
  void dispatch(const F& f) const {
    dispatch_float(type_, [&]<class T>() {
      rounds_ ? f.template operator()<T, bfloat16>() : f.template operator()<T, Accumulator<T>>();
    });
  }

  template <class T, class S>
  void fill(const UpdateRuleInput& input) {
    using A = Accumulator<T>;
    const RuleAssignment rules(input.config);
    std::vector<UpdatedTensor<T, states, S>> tensors;
    std::vector<UpdateSpan> spans;
    std::vector<RoundedSlice> slices;
    for (const UpdatedShare& updated : input.shares) {
      const UnitShare& share = updated.share;
      UpdatedTensor<T, states, S> tensor{.master = updated.master.data<A>(),
                                         .state = {},
                                         .gradient = share.gradients.data<A>(),
                                         .weight = share.values.data<T>(),
                                         .count = share.updated.count,
                                         .first_block = blocks_,
                                         .first_span = std::ssize(spans)};
      for (std::size_t s = 0; s < states; ++s) tensor.state[s] = updated.states[s].template data<S>();
      if (rounds_) {
        tensor.first_slice = std::ssize(slices);
        append_slices(share, slices);
        tensor.slices = std::ssize(slices) - tensor.first_slice;
      }
      tensors.push_back(tensor);
      first_block_.push_back(blocks_);
      blocks_ += flat_blocks_of(share.updated.count);
      std::int64_t begin = 0, without = 0;
      for (const UpdateRange& range : update_ranges(rules, *share.unit)) {  // some may be outside the updated range
        const auto kept = static_cast<std::int32_t>(states_of(range.rule).size());
        spans.push_back({.end = range.end - share.updated.first,
                         .weight_decay = range.decays ? input.config.weight_decay : 0,
                         .rule = range.rule == WeightRule::muon ? muon_span : 0,
                         .states = kept,
                         .without = without,
                         .heads = range.heads});
        spans.back().heads.begin -= share.updated.first;
        if (kept == 1) without += common({begin, range.end - begin}, share.updated).count;
        begin = range.end;
      }
      if (share.unit->size() == 0) continue;
      require(spans.back().heads.period == 0, "the last elements of {} belong to heads", share.unit->name());
      spans.back().end = share.size - share.updated.first;  // include the padding
    }
    tensors_ = table_of(stream_, tensors);
    spans_ = table_of(stream_, spans);
    if (rounds_) slices_ = table_of(stream_, slices);
  }

  void append_slices(const UnitShare& share, std::vector<RoundedSlice>& slices) const {
    const std::vector<RoundedSlice> own = rounded_slices(seed_, *share.unit, share.updated.first);
    slices.insert(slices.end(), own.begin(), own.end());
  }

  StateRounding rounding(std::span<const std::int64_t> number) const {
    if (!rounds_) return {};
    return {.slices = rows_of<RoundedSlice>(slices_), .update = number};
  }

  UpdateDigests digests() const {
    if (!digests_.defined()) return {};
    const std::span all(reinterpret_cast<std::uint32_t*>(digests_.raw()), static_cast<std::size_t>(blocks_ + 1));
    return {.kept = all.first(all.size() - 1), .damaged = all.last(1)};
  }

  Stream stream_;
  std::span<const UpdatedShare> shares_;
  std::uint64_t seed_;
  bool rounds_;                            // states are bf16
  DType type_ = DType::f32;                // type of the values of all shares
  std::vector<std::int64_t> first_block_;  // [shares]
  std::int64_t blocks_ = 0;
  Tensor tensors_, spans_, slices_;  // slices_: undefined unless states are rounded
  Tensor digests_;  // i32 [blocks + 1]: digest of each block, then UpdateDigests::damaged; undefined if not watched
};

}  // namespace lyceum
