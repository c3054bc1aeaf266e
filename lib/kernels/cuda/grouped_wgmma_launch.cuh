#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "core/allocator.h"
#include "core/cuda_processors.h"
#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/grouped_wgmma_block.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/machine_hopper.cuh"

// Launches of the wgmma kernels, shared by their source files.

namespace lyceum::grouped {

/// Computes all tiles of a plan, see run_block(). The grid is persistent: any number of blocks (a multiple of
/// Tiling::cluster) of Tiling::threads threads, with Tiling::shared_bytes of shared memory each.
template <Product product, Pick picked, class Act, class Tiling>
__global__ void __launch_bounds__(Tiling::threads, 1) wgmma_kernel(Plan plan, MapsBySlot<CUtensorMap> maps) {
#ifdef LYCEUM_HOPPER
  run_block<product, picked, Act, Tiling>(cuda::HopperMachine(launched_shared()), plan, maps);
#else
  __trap();  // never launched: can_run_hopper_kernels() is false
#endif
}

/// Writes tensor maps of every expert's operands, as `Extras` of plan_kernel(). The templates contain box and swizzle;
/// address, extents and strides are replaced per expert.
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
  /// Makes the maps that this thread wrote visible to the kernels that use them.
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

/// TensorMaps, and maps of the results of every expert whose rows of results consist of whole 16-byte chunks.
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

/// Returns a tensor map for boxes of `lines` lines of 64 elements. Its address, `somewhere`, is a placeholder that must
/// be a valid device address; the device replaces it. Throws an Error if the driver fails.
CUtensorMap map_of(int lines, void* somewhere);

/// Computes plan and tensor maps on the device, then launches the product in the tiles of `Tiling`, with one persistent
/// block for each of persistent_processors(). Counts it in KernelCounts.
template <Product product, Pick picked, class Act, class Tiling>
void run_tiles(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  using Tile = TileOf<product, Act, Tiling>;
  constexpr bool clustered = Tiling::cluster > 1, stores = Tiling::result_bytes > 0;
  Kernel kernel = Kernel::cooperative;
  if (Tiling::ping_pong) kernel = Kernel::ping_pong;
  if (clustered) kernel = Kernel::clustered;
  count_product(launch, kernel);
  const std::size_t count = weights.size();
  const std::shared_ptr<std::byte> memory =
      launch.stream.memory().allocate((stores ? 3 : 2) * count * sizeof(CUtensorMap), MemoryKind::buffers);
  auto* const a = reinterpret_cast<CUtensorMap*>(memory.get());
  auto *const b = a + count, *const c = b + count;
  const TensorMaps maps{map_of(Tile::a_lines, a), map_of(Tile::b_lines, b), product, a, b};
  const MadePlan made = [&] {
    if constexpr (stores) {
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
  // A cluster of two needs two multiprocessors of one pair, and a GPU has whole pairs.
  config.gridDim = static_cast<unsigned>(persistent_processors(launch.stream) / Tiling::cluster * Tiling::cluster);
  config.blockDim = Tiling::threads;
  config.dynamicSmemBytes = Tiling::shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = clustered ? 1 : 0;
  start_configured(launch.stream, launch.name, wgmma_kernel<product, picked, Act, Tiling>, config, made.plan,
                   MapsBySlot<CUtensorMap>{a, b, stores ? c : nullptr});
}

/// Returns how many times as long a product takes in the tiles of `Tiling` because of operand b, whose lines are
/// `stride` elements apart: more than once if they are not whole cache lines, except in clusters, which load them once
/// for two blocks.
template <class Tiling>
double loading_factor(std::int64_t stride) {
  return Tiling::cluster == 1 && stride % cache_line != 0 ? 1.5 : 1;
}

/// Estimates the cost of a product in the tiles of `Tiling`, in columns times k, assuming that all experts have equally
/// many rows, and so many that the height of tiles does not matter. A tile at the edge costs as much as a whole one,
/// since it is loaded as a whole. Warpgroups that compute a tile together finish it while the tensor cores idle, which
/// takes about as long as 160 steps of k, or 320 in a dgrad. Ping-pong's smaller tiles read 6 % more per product.
/// The numbers, with that of loading_factor(), were measured on an H200 at DeepSeekMoE-2B's products, with widths of
/// 856 and 896 (docs/cuda.md), without activations. Ping-pong tiles in clusters are assumed to differ from others as
/// much as cooperative tiles do.
template <Product product, class Act, class Tiling>
double cost(std::span<const Weight> weights) {
  using Tile = TileOf<product, Act, Tiling>;
  constexpr double finishing = product == Product::dgrad ? 320 : 160;
  double sum = 0;
  for (const Weight& weight : weights) {
    const std::int64_t n = activated_width(product, weight, Act::inputs);
    const auto k = static_cast<double>(product == Product::forward ? weight.cols : weight.rows);
    const auto columns = static_cast<double>(round_up<std::int64_t>(n, Tile::n) * (Tiling::n / Tile::n));
    sum += columns * loading_factor<Tiling>(weight.stride) * (Tiling::ping_pong ? 1.06 * k : k + finishing);
  }
  return sum;
}

/// The tiles in clusters of a product with `Act`. With an activation, finishing a tile takes so long that only tiles
/// pay in which one warpgroup multiplies meanwhile.
template <class Act>
using ClusteredTilingFor =
    std::conditional_t<std::is_same_v<Act, NoActivation>, ClusteredTiling, ClusteredPingPongTiling>;

/// Returns the kernel with the lowest cost(): ping-pong tiles or clusters of blocks.
template <Product product, class Act>
Kernel cheapest(std::span<const Weight> weights) {
  const double clustered = cost<product, Act, ClusteredTilingFor<Act>>(weights);
  return clustered < cost<product, Act, PingPongTiling>(weights) ? Kernel::clustered : Kernel::ping_pong;
}

/// Runs the forward product or the dgrad with `kernel`; Kernel::automatic selects the cheapest(). Kernel::cooperative
/// is not for activations.
template <Product product, Pick picked, class Act>
void run_cheapest_tiles(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                        Kernel kernel) {
  if (kernel == Kernel::automatic) kernel = cheapest<product, Act>(weights);
  if (kernel == Kernel::ping_pong) return run_tiles<product, picked, Act, PingPongTiling>(launch, rows, weights);
  if constexpr (std::is_same_v<Act, NoActivation>) {
    if (kernel == Kernel::cooperative) {
      return run_tiles<product, picked, Act, CooperativeTiling>(launch, rows, weights);
    }
  }
  run_tiles<product, picked, Act, ClusteredTilingFor<Act>>(launch, rows, weights);
}

/// Runs a product whose results are rows (forward, dgrad). The rows of x may be picked.
template <Product product, class Act>
void run_rows(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  picked_operand(product, rows) == Pick::a
      ? run_cheapest_tiles<product, Pick::a, Act>(launch, rows, weights, kernel)
      : run_cheapest_tiles<product, Pick::none, Act>(launch, rows, weights, kernel);
}

}  // namespace lyceum::grouped
