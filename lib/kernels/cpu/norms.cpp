#include "kernels/norms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/squares.h"

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const SquaresOfTensors<A>& squares) {
  require_length("SquaresOfTensors", "offsets", squares.offsets, std::ssize(squares.tensors));
  parallel_for(stream, squares.blocks, elements_per_thread / flat_block, [&](std::int64_t first, std::int64_t last) {
    BlockWalk walk(squares.tensors, first);
    for (std::int64_t at = first; at < last; ++at, walk.next()) {
      const std::int64_t offset = squares.offsets[walk.row()], begin = walk.block() * flat_block;
      if (offset < 0) continue;
      squares.sums[static_cast<std::size_t>(offset + walk.block())] =
          sum_of_squares(walk.tensor().x + begin, std::min(flat_block, walk.tensor().count - begin));
    }
  });
}

void run(const CpuStream&, const SumRanges& sum) {
  require_length("SumRanges", "begin", sum.begin, std::ssize(sum.y) + 1);
  for (std::size_t o = 0; o < sum.y.size(); ++o) {
    double all = 0;
    for (std::int64_t r = sum.begin[o]; r < sum.begin[o + 1]; ++r) {
      const SumRange& range = sum.ranges[static_cast<std::size_t>(r)];
      all += std::accumulate(sum.x.data() + range.first, sum.x.data() + range.first + range.count, 0.0);
    }
    sum.y[o] = all;
  }
}

void run(const CpuStream&, const NormsOfLayers& join) {
  const auto layers = static_cast<std::size_t>(join.layers), columns = join.norms.size();
  require_length("NormsOfLayers", "x", join.x, NormsOfLayers::kinds * static_cast<std::int64_t>(columns * layers));
  if (!join.by_layer.empty()) {
    require_length("NormsOfLayers", "by_layer", join.by_layer, static_cast<std::int64_t>(columns * layers));
  }
  for (std::size_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const auto part = [&](std::size_t p) { return join.x[(p * columns + c) * layers + layer]; };
      const double of_layer = part(0) + part(1) + part(2) + part(3);
      sum += of_layer;
      if (!join.by_layer.empty()) join.by_layer[c * layers + layer] = std::sqrt(of_layer);
    }
    join.norms[c] = std::sqrt(sum);
  }
}

LYCEUM_NORMS_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
