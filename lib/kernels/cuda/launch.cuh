#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/cuda_check.h"
#include "core/cuda_stream.h"

namespace lyceum {

/// Starts `kernel` behind the stream's other work, as `config` says but for the stream; nothing for an empty grid.
/// Errors name the description.
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

/// The same with `shared` bytes of launched_shared() a block.
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

/// Blocks for `count` pieces of work, `each` a block, in a grid that may be too small for all of them: kernels then
/// walk on in strides of the grid.
inline unsigned blocks_for(std::int64_t count, std::int64_t each = 1) {
  constexpr std::int64_t most = 1 << 20;
  return static_cast<unsigned>(std::min((count + each - 1) / each, most));
}

}  // namespace lyceum
