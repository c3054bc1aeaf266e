#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/copy.h"
#include "core/device_table.h"
#include "optim/update_rule.h"

namespace lyceum {

/// The device tables of an elementwise rule with `states` state tensors, see UpdateWeights: pointers to the memory of
/// its shares, their spans of weight decay and, if `watched`, the digests of their memory. The values of all shares
/// must have one type, and the memory of the shares must not move.
template <std::size_t states>
class UpdateTables {
 public:
  UpdateTables(const Stream& stream, std::span<const UpdatedShare> shares, double weight_decay, bool watched)
      : stream_(stream) {
    if (!shares.empty()) type_ = shares.front().share.values.dtype();
    dispatch_float(type_, [&]<class T>() { fill<T>(shares, weight_decay); });
    if (watched) digests_ = Tensor::zeros(stream_, DType::i32, {blocks_ + 1}, MemoryKind::optimizer);
  }

  /// Returns the bytes of the tables for `shares` shares with `decay_spans` spans of weight decay in total. Does not
  /// include digests, see digest_bytes().
  static std::int64_t bytes(std::int64_t shares, std::int64_t decay_spans) {
    return shares * std::int64_t{sizeof(UpdatedTensor<float, states>)} + decay_spans * std::int64_t{sizeof(DecaySpan)};
  }

  /// Launches one update of all shares.
  template <class Rule>
  void update(const Rule& rule, const UpdateRule::Launch& launched) const {
    dispatch_float(type_, [&]<class T>() {
      launch(stream_, UpdateWeights<T, Rule>{.tensors = rows_of<UpdatedTensor<T, states>>(tensors_),
                                             .decay = rows_of<DecaySpan>(decay_),
                                             .blocks = blocks_,
                                             .rule = rule,
                                             .verdict = launched.verdict,
                                             .weight_offsets = launched.weight_offsets,
                                             .update_offsets = launched.update_offsets,
                                             .sums = launched.sums,
                                             .digests = digests()});
    });
  }

  /// See UpdateRule::check_digests() and damage().
  void check_digests(bool renew) const {
    constexpr std::uint32_t none = 0;
    if (!digests_.defined()) return;
    if (renew) copy_to_device(stream_, digests().damaged.data(), &none, sizeof none);
    dispatch_float(type_, [&]<class T>() {
      launch(stream_, CheckDigests<T, states>{.tensors = rows_of<UpdatedTensor<T, states>>(tensors_),
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
  template <class T>
  void fill(std::span<const UpdatedShare> shares, double weight_decay) {
    using A = Accumulator<T>;
    std::vector<UpdatedTensor<T, states>> tensors;
    std::vector<DecaySpan> decay;
    for (const UpdatedShare& updated : shares) {
      const UnitShare& share = updated.share;
      UpdatedTensor<T, states> tensor{.master = updated.master.data<A>(),
                                      .state = {},
                                      .gradient = share.gradients.data<A>(),
                                      .weight = share.values.data<T>(),
                                      .count = share.updated.count,
                                      .first_block = blocks_,
                                      .first_span = std::ssize(decay)};
      for (std::size_t s = 0; s < states; ++s) tensor.state[s] = updated.states[s].template data<A>();
      tensors.push_back(tensor);
      first_block_.push_back(blocks_);
      blocks_ += flat_blocks_of(share.updated.count);
      for (const DecayRange& run : decay_ranges(*share.unit)) {  // some spans may be outside the updated range
        decay.push_back({.end = run.end - share.updated.first, .weight_decay = run.decays ? weight_decay : 0});
      }
      if (share.unit->size() > 0) decay.back().end = share.size - share.updated.first;  // include the padding
    }
    tensors_ = table_of(stream_, tensors);
    decay_ = table_of(stream_, decay);
  }

  UpdateDigests digests() const {
    if (!digests_.defined()) return {};
    const std::span all(reinterpret_cast<std::uint32_t*>(digests_.raw()), static_cast<std::size_t>(blocks_ + 1));
    return {.kept = all.first(all.size() - 1), .damaged = all.last(1)};
  }

  Stream stream_;
  DType type_ = DType::f32;                // type of the values of all shares
  std::vector<std::int64_t> first_block_;  // [shares]
  std::int64_t blocks_ = 0;
  Tensor tensors_, decay_;
  Tensor digests_;  // i32 [blocks + 1]: digest of each block, then UpdateDigests::damaged; undefined if not watched
};

}  // namespace lyceum
