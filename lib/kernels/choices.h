#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Maps choices to destinations, for example experts to the ranks that hold them: y[t, j] = destination[index[t, j]],
/// or −1 if index[t, j] is −1. With `once`, y[t, j] is also −1 if an earlier choice of token t has the same
/// destination, so that a token is sent to each rank once. count[p] is the number of choices with destination p,
/// repetitions included.
struct MapChoices {
  Matrix<const std::int32_t> index;           // [tokens, k]: in [0, destination.size()), or −1
  std::span<const std::int32_t> destination;  // [choices]: destination of each, in [0, count.size()), or −1 for none
  Matrix<std::int32_t> y;                     // [tokens, k]
  bool once = false;
  std::span<std::int64_t> count = {};  // [destinations], or empty if not needed
  /// [destinations], host memory: average counts. A rehearsal needs them if `count` is not empty; other streams do not
  /// read them.
  std::span<const double> expected = {};
};

/// Divides the choices of an expert among several destinations, for example its replicas. The choices of an expert are
/// numbered in the order of tokens; each share of the expert begins at a number and ends where the next one begins.
/// y[t, j] = the destination of the share that contains the choice, or index[t, j] if that is −1 or an expert without
/// shares.
struct DivideChoices {
  Matrix<const std::int32_t> index;  // [tokens, k]: experts, or −1; those from first_share.size() − 1 on have no shares
  /// Results of SortByExpert for the experts in ascending order: the position of each pair (token, choice), and the
  /// first position of each expert.
  std::span<const std::int64_t> position;        // [tokens · k]
  std::span<const std::int64_t> first_position;  // [experts + 1]
  std::span<const std::int32_t> first_share;     // [experts + 1]: shares of expert e begin at first_share[e]
  std::span<const std::int64_t> share_begin;     // [shares]: number of the first choice; 0 for the first of an expert
  std::span<const std::int32_t> destination;     // [shares]
  Matrix<std::int32_t> y;                        // [tokens, k]; may be index
};

void run(const CpuStream& stream, const MapChoices& map);
void run(const CpuStream& stream, const DivideChoices& divide);
/// Writes the expected counts, rounded to whole numbers; y is not written.
void run(const RehearsalStream& stream, const MapChoices& map);

void run(const CudaStream& stream, const MapChoices& map);
void run(const CudaStream& stream, const DivideChoices& divide);

}  // namespace lyceum
