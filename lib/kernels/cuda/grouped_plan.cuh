#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/cuda/grouped_tiles.h"

// What the launches of grouped products share: the plan, made on the device from the segments' offsets.

namespace lyceum::grouped {

inline void check(cudaError_t code, const char* call, std::source_location where = std::source_location::current()) {
  require(code == cudaSuccess, Message("{}: {}", where), call, cudaGetErrorString(code));
}

/// The parts of a launch's workspace.
struct Workspace {
  Expert* given;             // in the order of the bank
  Expert* ordered;           // by slot
  std::int32_t* first_tile;  // [experts + 1], by slot
  CUtensorMap* a_maps;       // by slot, for wgmma
  CUtensorMap* b_maps;

  Workspace(void* memory, std::int64_t experts);
  static std::size_t bytes(std::int64_t experts);
};

/// Tensor maps with the box and the swizzle of each operand; address, extents and strides are replaced expert by
/// expert.
struct MapTemplates {
  CUtensorMap a, b;
};

/// Launches the kernels that write the plan of `product` over `weights`, with tiles of tile_m x tile_n, and with `maps`
/// tensor maps of the operands too.
template <class T>
Plan make_plan(cudaStream_t stream, Workspace workspace, Product product, const Rows<T>& rows,
               std::span<const Weight> weights, int tile_m, int tile_n, const MapTemplates* maps = nullptr);

/// Multiprocessors of the current device.
int multiprocessors();

template <class T>
void launch_plain(cudaStream_t stream, Workspace workspace, Product product, const Rows<T>& rows,
                  std::span<const Weight> weights);
void launch_mma(cudaStream_t stream, Workspace workspace, Product product, const Rows<bfloat16>& rows,
                std::span<const Weight> weights);
/// Every weight's operands must satisfy wgmma_takes(), or the weight be empty.
void launch_wgmma(cudaStream_t stream, Workspace workspace, Product product, const Rows<bfloat16>& rows,
                  std::span<const Weight> weights, Kernel kernel);
/// Whether the current device has wgmma, and this program the code for it (sm_90a).
bool wgmma_is_here();
/// Whether TMA can load the operands: rows that begin at multiples of 16 bytes.
bool wgmma_takes(Product product, const Rows<bfloat16>& rows, const Weight& weight);

}  // namespace lyceum::grouped
