#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/allocator.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/grouped_kernels.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"

// The plan of a grouped product, which the device computes from the segments' offsets before the product is launched.

namespace lyceum::grouped {

/// Weights as a kernel parameter. They are copied to the device with the launch, so no host buffer needs to outlive the
/// call.
struct WeightChunk {
  static constexpr int capacity = 128;
  Weight weight[capacity];
  std::int32_t first = 0, count = 0;
};

/// Pointers into the device memory that a plan is written to.
struct PlanSpace {
  Expert* given;             // [experts], in the order of the bank
  Expert* ordered;           // [experts], by slot
  std::int32_t* first_tile;  // [experts + 1], by slot

  /// Size of the memory for a plan of so many experts.
  static constexpr std::size_t bytes(std::size_t experts) {
    return 2 * experts * sizeof(Expert) + (experts + 1) * sizeof(std::int32_t);
  }
  PlanSpace(std::byte* memory, std::size_t experts)
      : given(reinterpret_cast<Expert*>(memory)),
        ordered(given + experts),
        first_tile(reinterpret_cast<std::int32_t*>(ordered + experts)) {}
};

/// The default `extras` of plan_kernel(): write nothing in addition to the plan.
struct NoExtras {
  __device__ void write(const Expert&, std::int32_t) const {}
  __device__ void finish() const {}
};

/// True if the rows of expert `e` are as wide as its weight requires. If not, `widths` records the fault.
template <class T>
__device__ bool rows_fit(const IndexCheck& widths, Product product, const Rows<T>& rows, const Weight& weight,
                         std::int32_t e) {
  const ActivatedRows<T>& activated = rows.activated;
  const std::int64_t y = y_width(product, weight, activated.inputs);
  return (rows.picked_x.row || widths.equals(rows.x_width[e], x_width(product, weight))) &&
         (rows.picked_dy.row || widths.equals(rows.y_width[e], y)) &&
         (!activated.hidden || widths.equals(activated.hidden_width[e], y)) &&
         (!activated.values || widths.equals(activated.width[e], activated_width(product, weight, activated.inputs)));
}

/// Writes the experts of one chunk of the list of weights; for the last chunk, also computes the order of all experts.
/// Launched with one block. Experts whose rows do not fit their weight become empty, and `widths` records the fault.
/// extras.write() runs for each expert with its slot, extras.finish() at the end of each thread.
template <class T, class Extras>
__global__ void plan_kernel(const __grid_constant__ WeightChunk chunk, const __grid_constant__ Extras extras,
                            PlanSpace space, Product product, Rows<T> rows, int tile_m, int tile_n,
                            std::int32_t experts, IndexCheck widths) {
  for (std::int32_t i = threadIdx.x; i < chunk.count; i += blockDim.x) {
    const std::int32_t e = chunk.first + i;
    const Weight& weight = chunk.weight[i];
    const bool fits = !weight.data || rows_fit(widths, product, rows, weight, e);
    space.given[e] = fits ? expert_of(product, rows, weight, e) : Expert();
  }
  if (chunk.first + chunk.count < experts) return;
  __syncthreads();
  auto* k = reinterpret_cast<std::int32_t*>(launched_shared());
  std::int32_t* tiles = k + experts;
  for (std::int32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    k[e] = space.given[e].k;
    tiles[e] = tiles_of(space.given[e], tile_m, tile_n);
  }
  __syncthreads();
  for (std::int32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    const Expert expert = space.given[e];
    const ExpertSlot own = slot_of_expert(e, k, tiles, experts);
    space.ordered[own.slot] = expert;
    space.first_tile[own.slot] = own.first_tile;
    if (own.slot == experts - 1) space.first_tile[experts] = own.first_tile + tiles[e];
    extras.write(expert, own.slot);
  }
  extras.finish();
}

/// A plan and its device memory, which is freed on destruction; later work of the stream may then reuse it.
struct MadePlan {
  std::shared_ptr<std::byte> memory;
  Plan plan;
};

/// Launches the kernels that compute the plan of a product over `weights`, in tiles of tile_m x tile_n.
template <class T, class Extras = NoExtras>
MadePlan make_plan(const Launch& launch, const Rows<T>& rows, std::span<const Weight> weights, int tile_m, int tile_n,
                   const Extras& extras = {}) {
  const std::size_t count = weights.size();
  const std::shared_ptr<std::byte> memory =
      launch.stream.memory().allocate(PlanSpace::bytes(count), MemoryKind::buffers);
  const PlanSpace space(memory.get(), count);
  const auto experts = static_cast<std::int32_t>(count);
  const IndexCheck widths(launch.stream, launch.name, "width", 0, 0);
  // Two numbers per expert, and three more: ptxas reads four at once in slot_of_expert(), of which it may use only the
  // first.
  const std::size_t shared = (2 * count + 3) * sizeof(std::int32_t);
  for (std::int32_t first = 0; first < experts; first += WeightChunk::capacity) {
    WeightChunk chunk;
    chunk.first = first;
    chunk.count = std::min(experts - first, WeightChunk::capacity);
    std::copy_n(weights.begin() + first, chunk.count, chunk.weight);
    start_shared(launch.stream, launch.name, plan_kernel<T, Extras>, 1, 128, shared, chunk, extras, space,
                 launch.product, rows, tile_m, tile_n, experts, widths);
  }
  return {memory, {space.ordered, space.first_tile, experts}};
}

/// Calls f(slot, expert, corner) for every tile that this block computes. The grid is persistent: blocks take every
/// gridDim.x-th tile.
template <class Tiling, class F>
__device__ __forceinline__ void each_tile(const Plan& plan, F&& f) {
  each_tile<Tiling>(plan, static_cast<std::int32_t>(blockIdx.x), static_cast<std::int32_t>(gridDim.x), f);
}

}  // namespace lyceum::grouped
