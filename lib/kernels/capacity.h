#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Counts, for each sequence and each j < k, how often each expert is the j-th choice of a token. Row t of index is
/// token first + t of consecutive sequences of seq_len tokens, of which other ranks may hold the rest.
struct CountChoices {
  Matrix<const std::int32_t> index;  // [tokens, k]: experts, or −1 for none
  std::int64_t seq_len, first;
  Matrix<std::int64_t> counts;  // [sequences · k, experts]: row s · k + j
};

/// Drops choices beyond the capacity of experts. An expert accepts at most ⌈factor · k · seq_len / experts⌉ choices of
/// a sequence. First choices of all tokens take precedence over second choices, then earlier tokens over later ones
/// [Switch Transformer, GShard].
struct DropChoices {
  Matrix<const std::int32_t> index;   // as in CountChoices
  Matrix<const std::int64_t> counts;  // [ranks · sequences · k, experts]: CountChoices::counts of all ranks, whose
                                      // spans of tokens follow one another in the order of ranks
  std::int64_t ranks, rank;           // number of ranks, and the index of this one
  std::int64_t seq_len, first;        // as in CountChoices
  double factor;
  std::span<const double> choices = {};  // [1], on the device: the k of the formula; or none: index.cols
  Matrix<std::int32_t> kept;             // [tokens, k]: index, with −1 for dropped choices
  Matrix<std::int64_t> dropped;          // [k, experts], or none: += number of dropped j-th choices
};

/// Returns the number of choices that an expert accepts of a sequence if tokens choose k of `experts`.
constexpr std::int64_t capacity_of(double factor, double k, std::int64_t seq_len, std::int64_t experts) {
  const double capacity = factor * k * static_cast<double>(seq_len) / static_cast<double>(experts);
  if (capacity >= static_cast<double>(seq_len)) return seq_len;  // enough: tokens choose an expert only once
  const auto whole = static_cast<std::int64_t>(capacity);
  return whole + (static_cast<double>(whole) < capacity ? 1 : 0);
}
/// Returns that number for the kernel. Reads `choices`: call it on the stream's device only.
constexpr std::int64_t capacity_of(const DropChoices& drop) {
  return capacity_of(drop.factor, drop.choices.empty() ? static_cast<double>(drop.index.cols) : drop.choices[0],
                     drop.seq_len, drop.counts.cols);
}

void run(const CpuStream& stream, const CountChoices& count);
void run(const CpuStream& stream, const DropChoices& drop);

void run(const CudaStream& stream, const CountChoices& count);
void run(const CudaStream& stream, const DropChoices& drop);

}  // namespace lyceum
