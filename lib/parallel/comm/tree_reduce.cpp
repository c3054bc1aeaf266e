#include "parallel/comm/tree_reduce.h"

#include <algorithm>
#include <span>
#include <utility>

#include "parallel/comm/reduce_in_order.h"

namespace lyceum {
namespace {

/// Returns the first level at which this rank has another digit than 0, or the number of levels.
std::size_t sending_level(std::span<const ReductionLevel> levels) {
  const auto sends = std::ranges::find_if(levels, [](const ReductionLevel& level) { return level.digit != 0; });
  return static_cast<std::size_t>(sends - levels.begin());
}

}  // namespace

TreeReduce::TreeReduce(std::shared_ptr<Communicator> of, const Operation& operation, const ReducedValues& values,
                       Reduction reduction, int tag)
    : Messages(std::move(of), operation),
      values_(values),
      reduction_(reduction),
      tag_(tag),
      levels_(reduction_levels(communicator().rank(), communicator().size())),
      top_(sending_level(levels_)) {
  std::int64_t received = 0;
  for (std::size_t level = 0; level < top_; ++level) {
    received = std::max(received, levels_[level].radix * bytes_at(level));
  }
  received_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(received));
  if (top_ > 0) sum_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes_at(1)));
  begin_level();
}

std::int64_t TreeReduce::bytes_at(std::size_t level) const {
  return values_.size * static_cast<std::int64_t>(size_of(type_at(level)));
}

std::byte* TreeReduce::partial(std::size_t level) const {
  return level == 0 ? static_cast<std::byte*>(values_.data) : sum_.get();
}

int TreeReduce::peer(std::size_t level, int digit) const {
  return communicator().rank() + (digit - levels_[level].digit) * levels_[level].stride;
}

bool TreeReduce::next() {
  switch (phase_) {
    case Phase::summing:
      add_up();
      ++level_;
      begin_level();
      return true;
    case Phase::sending:
      phase_ = Phase::receiving;
      receive(values_.data, values_.bytes(), peer(top_, 0), tag_);
      return true;
    case Phase::receiving: distribute(); return true;
    case Phase::distributing: return false;
  }
  return false;
}

void TreeReduce::begin_level() {
  if (level_ == levels_.size()) return distribute();
  if (level_ == top_) {
    phase_ = Phase::sending;
    return send(partial(level_), bytes_at(level_), peer(level_, 0), tag_);
  }
  for (int digit = 1; digit < levels_[level_].radix; ++digit) {
    receive(received_.get() + digit * bytes_at(level_), bytes_at(level_), peer(level_, digit), tag_);
  }
}

void TreeReduce::add_up() {
  const bool last = level_ + 1 == levels_.size();
  std::vector<const std::byte*> sources{partial(level_)};
  for (int digit = 1; digit < levels_[level_].radix; ++digit) {
    sources.push_back(received_.get() + digit * bytes_at(level_));
  }
  std::byte* const out = last ? static_cast<std::byte*>(values_.data) : sum_.get();
  const DType result = last ? values_.type : type_at(level_ + 1);
  reduce_in_order({.sources = sources, .type = type_at(level_)}, {.out = out, .type = result}, values_.size,
                  reduction_);
}

void TreeReduce::distribute() {
  phase_ = Phase::distributing;
  for (std::size_t level = top_; level-- > 0;) {
    for (int digit = 1; digit < levels_[level].radix; ++digit) {
      send(values_.data, values_.bytes(), peer(level, digit), tag_);
    }
  }
}

std::int64_t messages_of_tree_reduce(int rank, int ranks) {
  const std::vector<ReductionLevel> levels = reduction_levels(rank, ranks);
  const std::size_t top = sending_level(levels);
  std::int64_t messages = top < levels.size() ? 1 : 0;
  for (std::size_t level = 0; level < top; ++level) messages += levels[level].radix - 1;
  return messages;
}

}  // namespace lyceum
