#include "io/data/loader/best_fit.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/error.h"

namespace lyceum {

BestFit::Numbers::Numbers(std::int64_t size) {
  do {
    size = (size + 63) / 64;
    levels_.emplace_back(static_cast<std::size_t>(size), 0);
  } while (size > 1);
}

void BestFit::Numbers::insert(std::int64_t number) {
  auto at = static_cast<std::size_t>(number);
  for (std::vector<std::uint64_t>& level : levels_) {
    level[at / 64] |= std::uint64_t{1} << (at % 64);
    at /= 64;
  }
}

void BestFit::Numbers::erase(std::int64_t number) {
  auto at = static_cast<std::size_t>(number);
  for (std::vector<std::uint64_t>& level : levels_) {
    level[at / 64] &= ~(std::uint64_t{1} << (at % 64));
    if (level[at / 64] != 0) return;
    at /= 64;
  }
}

std::int64_t BestFit::Numbers::first_from(std::int64_t number) const {
  // Goes up until a level has a set bit at or after `at`, and down again to the first set bit below it.
  auto at = static_cast<std::size_t>(number);
  for (std::size_t level = 0; level < levels_.size() && at / 64 < levels_[level].size(); ++level) {
    const std::uint64_t rest = levels_[level][at / 64] >> (at % 64);
    if (rest == 0) {
      at = at / 64 + 1;
      continue;
    }
    at += static_cast<std::size_t>(std::countr_zero(rest));
    while (level-- > 0) at = 64 * at + static_cast<std::size_t>(std::countr_zero(levels_[level][at]));
    return static_cast<std::int64_t>(at);
  }
  return -1;
}

BestFit::BestFit(std::int64_t seq_len, std::int64_t least)
    : seq_len_(seq_len), least_(least), open_(static_cast<std::size_t>(seq_len)), rooms_(seq_len) {
  require(least > 0 && least <= seq_len, "the smallest span has {} inputs, a sequence {}", least, seq_len);
}

std::int64_t BestFit::place(std::int64_t inputs) {
  require(inputs >= least_ && inputs <= seq_len_, "a span of {} inputs is not within {} to {}", inputs, least_,
          seq_len_);
  std::int64_t room = inputs < seq_len_ ? rooms_.first_from(inputs) : -1, sequence = 0;
  if (room < 0) {
    room = seq_len_;
    sequence = sequences_++;
  } else {
    std::vector<std::int64_t>& fitting = open_[static_cast<std::size_t>(room)];
    std::ranges::pop_heap(fitting, std::greater<>());
    sequence = fitting.back();
    fitting.pop_back();
    if (fitting.empty()) rooms_.erase(room);
  }
  room -= inputs;
  if (room < least_) return sequence;
  std::vector<std::int64_t>& left = open_[static_cast<std::size_t>(room)];
  if (left.empty()) rooms_.insert(room);
  left.push_back(sequence);
  std::ranges::push_heap(left, std::greater<>());
  return sequence;
}

}  // namespace lyceum
