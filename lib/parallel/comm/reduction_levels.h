#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// One level of a reduction among n ranks.
///
/// Ranks are numbers with one digit per level, the lowest first: rank = d_0 + f_0 · (d_1 + f_1 · (d_2 + …)), where f_l
/// is the radix of level l. At level l a rank exchanges with the f_l − 1 ranks that differ from it in digit l alone. So
/// it sends Σ (f_l − 1) messages where an exchange with every other rank takes n − 1. Up to 8 ranks are one level. For
/// more ranks the radices are 4 as often as n is divisible by 4, then the other prime factors of n in ascending order:
/// 16 ranks are 4 · 4, 4096 are 4^6 and take 18 messages. A prime factor p takes p − 1.
///
/// A vector is divided into n slices. Before level l a rank has partial sums of the `radix · span` slices from `first`
/// on. It divides them into `radix` parts of `span` slices, keeps the part whose index is its own digit, sends each
/// other part to the rank with that digit, and adds the parts that it receives. After the last level it has the sum
/// over all ranks of the slice first + digit.
///
/// Sums are made in the order of digits, level by level; for two levels of radix 4 this is
///     ((x_0 + x_1 + x_2 + x_3) + (x_4 + … + x_7)) + (x_8 + … + x_11) + (x_12 + … + x_15).
/// For one level it is the order of ranks.
struct ReductionLevel {
  int radix;
  int stride;  // distance between ranks whose digits of this level differ by 1
  int digit;   // of this rank
  int first;   // first slice before this level
  int span;    // slices that a rank keeps

  /// Returns the first slice that the rank with digit `other` keeps.
  int first_of(int other) const { return first + other * span; }
  /// Returns the digit that is `step` above (or below, if negative) this rank's, modulo the radix.
  int digit_at(int step) const { return (digit + step + radix) % radix; }
};

/// Returns the radices of the levels of a reduction among `ranks` ranks, the lowest first; {1} for one rank.
std::vector<int> reduction_radices(int ranks);
/// Returns the levels of rank `rank`.
std::vector<ReductionLevel> reduction_levels(int rank, int ranks);
/// Returns the rank that has the sum of each slice after the last level. [ranks]
std::vector<int> ranks_of_slices(int ranks);

/// Returns the number of messages that a rank sends at a level, where slice s has elements [first(s), first(s + 1)).
/// Slices without elements are not sent.
template <class First>
std::int64_t messages_of_level(const ReductionLevel& level, const First& first) {
  std::int64_t messages = 0;
  for (int step = 1; step < level.radix; ++step) {
    const int begin = level.first_of(level.digit_at(step));
    if (first(begin + level.span) > first(begin)) ++messages;
  }
  return messages;
}

/// Returns the type of partial sums of this type: f32 for bf16, else the type itself.
DType partial_sum_type(DType type);

/// Sets out[i] to the sum (or maximum, minimum) over ranks of x_r[i], i < count, in the order of levels. `values`: the
/// x_r in rank order. bf16 is summed in f32 and rounded once. `out` must not overlap `values`, unless there are at most
/// 8 ranks; then it may be one of them.
void reduce_by_levels(std::span<const std::byte* const> values, std::byte* out, std::int64_t count, DType type,
                      Reduction reduction);

}  // namespace lyceum
