#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/cuda_check.h"
#include "core/cuda_stream.h"

namespace lyceum {

/// Launches `kernel` on the stream, with the launch configuration `config`, whose stream is replaced. Does nothing if
/// the grid is empty. Throws an Error with `name`, the name of the kernel description, if the launch fails.
template <class... Parameters>
void start_configured(const CudaStream& stream, std::string_view name, void (*kernel)(Parameters...),
                      cudaLaunchConfig_t config, const std::type_identity_t<Parameters>&... arguments) {
  if (config.gridDim.x == 0 || config.gridDim.y == 0 || config.gridDim.z == 0) return;
  constexpr std::size_t without_asking = 48 << 10;
  if (const std::size_t shared = config.dynamicSmemBytes; shared > without_asking) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          Message(name));
  }
  config.stream = stream.handle();
  check(cudaLaunchKernelEx(&config, kernel, arguments...), Message(name));
}

/// start_configured() with `shared` bytes of dynamic shared memory (launched_shared()) per block.
template <class... Parameters>
void start_shared(const CudaStream& stream, std::string_view name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  std::size_t shared, const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  start_configured(stream, name, kernel, config, arguments...);
}

template <class... Parameters>
void start(const CudaStream& stream, std::string_view name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
           const std::type_identity_t<Parameters>&... arguments) {
  start_shared(stream, name, kernel, grid, block, 0, arguments...);
}

/// Returns the number of blocks for `count` items with `each` items per block, at most 2^20. Kernels must therefore
/// process further items in a grid-stride loop.
inline unsigned blocks_for(std::int64_t count, std::int64_t each = 1) {
  constexpr std::int64_t most = 1 << 20;
  return static_cast<unsigned>(std::min((count + each - 1) / each, most));
}

}  // namespace lyceum
