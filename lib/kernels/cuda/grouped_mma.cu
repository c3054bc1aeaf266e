#include <cuda_bf16.h>

#include "kernels/cuda/grouped_mma_tile.h"
#include "kernels/cuda/grouped_plan.cuh"

namespace lyceum::grouped {

namespace {

using Tiling = MmaTiling;

/// A block of the GPU as MmaTile sees it.
class Block {
 public:
  __device__ explicit Block(unsigned char* shared)
      : shared_(shared), address_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))) {
    thread_.index = threadIdx.x;
  }
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
    f(thread_);
  }
  __device__ __forceinline__ void sync() const { __syncthreads(); }

  __device__ __forceinline__ void copy(int offset, const std::uint16_t* from, int count) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_ + offset), "l"(from), "r"(2 * count)
                 : "memory");
  }
  __device__ __forceinline__ void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int Pending>
  __device__ __forceinline__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
  }

  /// Reads the aligned chunks that the elements lie in, none that holds no element.
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
    const std::uint32_t at = address_ + offset(lane);
    if constexpr (Transposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(at)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(at)
                   : "memory");
    }
  }
  __device__ __forceinline__ void multiply() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float(&c)[4] = thread_.c[i][j];
        const std::uint32_t(&a)[4] = thread_.a[i];
        const std::uint32_t* b = thread_.b[j / 2] + j % 2 * 2;
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
      }
    }
  }
  __device__ __forceinline__ std::uint16_t bf16(float value) const {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }

 private:
  MmaThread thread_;
  unsigned char* shared_;
  std::uint32_t address_;
};

template <Product product>
__global__ void __launch_bounds__(Tiling::threads, 2) mma_kernel(Plan plan) {
  extern __shared__ __align__(128) unsigned char mma_shared[];
  Block block(mma_shared);
  const std::int32_t tiles = plan.first_tile[plan.count];
  std::int32_t slot = 0;
  for (std::int32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    slot = slot_of(plan.first_tile, slot, tile);
    const Expert& expert = plan.experts[slot];
    const Corner corner = corner_of(expert, tile - plan.first_tile[slot], Tiling::m, Tiling::n);
    MmaTile<product, Block>(block, expert, corner).run();
  }
}

template <Product product>
void launch(cudaStream_t stream, const Plan& plan) {
  check(cudaFuncSetAttribute(mma_kernel<product>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiling::shared_bytes),
        "cudaFuncSetAttribute");
  mma_kernel<product><<<2 * multiprocessors(), Tiling::threads, Tiling::shared_bytes, stream>>>(plan);
  check(cudaGetLastError(), "launch of a grouped product");
}

}  // namespace

void launch_mma(cudaStream_t stream, Workspace workspace, Product product, const Rows<bfloat16>& rows,
                std::span<const Weight> weights) {
  const Plan plan = make_plan(stream, workspace, product, rows, weights, Tiling::m, Tiling::n);
  switch (product) {
    case Product::forward: return launch<Product::forward>(stream, plan);
    case Product::dgrad: return launch<Product::dgrad>(stream, plan);
    case Product::weight_grad: return launch<Product::weight_grad>(stream, plan);
  }
}

}  // namespace lyceum::grouped
