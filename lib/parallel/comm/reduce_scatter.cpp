#include "parallel/comm/reduce_scatter.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lyceum {
namespace {

/// Bytes of the values of a rank in one round: they fit into a core's cache.
constexpr std::int64_t round_bytes = std::int64_t{1} << 20;

/// Returns the maximum number of elements of each part in one round.
std::int64_t most_of_round(std::int64_t ranks, std::int64_t width) {
  return std::max<std::int64_t>(1, round_bytes / (width * ranks));
}

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

ReduceScatter::ReduceScatter(std::shared_ptr<Communicator> of, const Operation& operation, Parts parts, int tag)
    : Messages(std::move(of), operation),
      parts_(std::move(parts)),
      width_(static_cast<std::int64_t>(size_of(parts_.all.dtype()))),
      tag_(tag),
      reduce_(communicator().rank(), communicator().size(), parts_.all.dtype(), Reduction::sum),
      rank_of_slice_(ranks_of_slices(communicator().size())),
      most_(most_of_round(communicator().size(), width_)),
      longest_(std::ranges::max(parts_.extents)) {
  auto* begin = static_cast<std::byte*>(parts_.all.raw());
  for (const std::int64_t extent : parts_.extents) {
    begin_.push_back(begin);
    begin += extent * width_;
  }
  begin_round();
  reduce_.exchange(*this, tag_, level_);
}

void ReduceScatter::begin_round() {
  SlicedValues values{.first = slices_of_round(parts_.extents, rank_of_slice_, first_, most_),
                      .slices = {},
                      .sum = static_cast<std::byte*>(parts_.own.size() ? parts_.own.raw() : nullptr)};
  const bool packs = reduce_.levels().size() > 1;
  if (packs) packed_.resize(static_cast<std::size_t>(values.first.back() * width_));
  for (std::size_t slice = 0; slice < rank_of_slice_.size(); ++slice) {
    const std::byte* const part = begin_[static_cast<std::size_t>(rank_of_slice_[slice])] + first_ * width_;
    const std::int64_t count = values.first[slice + 1] - values.first[slice];
    std::byte* const copy = packed_.data() + values.first[slice] * width_;
    if (packs && count > 0) std::memcpy(copy, part, static_cast<std::size_t>(count * width_));
    values.slices.push_back(packs ? copy : part);
  }
  if (values.sum) values.sum += first_ * width_;
  reduce_.begin(std::move(values));
}

bool ReduceScatter::next() {
  reduce_.reduce(level_);
  if (++level_ == reduce_.levels().size()) {
    level_ = 0;
    first_ += most_;
    if (first_ >= longest_) return false;
    begin_round();
  }
  reduce_.exchange(*this, tag_, level_);
  return true;
}

std::int64_t messages_of_reduce_scatter(int rank, std::span<const std::int64_t> extents, DType type) {
  const auto ranks = static_cast<int>(extents.size());
  const std::int64_t most = most_of_round(ranks, static_cast<std::int64_t>(size_of(type)));
  const std::vector<ReductionLevel> levels = reduction_levels(rank, ranks);
  const std::vector<int> rank_of_slice = ranks_of_slices(ranks);
  const auto of_round = [&](std::int64_t begin) {
    const std::vector<std::int64_t> first = slices_of_round(extents, rank_of_slice, begin, most);
    std::int64_t messages = 0;
    for (const ReductionLevel& level : levels) {
      messages += messages_of_level(level, [&](int slice) { return first[static_cast<std::size_t>(slice)]; });
    }
    return messages;
  };
  const auto [shortest, longest] = std::ranges::minmax(extents);
  const std::int64_t full = shortest / most;  // rounds to which every part contributes as much as fits
  std::int64_t messages = full > 0 ? full * of_round(0) : 0;
  for (std::int64_t begin = full * most; begin < longest; begin += most) messages += of_round(begin);
  return messages;
}

}  // namespace lyceum
