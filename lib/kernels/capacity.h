#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// How many times each expert is a token's j-th choice, of each sequence. The tokens are those from `first` on of
/// sequences of seq_len; the others count elsewhere.
struct CountChoices {
  Matrix<const std::int32_t> index;  // [tokens, k]: experts, or −1 for none
  std::int64_t seq_len, first;
  Matrix<std::int64_t> counts;  // [sequences · k, experts]: row s · k + j
};

/// Drops choices beyond the capacity of experts: one takes at most ⌈factor · k · seq_len / experts⌉ of a sequence,
/// first choices of all tokens before second ones, earlier tokens first [Switch Transformer, GShard].
struct DropChoices {
  Matrix<const std::int32_t> index;   // as above
  Matrix<const std::int64_t> counts;  // [ranks · sequences · k, experts]: of runs that follow on one another
  std::int64_t ranks, rank;           // how many runs there are, and which this is
  std::int64_t seq_len, first;        // as above
  double factor;
  std::span<const double> choices = {};  // [1]: the k of the limit; or none: index.cols
  Matrix<std::int32_t> kept;             // [tokens, k]: index, −1 for a choice that is dropped
  Matrix<std::int64_t> dropped;          // [k, experts], or none: += choices that are dropped
};

/// Choices that an expert takes of a sequence.
constexpr std::int64_t capacity_of(const DropChoices& drop) {
  const double k = drop.choices.empty() ? static_cast<double>(drop.index.cols) : drop.choices[0];
  const double capacity = drop.factor * k * static_cast<double>(drop.seq_len) / static_cast<double>(drop.counts.cols);
  if (capacity >= static_cast<double>(drop.seq_len)) return drop.seq_len;  // no token chooses an expert twice
  const auto whole = static_cast<std::int64_t>(capacity);
  return whole + (static_cast<double>(whole) < capacity ? 1 : 0);
}

void run(const CpuStream& stream, const CountChoices& count);
void run(const CpuStream& stream, const DropChoices& drop);

void run(const CudaStream& stream, const CountChoices& count);
void run(const CudaStream& stream, const DropChoices& drop);

}  // namespace lyceum
