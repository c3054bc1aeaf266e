#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/cuda_check.h"
#include "core/cuda_stream.h"

namespace lyceum {

/// Starts `kernel` behind the stream's other work, with `shared` bytes of launched_shared() a block; nothing for an
/// empty grid. Errors name the description.
template <class... Parameters>
void start_shared(const CudaStream& stream, std::string_view name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  std::size_t shared, const std::type_identity_t<Parameters>&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t without_asking = 48 << 10;
  if (shared > without_asking) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          Message(name));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream.handle();
  check(cudaLaunchKernelEx(&config, kernel, arguments...), Message(name));
}

template <class... Parameters>
void start(const CudaStream& stream, std::string_view name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
           const std::type_identity_t<Parameters>&... arguments) {
  start_shared(stream, name, kernel, grid, block, 0, arguments...);
}

/// Blocks for `count` pieces of work, `each` a block, in a grid that may be too small for all of them: kernels then
/// walk on in strides of the grid.
inline unsigned blocks_for(std::int64_t count, std::int64_t each = 1) {
  constexpr std::int64_t most = 1 << 20;
  return static_cast<unsigned>(std::min((count + each - 1) / each, most));
}

}  // namespace lyceum
