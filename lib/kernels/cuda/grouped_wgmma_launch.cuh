#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>

#include "core/allocator.h"
#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/grouped_wgmma_block.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/machine_hopper.cuh"

// How the sources of wgmma's kernels launch them.

namespace lyceum::grouped {

/// k of every expert with tiles is at least 1.
template <Product product, Pick picked, class Act, class Tiling>
__global__ void __launch_bounds__(Tiling::threads, 1) wgmma_kernel(Plan plan, MapsBySlot<CUtensorMap> maps) {
#ifdef LYCEUM_HOPPER
  run_block<product, picked, Act, Tiling>(cuda::HopperMachine(launched_shared()), plan, maps);
#else
  __trap();  // hopper_is_here() keeps launches away
#endif
}

/// Tensor maps of every expert's operands, written with the plan: the templates have the boxes and the swizzle, and
/// address, extents and strides are replaced.
struct TensorMaps {
  CUtensorMap a_template, b_template;
  Product product;
  CUtensorMap *a, *b;  // by slot

  __device__ void write([[maybe_unused]] const Expert& expert, [[maybe_unused]] std::int32_t slot) const {
#ifdef LYCEUM_HOPPER
    write_map(a + slot, a_template, lines_of_a(product, expert));
    write_map(b + slot, b_template, lines_of_b(product, expert));
#endif
  }
  __device__ void finish() const {
#ifdef LYCEUM_HOPPER
    hopper::tensor_map_release();
#endif
  }

 protected:
#ifdef LYCEUM_HOPPER
  __device__ static void write_map(CUtensorMap* map, const CUtensorMap& like, const Lines& lines) {
    const auto* from = reinterpret_cast<const std::uint64_t*>(&like);
    auto* to = reinterpret_cast<std::uint64_t*>(map);
    for (int i = 0; i < 16; ++i) to[i] = from[i];
    hopper::tensor_map_replace(map, lines.data, max(lines.width, 1), max(lines.count, 1),
                               static_cast<std::uint64_t>(lines.stride) * 2);
  }
#endif
};

/// The same and maps of the results of every expert whose rows are whole chunks.
struct TensorMapsWithResults : TensorMaps {
  CUtensorMap c_template;
  CUtensorMap* c;

  __device__ void write([[maybe_unused]] const Expert& expert, [[maybe_unused]] std::int32_t slot) const {
#ifdef LYCEUM_HOPPER
    TensorMaps::write(expert, slot);
    if (unit_of(expert) == 8) write_map(c + slot, c_template, {expert.c, expert.c_stride, expert.n, expert.m});
#endif
  }
};

/// A map of boxes of `lines` lines of 64 elements, for a tensor at `somewhere` that is replaced on the device.
CUtensorMap map_of(int lines, void* somewhere);

template <Product product, Pick picked, class Act, class Tiling>
void run_tiles(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  using Tile = TileOf<product, Act, Tiling>;
  constexpr bool clustered = Tiling::cluster > 1;
  count_product(launch, clustered ? Kernel::clustered : Tiling::ping_pong ? Kernel::ping_pong : Kernel::cooperative);
  const std::size_t count = weights.size();
  const std::shared_ptr<std::byte> memory =
      launch.stream.memory().allocate((clustered ? 3 : 2) * count * sizeof(CUtensorMap), MemoryKind::buffers);
  auto* const a = reinterpret_cast<CUtensorMap*>(memory.get());
  auto *const b = a + count, *const c = b + count;
  const TensorMaps maps{map_of(Tile::a_lines, a), map_of(Tile::b_lines, b), product, a, b};
  const MadePlan made = [&] {
    if constexpr (clustered) {
      const TensorMapsWithResults with_results{maps, map_of(Tiling::result_lines, c), c};
      return make_plan(launch, rows, weights, Tile::m, Tile::n, with_results);
    } else {
      return make_plan(launch, rows, weights, Tile::m, Tile::n, maps);
    }
  }();
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {Tiling::cluster, 1, 1};
  cudaLaunchConfig_t config{};
  // A cluster of two takes two neighbouring multiprocessors, and a GPU has whole pairs of them.
  config.gridDim = static_cast<unsigned>(launch.stream.processors() / Tiling::cluster * Tiling::cluster);
  config.blockDim = Tiling::threads;
  config.dynamicSmemBytes = Tiling::shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = clustered ? 1 : 0;
  start_configured(launch.stream, launch.name, wgmma_kernel<product, picked, Act, Tiling>, config, made.plan,
                   MapsBySlot<CUtensorMap>{a, b, clustered ? c : nullptr});
}

/// Numbers that are written or read for each sum when its tile is finished.
template <Product product, class Act>
constexpr double moved_numbers() {
  if (std::is_same_v<Act, NoActivation>) return 1;
  return product == Product::forward ? (Act::inputs + 1.0) / Act::inputs : 2 * Act::inputs + 1.0;
}

/// What a kernel's tiles cost for as many rows of every expert: columns computed, with those outside, times k.
/// Cooperative warpgroups finish their tiles while the tensor cores rest, for each number moved about as long as 160 of
/// k take; ping-pong's smaller tiles read 6 % more a product.
template <Product product, class Act, class Tiling>
double cost(std::span<const Weight> weights) {
  using Tile = TileOf<product, Act, Tiling>;
  double sum = 0;
  for (const Weight& weight : weights) {
    const std::int64_t n = activated_width(product, weight, Act::inputs), rest = n % Tile::n;
    const auto k = static_cast<double>(product == Product::forward ? weight.cols : weight.rows);
    const std::int64_t columns = n - rest + (rest > Tile::narrow ? Tile::n : rest > 0 ? Tile::narrow : 0);
    const double finish = 160 * moved_numbers<product, Act>();
    sum += static_cast<double>(columns * (Tiling::n / Tile::n)) * (Tiling::ping_pong ? 1.06 * k : k + finish);
  }
  return sum;
}

/// Not for weight gradients, whose sums run over rows, and are long.
template <Product product, Pick picked, class Act>
void run_cheaper_tiles(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                       Kernel kernel) {
  if constexpr (std::is_same_v<Act, NoActivation>) {
    if (kernel == Kernel::clustered) return run_tiles<product, picked, Act, ClusteredTiling>(launch, rows, weights);
  }
  const bool ping_pong = kernel == Kernel::automatic ? cost<product, Act, PingPongTiling>(weights) <
                                                           cost<product, Act, CooperativeTiling>(weights)
                                                     : kernel == Kernel::ping_pong;
  ping_pong ? run_tiles<product, picked, Act, PingPongTiling>(launch, rows, weights)
            : run_tiles<product, picked, Act, CooperativeTiling>(launch, rows, weights);
}

/// A product whose results are rows, of x as it is or of rows picked from it. Kernel::automatic is never the clustered
/// kernel, which no GPU has run yet.
template <Product product, class Act>
void run_rows(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  picked_operand(product, rows) == Pick::a ? run_cheaper_tiles<product, Pick::a, Act>(launch, rows, weights, kernel)
                                           : run_cheaper_tiles<product, Pick::none, Act>(launch, rows, weights, kernel);
}

}  // namespace lyceum::grouped
