#include "core/cuda_processors.h"
#include "kernels/cuda/grouped_mma_tile.h"
#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/ptx.cuh"

namespace lyceum::grouped {

namespace {

/// The Machine of MmaTile on a GPU: each thread of the block has one.
class Block {
 public:
  __device__ explicit Block(std::byte* shared) : shared_(shared), address_(ptx::shared_address(shared)) {
    thread_.index = threadIdx.x;
  }
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
    f(thread_);
  }
  __device__ __forceinline__ void sync() const { __syncthreads(); }

  __device__ __forceinline__ void copy(int offset, const std::uint16_t* from, int count) const {
    ptx::copy_async_16(address_ + offset, from, 2 * count);
  }
  __device__ __forceinline__ void commit() const { ptx::commit_copies(); }
  template <int Pending>
  __device__ __forceinline__ void wait() const {
    ptx::wait_copies<Pending>();
  }

  /// Loads `count` elements from an address of any alignment. Reads only the aligned 16-byte chunks that contain them.
  __device__ __forceinline__ Chunk fetch(const std::uint16_t* from, int count) const {
    if (count == 0) return {};
    const unsigned shift = reinterpret_cast<std::uintptr_t>(from) % 16;
    const auto* at = reinterpret_cast<const uint4*>(reinterpret_cast<std::uintptr_t>(from) - shift);
    const uint4 first = __ldg(at);
    uint4 second = {};
    if (shift + 2 * count > 16) second = __ldg(at + 1);
    const Chunk low{{first.x, first.y, first.z, first.w}}, high{{second.x, second.y, second.z, second.w}};
    return first_elements(realigned(low, high, shift), count);
  }
  __device__ __forceinline__ void store(int offset, const Chunk& chunk) const {
    *reinterpret_cast<uint4*>(shared_ + offset) = {chunk.word[0], chunk.word[1], chunk.word[2], chunk.word[3]};
  }

  template <bool Transposed, class Offset>
  __device__ __forceinline__ void ldmatrix(Offset&& offset, int lane, std::uint32_t (&to)[4]) const {
    ptx::ldmatrix<Transposed>(to, address_ + offset(lane));
  }
  __device__ __forceinline__ void multiply() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t* b = thread_.b[j / 2] + j % 2 * 2;
        ptx::mma(thread_.c[i][j], thread_.a[i], b[0], b[1]);
      }
    }
  }
  __device__ __forceinline__ std::uint16_t bf16(float value) const { return narrow<bfloat16>(value).bits; }

 private:
  MmaThread thread_;
  std::byte* shared_;
  std::uint32_t address_;
};

template <Product product, Pick picked>
__global__ void __launch_bounds__(MmaTiling::threads, 2) mma_kernel(Plan plan) {
  Block block(launched_shared());
  each_tile<MmaTiling>(plan, [&](std::int32_t, const Expert& expert, Corner corner) {
    MmaTile<product, picked, Block>(block, expert, corner).run();
  });
}

template <Product product>
auto kernel_of(Pick picked) {
  if (picked == Pick::none) return mma_kernel<product, Pick::none>;
  if constexpr (product == Product::weight_grad) {
    if (picked == Pick::b) return mma_kernel<product, Pick::b>;
  }
  return mma_kernel<product, Pick::a>;
}
auto kernel_of(Product product, Pick picked) {
  switch (product) {
    case Product::forward: return kernel_of<Product::forward>(picked);
    case Product::dgrad: return kernel_of<Product::dgrad>(picked);
    default: return kernel_of<Product::weight_grad>(picked);
  }
}

}  // namespace

void run_mma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  const MadePlan made = make_plan(launch, rows, weights, MmaTiling::m, MmaTiling::n);
  start_shared(launch.stream, launch.name, kernel_of(launch.product, picked_operand(launch.product, rows)),
               2 * static_cast<unsigned>(persistent_processors(launch.stream)), MmaTiling::threads,
               MmaTiling::shared_bytes, made.plan);
}

}  // namespace lyceum::grouped
