#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

/// Where choices lead: y[t, j] = place[index[t, j]], −1 for a choice of none. With `once` a token leads to a place only
/// once: −1 too where an earlier choice of it leads there. count[p]: choices that lead to place p, repeats among them.
struct MapChoices {
  Matrix<const std::int32_t> index;     // [tokens, k]: below place.size(), or −1
  std::span<const std::int32_t> place;  // [choices]: below count.size(), or −1 for nowhere
  Matrix<std::int32_t> y;               // [tokens, k]
  bool once = false;
  std::span<std::int64_t> count = {};     // [places]; empty: not wanted
  std::span<const double> expected = {};  // the host's: what a rehearsal counts, on average
};

void run(const CpuStream& stream, const MapChoices& map);
/// Counts what is expected.
void run(const RehearsalStream& stream, const MapChoices& map);
void run(const CudaStream& stream, const MapChoices& map);

}  // namespace lyceum
