#include <algorithm>

#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/hopper.cuh"

namespace lyceum::grouped {

namespace {

/// Weights as a kernel's parameter: they reach the device with the launch, without a copy that somebody must keep
/// alive.
struct WeightChunk {
  static constexpr int capacity = 128;
  Weight weight[capacity];
  std::int32_t first = 0, count = 0;
};

/// A tensor map for `lines` lines of `width` elements.
__device__ void write_map(CUtensorMap* map, const CUtensorMap& like, const void* data, std::int64_t stride,
                          std::int32_t width, std::int32_t lines) {
#ifdef LYCEUM_HOPPER
  const auto* from = reinterpret_cast<const std::uint64_t*>(&like);
  auto* to = reinterpret_cast<std::uint64_t*>(map);
  for (int i = 0; i < 16; ++i) to[i] = from[i];
  hopper::tensor_map_replace(map, data, max(width, 1), max(lines, 1), static_cast<std::uint64_t>(stride) * 2);
#endif
}

__device__ void write_maps(const Workspace& workspace, const MapTemplates& like, Product product, const Expert& expert,
                           std::int32_t slot) {
  const bool a_k = a_along_k(product), b_k = b_along_k(product);
  write_map(workspace.a_maps + slot, like.a, expert.a, expert.a_stride, a_k ? expert.k : expert.m,
            a_k ? expert.filled : expert.k);
  write_map(workspace.b_maps + slot, like.b, expert.b, expert.b_stride, b_k ? expert.k : expert.n,
            b_k ? expert.n : expert.k);
}

/// One block. Writes the experts of a chunk; with the last chunk it puts all of them in order.
template <class T, bool WithMaps>
__global__ void plan_kernel(const __grid_constant__ WeightChunk chunk, const __grid_constant__ MapTemplates maps,
                            Workspace workspace, Product product, Rows<T> rows, int tile_m, int tile_n,
                            std::int32_t experts) {
  extern __shared__ std::int32_t numbers[];
  for (std::int32_t i = threadIdx.x; i < chunk.count; i += blockDim.x) {
    workspace.given[chunk.first + i] = expert_of(product, rows, chunk.weight[i], chunk.first + i);
  }
  if (chunk.first + chunk.count < experts) return;
  __syncthreads();
  std::int32_t *k = numbers, *tiles = numbers + experts;
  for (std::int32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    k[e] = workspace.given[e].k;
    tiles[e] = tiles_of(workspace.given[e], tile_m, tile_n);
  }
  __syncthreads();
  for (std::int32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    const Expert expert = workspace.given[e];
    const Place place = place_of(e, k, tiles, experts);
    workspace.ordered[place.slot] = expert;
    workspace.first_tile[place.slot] = place.first_tile;
    if (place.slot == experts - 1) workspace.first_tile[experts] = place.first_tile + tiles[e];
    if constexpr (WithMaps) write_maps(workspace, maps, product, expert, place.slot);
  }
#ifdef LYCEUM_HOPPER
  if constexpr (WithMaps) hopper::tensor_map_release();
#endif
}

constexpr std::size_t part(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Workspace::Workspace(void* memory, std::int64_t experts) {
  const auto count = static_cast<std::size_t>(experts);
  auto* at = static_cast<std::byte*>(memory);
  const auto take = [&](std::size_t bytes) {
    std::byte* const begin = at;
    at += part(bytes);
    return begin;
  };
  given = reinterpret_cast<Expert*>(take(count * sizeof(Expert)));
  ordered = reinterpret_cast<Expert*>(take(count * sizeof(Expert)));
  first_tile = reinterpret_cast<std::int32_t*>(take((count + 1) * sizeof(std::int32_t)));
  a_maps = reinterpret_cast<CUtensorMap*>(take(count * sizeof(CUtensorMap)));
  b_maps = reinterpret_cast<CUtensorMap*>(take(count * sizeof(CUtensorMap)));
}

std::size_t Workspace::bytes(std::int64_t experts) {
  const auto count = static_cast<std::size_t>(experts);
  return 2 * part(count * sizeof(Expert)) + part((count + 1) * sizeof(std::int32_t)) +
         2 * part(count * sizeof(CUtensorMap));
}

template <class T>
Plan make_plan(cudaStream_t stream, Workspace workspace, Product product, const Rows<T>& rows,
               std::span<const Weight> weights, int tile_m, int tile_n, const MapTemplates* maps) {
  const auto experts = static_cast<std::int32_t>(weights.size());
  require(experts <= 4096, "a grouped product of {} experts: the plan holds at most 4096", experts);
  const std::size_t shared = weights.size() * 2 * sizeof(std::int32_t);
  for (std::int32_t first = 0; first < experts; first += WeightChunk::capacity) {
    WeightChunk chunk;
    chunk.first = first;
    chunk.count = std::min(experts - first, WeightChunk::capacity);
    std::copy_n(weights.begin() + first, chunk.count, chunk.weight);
    if (maps) {
      plan_kernel<T, true><<<1, 256, shared, stream>>>(chunk, *maps, workspace, product, rows, tile_m, tile_n, experts);
    } else {
      plan_kernel<T, false><<<1, 256, shared, stream>>>(chunk, {}, workspace, product, rows, tile_m, tile_n, experts);
    }
    check(cudaGetLastError(), "launch of the plan of a grouped product");
  }
  return {workspace.ordered, workspace.first_tile, experts};
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

template Plan make_plan(cudaStream_t, Workspace, Product, const Rows<float>&, std::span<const Weight>, int, int,
                        const MapTemplates*);
template Plan make_plan(cudaStream_t, Workspace, Product, const Rows<double>&, std::span<const Weight>, int, int,
                        const MapTemplates*);
template Plan make_plan(cudaStream_t, Workspace, Product, const Rows<bfloat16>&, std::span<const Weight>, int, int,
                        const MapTemplates*);

}  // namespace lyceum::grouped
