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

void run(const CpuStream& stream, const MapChoices& map);
/// Writes the expected counts, rounded to whole numbers; y is not written.
void run(const RehearsalStream& stream, const MapChoices& map);
void run(const CudaStream& stream, const MapChoices& map);

}  // namespace lyceum
