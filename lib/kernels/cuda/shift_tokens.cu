#include <iterator>

#include "kernels/cuda/launch.cuh"
#include "kernels/shift_tokens.h"
#include "kernels/shift_tokens_checks.h"

namespace lyceum {

namespace {

constexpr int shift_threads = 256;

/// One thread per token, in a grid-stride loop.
__global__ void __launch_bounds__(shift_threads) shift_tokens(ShiftTokens shift) {
  const auto tokens = static_cast<std::int64_t>(shift.inputs.size());
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * shift_threads;
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * shift_threads + threadIdx.x; t < tokens; t += stride) {
    shift_token(shift, t);
  }
}

}  // namespace

void run(const CudaStream& stream, const ShiftTokens& shift) {
  require_fitting(shift);
  start(stream, "ShiftTokens", shift_tokens, blocks_for(std::ssize(shift.inputs), shift_threads), shift_threads, shift);
}

}  // namespace lyceum
