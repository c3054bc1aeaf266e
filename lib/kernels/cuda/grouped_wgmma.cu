#include <cuda_bf16.h>

#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace lyceum::grouped {

namespace {

#ifdef LYCEUM_HOPPER

/// Stages and barriers of a block, by their addresses in shared memory.
template <class Tiling>
struct Stages {
  std::uint32_t begin;

  __device__ std::uint32_t a(int stage) const { return begin + stage * Tiling::stage_bytes; }
  __device__ std::uint32_t b(int stage) const { return a(stage) + Tiling::a_bytes; }
  __device__ std::uint32_t full(int stage) const { return begin + Tiling::stages * Tiling::stage_bytes + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return full(stage) + 8 * Tiling::stages; }
  __device__ std::uint32_t order(int group) const { return empty(Tiling::stages) + 8 * group; }

  __device__ void initialise() const {
    for (int stage = 0; stage < Tiling::stages; ++stage) {
      hopper::mbarrier_init(full(stage), 1);
      hopper::mbarrier_init(empty(stage), Tiling::arrivals);
    }
    for (int group = 0; group < 2; ++group) hopper::mbarrier_init(order(group), 4);
    hopper::fence_barrier_init();
  }
};

/// Calls f(slot, expert, corner) for every tile of this block, in the same order for those that load and those that
/// multiply.
template <class Tiling, class F>
__device__ __forceinline__ void each_tile(const Plan& plan, F&& f) {
  const std::int32_t tiles = plan.first_tile[plan.count];
  std::int32_t slot = 0;
  for (std::int32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    slot = slot_of(plan.first_tile, slot, tile);
    const Expert& expert = plan.experts[slot];
    f(slot, expert, corner_of(expert, tile - plan.first_tile[slot], Tiling::m, Tiling::n));
  }
}

/// Brings `Extent` rows or columns, from `begin` on, and 64 of k to shared memory.
template <bool AlongK, int Extent>
__device__ __forceinline__ void load(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier, int begin,
                                     int k) {
  if constexpr (AlongK) {
    hopper::tma_load(to, map, barrier, k, begin);
  } else {
#pragma unroll
    for (int i = 0; i < Extent; i += 64) hopper::tma_load(to + i * 128, map, barrier, begin + i, k);
  }
}

/// One thread keeps all stages full, across tiles.
template <Product product, class Tiling>
__device__ __forceinline__ void produce(const Plan& plan, const CUtensorMap* a_maps, const CUtensorMap* b_maps,
                                        const Stages<Tiling>& stages) {
  Turn<Tiling::stages> turn;
  std::int32_t acquired = -1;
  each_tile<Tiling>(plan, [&](std::int32_t slot, const Expert& expert, Corner corner) {
    if (slot != acquired) {
      hopper::tensor_map_acquire(a_maps + slot);
      hopper::tensor_map_acquire(b_maps + slot);
      acquired = slot;
    }
    const std::int32_t depth = expert.k;
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      hopper::mbarrier_wait(stages.empty(turn.stage), turn.parity ^ 1);
      const std::uint32_t full = stages.full(turn.stage);
      hopper::mbarrier_arrive_expect(full, Tiling::stage_bytes);
      load<a_along_k(product), Tiling::m>(stages.a(turn.stage), a_maps + slot, full, corner.m, k);
      load<b_along_k(product), Tiling::n>(stages.b(turn.stage), b_maps + slot, full, corner.n, k);
    }
  });
}

/// Accumulators of 64 rows of a tile a block.
template <class Tiling>
using Accumulators = float[Tiling::blocks][Tiling::n / 2];

/// Keeps the compiler from moving accumulators about while the tensor cores write them.
template <int Blocks, int Count>
__device__ __forceinline__ void pin(float (&c)[Blocks][Count]) {
#pragma unroll
  for (int i = 0; i < Blocks * Count; ++i) asm volatile("" : "+f"(c[i / Count][i % Count])::"memory");
}

/// c = the first `Width` columns of the product, for the rows of the tile from `row` on. Stages are given back one step
/// late, when the tensor cores have surely read them. Calls seen() when the last stage is there.
template <Product product, class Tiling, int Width, class Seen>
__device__ __forceinline__ void multiply(Accumulators<Tiling>& c, const Stages<Tiling>& stages,
                                         Turn<Tiling::stages>& turn, int row, std::int32_t depth, Seen&& seen) {
  const bool speaks = threadIdx.x % 32 == 0;
  int last = -1;
  for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
    hopper::mbarrier_wait(stages.full(turn.stage), turn.parity);
    pin(c);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tiling::k / 16; ++step) {
      const std::uint64_t b = WgmmaOperand<b_along_k(product)>::descriptor(stages.b(turn.stage), 0, step);
#pragma unroll
      for (int block = 0; block < Tiling::blocks; ++block) {
        const std::uint64_t a =
            WgmmaOperand<a_along_k(product)>::descriptor(stages.a(turn.stage), row + 64 * block, step);
        hopper::wgmma<Width, !a_along_k(product), !b_along_k(product)>(c[block], a, b, k + step > 0);
      }
    }
    hopper::wgmma_commit();
    pin(c);
    hopper::wgmma_wait<1>();
    if (last >= 0 && speaks) hopper::mbarrier_arrive(stages.empty(last));
    last = turn.stage;
  }
  seen();
  hopper::wgmma_wait<0>();
  pin(c);
  if (speaks) hopper::mbarrier_arrive(stages.empty(last));
}

__device__ __forceinline__ std::uint32_t bf16_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Writes eight elements of a row, as far as there are so many, in units of as many elements as are aligned.
__device__ __forceinline__ void write_eight(std::uint16_t* to, const std::uint32_t (&word)[4], int left, int unit) {
  if (unit == 8 && left >= 8) {
    *reinterpret_cast<uint4*>(to) = {word[0], word[1], word[2], word[3]};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (unit > 1 && 2 * i + 1 < left) {
      reinterpret_cast<std::uint32_t*>(to)[i] = word[i];
    } else {
      if (2 * i < left) to[2 * i] = static_cast<std::uint16_t>(word[i]);
      if (2 * i + 1 < left) to[2 * i + 1] = static_cast<std::uint16_t>(word[i] >> 16);
    }
  }
}

/// Elements that may be written at once in any row: 8, 2 or 1.
__device__ __forceinline__ int unit_of(const Expert& expert) {
  const auto address = reinterpret_cast<std::uintptr_t>(expert.c);
  if (expert.c_stride % 8 == 0 && address % 16 == 0) return 8;
  return expert.c_stride % 2 == 0 && address % 4 == 0 ? 2 : 1;
}

/// y of 64 rows of a tile: four lanes together put 64 neighbouring bytes of a row in order, and write 16 each.
template <class Tiling>
__device__ __forceinline__ void write_rows(const float (&c)[Tiling::n / 2], const Expert& expert, std::int32_t row0,
                                           std::int32_t col0) {
  const int thread = threadIdx.x % 128, lane = thread % 4;
  const QuadTranspose quad(lane);
  const int unit = unit_of(expert);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = row0 + wgmma_row(thread, 2 * half);
    const bool filled = row < expert.filled;
    std::uint16_t* const y = static_cast<std::uint16_t*>(expert.c) + row * expert.c_stride;
#pragma unroll
    for (int block = 0; block < Tiling::n / 8; block += 4) {
      std::uint32_t word[4], give[2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const pair = c + (block + i) * 4 + 2 * half;
        word[i] = filled ? bf16_pair(pair[0], pair[1]) : 0u;
      }
      quad.give_far(word, give);
      const std::uint32_t far[2] = {__shfl_xor_sync(~0u, give[0], 2), __shfl_xor_sync(~0u, give[1], 2)};
      quad.take_far(word, far);
      quad.give_near(word, give);
      const std::uint32_t near[2] = {__shfl_xor_sync(~0u, give[0], 1), __shfl_xor_sync(~0u, give[1], 1)};
      quad.take_near(word, near);
      const std::int32_t col = col0 + (block + lane) * 8;
      if (row < expert.m) write_eight(y + col, word, expert.n - col, unit);
    }
  }
}

/// dw of 64 rows of a tile: adds in groups, so that many loads are under way at once.
template <class Tiling>
__device__ __forceinline__ void add_rows(const float (&c)[Tiling::n / 2], const Expert& expert, std::int32_t row0,
                                         std::int32_t col0) {
  constexpr int group = 8;
  const int thread = threadIdx.x % 128;
  const bool pairs = expert.c_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(expert.c) % 8 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = row0 + wgmma_row(thread, 2 * half);
    float* const dw = static_cast<float*>(expert.c) + row * expert.c_stride;
    const std::int32_t end = row < expert.m ? expert.n : 0;
#pragma unroll
    for (int block = 0; block < Tiling::n / 8; block += group) {
      float2 old[group];
#pragma unroll
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        if (pairs && col + 1 < end) {
          old[i] = *reinterpret_cast<const float2*>(dw + col);
        } else {
          old[i] = {col < end ? dw[col] : 0.0f, col + 1 < end ? dw[col + 1] : 0.0f};
        }
      }
#pragma unroll
      for (int i = 0; i < group; ++i) {
        const std::int32_t col = col0 + wgmma_col(thread, 4 * (block + i));
        const float* const pair = c + (block + i) * 4 + 2 * half;
        const float2 sum = {old[i].x + pair[0], old[i].y + pair[1]};
        if (pairs && col + 1 < end) {
          *reinterpret_cast<float2*>(dw + col) = sum;
        } else {
          if (col < end) dw[col] = sum.x;
          if (col + 1 < end) dw[col + 1] = sum.y;
        }
      }
    }
  }
}

/// Asks for the gradients that add_rows() will read, while the tensor cores are busy.
template <class Tiling>
__device__ __forceinline__ void prefetch_rows(const Expert& expert, std::int32_t row0, std::int32_t col0) {
  const int thread = threadIdx.x % 128;
  const std::int32_t row = row0 + thread / 2;
  if (row >= expert.m) return;
  const float* const dw = static_cast<const float*>(expert.c) + row * expert.c_stride;
#pragma unroll
  for (int i = 0; i < Tiling::n; i += 64) {
    const std::int32_t col = col0 + i + thread % 2 * 32;
    if (col < expert.n) asm volatile("prefetch.global.L2 [%0];" ::"l"(dw + col));
  }
}

/// The work of warpgroup `group` of those that multiply.
template <Product product, class Tiling>
__device__ __forceinline__ void consume(const Plan& plan, const Stages<Tiling>& stages, int group) {
  Turn<Tiling::stages> turn;
  int tile = 0;  // of this block
  each_tile<Tiling>(plan, [&](std::int32_t, const Expert& expert, Corner corner) {
    const int index = tile++;
    if (Tiling::ping_pong && index % 2 != group) return turn.skip((expert.k + Tiling::k - 1) / Tiling::k);
    const int begin = Tiling::ping_pong ? 0 : 64 * group;
    const std::int32_t row = corner.m + begin;
    if constexpr (product == Product::weight_grad) prefetch_rows<Tiling>(expert, row, corner.n);
    if constexpr (Tiling::ping_pong) hopper::mbarrier_wait(stages.order(group), order_parity(group, index / 2));
    const auto seen = [&] {
      if (Tiling::ping_pong && threadIdx.x % 32 == 0) hopper::mbarrier_arrive(stages.order(1 - group));
    };
    constexpr int narrow = Tiling::narrow(b_along_k(product));
    Accumulators<Tiling> c;
    if (expert.n - corner.n > narrow) {
      multiply<product, Tiling, Tiling::n>(c, stages, turn, begin, expert.k, seen);
    } else {
      multiply<product, Tiling, narrow>(c, stages, turn, begin, expert.k, seen);
    }
    if constexpr (product == Product::weight_grad) {
      static_assert(Tiling::blocks == 1);
      add_rows<Tiling>(c[0], expert, row, corner.n);
    } else {
#pragma unroll
      for (int block = 0; block < Tiling::blocks; ++block) {
        write_rows<Tiling>(c[block], expert, row + 64 * block, corner.n);
      }
    }
  });
}

#endif

/// A persistent block: warpgroup 0 loads by TMA, 1 and 2 multiply. k of every expert with tiles is at least 1.
template <Product product, class Tiling>
__global__ void __launch_bounds__(Tiling::threads, 1)
    wgmma_kernel(Plan plan, const CUtensorMap* a_maps, const CUtensorMap* b_maps) {
#ifdef LYCEUM_HOPPER
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const Stages<Tiling> stages{(hopper::shared_address(wgmma_shared) + 1023) / 1024 * 1024};
  if (threadIdx.x == 0) stages.initialise();
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    hopper::give_registers<24>();
    if (threadIdx.x == 0) produce<product, Tiling>(plan, a_maps, b_maps, stages);
  } else {
    hopper::take_registers<240>();
    consume<product, Tiling>(plan, stages, group - 1);
  }
#else
  __trap();  // wgmma_is_here() keeps launches away
#endif
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's function, asked for at run time: a program linked with the driver would not start without one.
Encode encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  require(found == cudaDriverEntryPointSuccess && function, "the CUDA driver has no cuTensorMapEncodeTiled: update it");
  return reinterpret_cast<Encode>(function);
}

/// A map of boxes of `lines` lines of 64 elements, for a tensor at `somewhere` that is replaced on the device.
CUtensorMap map_of(int lines, void* somewhere) {
  CUtensorMap map;
  const cuuint64_t extents[2] = {64, static_cast<cuuint64_t>(lines)}, strides[1] = {128};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(lines)}, steps[2] = {1, 1};
  const CUresult code = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, somewhere, extents, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(code == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error {}", static_cast<int>(code));
  return map;
}

template <Product product, class Tiling>
void launch(cudaStream_t stream, Workspace workspace, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  const MapTemplates maps{map_of(a_along_k(product) ? Tiling::m : 64, workspace.a_maps),
                          map_of(b_along_k(product) ? Tiling::n : 64, workspace.b_maps)};
  const Plan plan = make_plan(stream, workspace, product, rows, weights, Tiling::m, Tiling::n, &maps);
  const auto kernel = wgmma_kernel<product, Tiling>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiling::shared_bytes),
        "cudaFuncSetAttribute");
  kernel<<<multiprocessors(), Tiling::threads, Tiling::shared_bytes, stream>>>(plan, workspace.a_maps,
                                                                               workspace.b_maps);
  check(cudaGetLastError(), "launch of a grouped product");
}

/// What a kernel's tiles cost for as many rows of every expert: columns computed, with those outside, times k.
/// Cooperative warpgroups write their results while the tensor cores rest, for as long as about 160 of k take;
/// ping-pong's smaller tiles read 6 % more a product.
template <class Tiling>
double cost(Product product, std::span<const Weight> weights) {
  const std::int64_t narrow = Tiling::narrow(b_along_k(product));
  double sum = 0;
  for (const Weight& weight : weights) {
    const std::int64_t n = product == Product::forward ? weight.rows : weight.cols;
    const auto k = static_cast<double>(product == Product::forward ? weight.cols : weight.rows);
    const std::int64_t rest = n % Tiling::n, columns = n - rest + (rest > narrow ? Tiling::n : rest > 0 ? narrow : 0);
    sum += static_cast<double>(columns) * (Tiling::ping_pong ? 1.06 * k : k + 160.0);
  }
  return sum;
}

template <Product product>
void launch(cudaStream_t stream, Workspace workspace, const Rows<bfloat16>& rows, std::span<const Weight> weights,
            Kernel kernel) {
  if constexpr (product != Product::weight_grad) {  // whose sums run over rows, and are long
    const bool ping_pong = kernel == Kernel::automatic
                               ? cost<PingPongTiling>(product, weights) < cost<CooperativeTiling>(product, weights)
                               : kernel == Kernel::ping_pong;
    if (ping_pong) return launch<product, PingPongTiling>(stream, workspace, rows, weights);
  }
  launch<product, CooperativeTiling>(stream, workspace, rows, weights);
}

bool aligned(const void* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool wgmma_is_here() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  if (major != 9 || minor != 0) return false;
  // Code made for another architecture may run here too, but then the kernel is the empty one, which needs few
  // registers.
  cudaFuncAttributes kernel;
  check(cudaFuncGetAttributes(&kernel, wgmma_kernel<Product::forward, CooperativeTiling>), "cudaFuncGetAttributes");
  return kernel.numRegs > 128;
}

bool wgmma_takes(Product product, const Rows<bfloat16>& rows, const Weight& weight) {
  if (weight.rows == 0 || weight.cols == 0) return false;
  // Segments begin at multiples of 32 rows, so every offset is aligned where a row's width is.
  switch (product) {
    case Product::forward: return aligned(rows.x, weight.cols) && aligned(weight.data, weight.stride);
    case Product::dgrad: return aligned(rows.x, weight.rows) && aligned(weight.data, weight.stride);
    case Product::weight_grad: return aligned(rows.x, weight.cols) && aligned(rows.y, weight.rows);
  }
  return false;
}

void launch_wgmma(cudaStream_t stream, Workspace workspace, Product product, const Rows<bfloat16>& rows,
                  std::span<const Weight> weights, Kernel kernel) {
  switch (product) {
    case Product::forward: return launch<Product::forward>(stream, workspace, rows, weights, kernel);
    case Product::dgrad: return launch<Product::dgrad>(stream, workspace, rows, weights, kernel);
    case Product::weight_grad: return launch<Product::weight_grad>(stream, workspace, rows, weights, kernel);
  }
}

}  // namespace lyceum::grouped
