#include "parallel/comm/level_reduce.h"

#include "parallel/comm/reduce_in_order.h"

namespace lyceum {
namespace {

void reserve(std::unique_ptr<std::byte[]>& memory, std::size_t& allocated, std::size_t bytes) {
  if (bytes <= allocated) return;
  memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  allocated = bytes;
}

}  // namespace

LevelReduce::LevelReduce(int rank, int ranks, DType type, Reduction reduction)
    : rank_(rank), type_(type), reduction_(reduction), levels_(reduction_levels(rank, ranks)) {}

std::int64_t LevelReduce::elements(const ReductionLevel& level, int digit) const {
  const auto begin = static_cast<std::size_t>(level.first_of(digit));
  return values_.first[begin + static_cast<std::size_t>(level.span)] - values_.first[begin];
}

const std::byte* LevelReduce::partial(std::size_t level, int digit) const {
  const auto slice = static_cast<std::size_t>(levels_[level].first_of(digit));
  if (level == 0) return values_.slices[slice];
  const auto kept = static_cast<std::size_t>(levels_[1].first);
  return sums_.get() + static_cast<std::size_t>(values_.first[slice] - values_.first[kept]) * size_of(type_at(level));
}

void LevelReduce::exchange(Messages& messages, int tag, std::size_t number) {
  const ReductionLevel& level = levels_[number];
  const auto width = static_cast<std::int64_t>(size_of(type_at(number)));
  const std::int64_t own = elements(level, level.digit) * width;
  const auto peer = [&](int digit) { return rank_ + (digit - level.digit) * level.stride; };
  reserve(received_, received_bytes_, static_cast<std::size_t>(own * level.radix));
  for (int step = 1; step < level.radix && own > 0; ++step) {
    const int from = level.digit_at(-step);
    messages.receive(received_.get() + from * own, own, peer(from), tag);
  }
  for (int step = 1; step < level.radix; ++step) {
    const int to = level.digit_at(step);
    if (const std::int64_t sent = elements(level, to)) messages.send(partial(number, to), sent * width, peer(to), tag);
  }
}

void LevelReduce::reduce(std::size_t number) {
  const ReductionLevel& level = levels_[number];
  const bool last = number + 1 == levels_.size();
  const DType result = last ? type_ : type_at(number + 1);
  const std::int64_t count = elements(level, level.digit);
  const auto bytes = static_cast<std::size_t>(count) * size_of(type_at(number));
  if (number == 0 && !last) reserve(sums_, sums_bytes_, static_cast<std::size_t>(count) * size_of(result));
  std::vector<const std::byte*> sources;
  for (int digit = 0; digit < level.radix; ++digit) {
    sources.push_back(digit == level.digit ? partial(number, digit)
                                           : received_.get() + static_cast<std::size_t>(digit) * bytes);
  }
  std::byte* out = values_.sum;
  if (!last) {
    const auto kept = static_cast<std::size_t>(levels_[1].first),
               own = static_cast<std::size_t>(level.first_of(level.digit));
    out = sums_.get() + static_cast<std::size_t>(values_.first[own] - values_.first[kept]) * size_of(result);
  }
  reduce_in_order({.sources = sources, .type = type_at(number)}, {.out = out, .type = result}, count, reduction_);
}

}  // namespace lyceum
