#include "parallel/comm/reduce_scatter.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lyceum {
namespace {

/// Bytes of the values of a rank in one round: they fit into a core's cache.
constexpr std::int64_t round_bytes = std::int64_t{1} << 20;
/// Bound of the received bytes of a level, in rounds, for parts of any sizes.
constexpr std::int64_t received_rounds = 4;

/// Returns where the slices of the round begin, and their end. `begin`: first element of the round in every part.
std::vector<std::int64_t> slices_of_round(std::span<const std::int64_t> extents, std::span<const int> rank_of_slice,
                                          std::int64_t begin, std::int64_t most) {
  std::vector<std::int64_t> first{0};
  for (const int rank : rank_of_slice) {
    first.push_back(first.back() + std::clamp<std::int64_t>(extents[static_cast<std::size_t>(rank)] - begin, 0, most));
  }
  return first;
}

}  // namespace

RoundSizes::RoundSizes(std::span<const std::int64_t> extents, std::int64_t width)
    : ascending_(extents.begin(), extents.end()),
      even_(std::max<std::int64_t>(1, round_bytes / (width * std::ssize(extents)))),
      largest_(even_),
      round_(std::max(round_bytes / width, std::ssize(extents))) {
  std::ranges::sort(ascending_);
  const std::vector<int> radices = reduction_radices(static_cast<int>(extents.size()));
  if (radices.size() == 1) return;
  largest_ = round_;
  auto slices = std::ssize(extents);  // that a rank has partial sums of before a level
  for (const int radix : radices) {
    if (radix > received_rounds) largest_ = std::min(largest_, std::max(even_, received_rounds * round_ / slices));
    slices /= radix;
  }
}

std::int64_t RoundSizes::most(std::int64_t begin) const {
  std::int64_t left = round_;
  const auto unfinished = std::ranges::upper_bound(ascending_, begin);
  for (auto part = unfinished; part != ascending_.end(); ++part) {
    const std::int64_t equal = left / (ascending_.end() - part), rest = *part - begin;
    if (rest > equal) return std::min(equal, largest_);
    left -= rest;
  }
  return largest_;  // all that is left
}

ReduceScatter::ReduceScatter(std::shared_ptr<Communicator> of, const Operation& operation, Parts parts, int tag)
    : Messages(std::move(of), operation),
      parts_(std::move(parts)),
      width_(static_cast<std::int64_t>(size_of(parts_.all.dtype()))),
      tag_(tag),
      reduce_(communicator().rank(), communicator().size(), parts_.all.dtype(), Reduction::sum),
      rank_of_slice_(ranks_of_slices(communicator().size())),
      sizes_(parts_.extents, width_) {
  auto* begin = static_cast<std::byte*>(parts_.all.raw());
  for (const std::int64_t extent : parts_.extents) {
    begin_.push_back(begin);
    begin += extent * width_;
  }
  begin_round();
  reduce_.exchange(*this, tag_, level_);
}

void ReduceScatter::begin_round() {
  most_ = sizes_.most(first_);
  SlicedValues values{.first = slices_of_round(parts_.extents, rank_of_slice_, first_, most_),
                      .slices = {},
                      .sum = static_cast<std::byte*>(parts_.own.size() ? parts_.own.raw() : nullptr)};
  const bool packs = reduce_.levels().size() > 1;
  if (packs) packed_.resize(static_cast<std::size_t>(values.first.back() * width_));
  for (std::size_t slice = 0; slice < rank_of_slice_.size(); ++slice) {
    const std::byte* const part = begin_[static_cast<std::size_t>(rank_of_slice_[slice])] + first_ * width_;
    if (!packs) {
      values.slices.push_back(part);
      continue;
    }
    const std::int64_t count = values.first[slice + 1] - values.first[slice];
    std::byte* const copy = packed_.data() + values.first[slice] * width_;
    if (count > 0) std::memcpy(copy, part, static_cast<std::size_t>(count * width_));
    values.slices.push_back(copy);
  }
  if (values.sum) values.sum += first_ * width_;
  reduce_.begin(std::move(values));
}

bool ReduceScatter::next() {
  reduce_.reduce(level_);
  if (++level_ == reduce_.levels().size()) {
    level_ = 0;
    first_ += most_;
    if (first_ >= sizes_.longest()) return false;
    begin_round();
  }
  reduce_.exchange(*this, tag_, level_);
  return true;
}

std::int64_t messages_of_reduce_scatter(int rank, std::span<const std::int64_t> extents, DType type) {
  const auto ranks = static_cast<int>(extents.size());
  const RoundSizes sizes(extents, static_cast<std::int64_t>(size_of(type)));
  const std::vector<ReductionLevel> levels = reduction_levels(rank, ranks);
  const std::vector<int> rank_of_slice = ranks_of_slices(ranks);
  const auto of_round = [&](std::int64_t begin, std::int64_t most) {
    const std::vector<std::int64_t> first = slices_of_round(extents, rank_of_slice, begin, most);
    std::int64_t messages = 0;
    for (const ReductionLevel& level : levels) {
      messages += messages_of_level(level, [&](int slice) { return first[static_cast<std::size_t>(slice)]; });
    }
    return messages;
  };
  // Rounds are equal as long as no part ends.
  const std::int64_t most = sizes.most(0), equal = std::max<std::int64_t>(0, std::ranges::min(extents) - 1) / most;
  std::int64_t begin = equal * most, messages = equal > 0 ? equal * of_round(0, most) : 0;
  while (begin < sizes.longest()) {
    const std::int64_t count = sizes.most(begin);
    messages += of_round(begin, count);
    begin += count;
  }
  return messages;
}

}  // namespace lyceum
