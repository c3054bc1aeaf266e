#include <cuda.h>

#include <optional>

#include "core/allocator.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/ptx.cuh"
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

  /// `loaders`: threads that arrive at a full barrier.
  __device__ void initialise(int loaders) const {
    for (int stage = 0; stage < Tiling::stages; ++stage) {
      hopper::mbarrier_init(full(stage), loaders);
      hopper::mbarrier_init(empty(stage), Tiling::arrivals);
    }
    for (int group = 0; group < 2; ++group) hopper::mbarrier_init(order(group), 4);
    hopper::fence_barrier_init();
  }
};

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

/// The same where rows of x are picked: all threads of the warpgroup copy those, and one of them loads the other
/// operand.
template <Product product, class Tiling>
__device__ __forceinline__ void produce_picked(const Plan& plan, const CUtensorMap* maps,
                                               const Stages<Tiling>& stages) {
  constexpr bool of_a = product == Product::forward;
  using Copies = PickedCopies<of_a, of_a ? Tiling::m : Tiling::n>;
  const int thread = threadIdx.x;
  Turn<Tiling::stages> turn;
  std::int32_t acquired = -1;
  each_tile<Tiling>(plan, [&](std::int32_t slot, const Expert& expert, Corner corner) {
    if (thread == 0 && slot != acquired) hopper::tensor_map_acquire(maps + slot);
    acquired = slot;
    const std::int32_t depth = expert.k;
    const std::int32_t width = of_a ? depth : expert.n, lines = of_a ? expert.filled : depth;
    const auto stride = static_cast<std::uint32_t>((of_a ? expert.a_stride : expert.b_stride) / 8);
    const auto* const x = static_cast<const uint4*>(of_a ? expert.a : expert.b);
    constexpr std::uint32_t none = ~0u;
    std::uint32_t place[Copies::count];  // of rows in x, in units of 16 bytes: one register each, not an address
    const auto look_up = [&](std::int32_t first) {
#pragma unroll
      for (int i = 0; i < Copies::count; ++i) {
        const std::int32_t line = first + Copies::line(thread, i);
        const std::int32_t row = line < lines ? __ldg(expert.picked + line) : -1;
        place[i] = row < 0 ? none : static_cast<std::uint32_t>(row) * stride;
      }
    };
    look_up(of_a ? corner.m : 0);
    for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
      hopper::mbarrier_wait(stages.empty(turn.stage), turn.parity ^ 1);
      const std::uint32_t full = stages.full(turn.stage);
      if (thread == 0) {
        hopper::mbarrier_arrive_expect(full, of_a ? Tiling::b_bytes : Tiling::a_bytes);
        if constexpr (of_a) {
          load<b_along_k(product), Tiling::n>(stages.b(turn.stage), maps + slot, full, corner.n, k);
        } else {
          load<a_along_k(product), Tiling::m>(stages.a(turn.stage), maps + slot, full, corner.m, k);
        }
      }
      const std::uint32_t to = of_a ? stages.a(turn.stage) : stages.b(turn.stage);
#pragma unroll
      for (int box = 0; box < Copies::boxes; ++box) {
        const std::int32_t element = (of_a ? k : corner.n) + Copies::element(thread, box);
#pragma unroll
        for (int i = 0; i < Copies::count; ++i) {
          const bool present = place[i] != none && element < width;
          const uint4* const from = x + (present ? place[i] + static_cast<std::uint32_t>(element) / 8 : 0u);
          ptx::copy_async_16(to + Copies::offset(thread, i, box), from, present ? 16 : 0);
        }
      }
      hopper::mbarrier_arrive_after_copies(full);
      if constexpr (!of_a) look_up(k + Tiling::k);  // before the wait for the next stage
    }
  });
  ptx::wait_copies();
}

/// Accumulators of 64 rows of a tile a block.
template <class Tiling>
using Accumulators = float[Tiling::blocks][Tiling::n / 2];

/// c = the first `Width` columns of the product, for the rows of the tile from `row` on. Stages are given back one step
/// late, when the tensor cores have surely read them. Calls seen() when the last stage is there.
template <Product product, bool picked, class Tiling, int Width, class Seen>
__device__ __forceinline__ void multiply(Accumulators<Tiling>& c, const Stages<Tiling>& stages,
                                         Turn<Tiling::stages>& turn, int row, std::int32_t depth, Seen&& seen) {
  const bool speaks = threadIdx.x % 32 == 0;
  int last = -1;
  for (std::int32_t k = 0; k < depth; k += Tiling::k, turn.next()) {
    hopper::mbarrier_wait(stages.full(turn.stage), turn.parity);
    if constexpr (picked) hopper::fence_async_proxy();  // threads wrote it, not TMA
    hopper::pin(c);
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
    hopper::pin(c);
    hopper::wgmma_wait<1>();
    if (last >= 0 && speaks) hopper::mbarrier_arrive(stages.empty(last));
    last = turn.stage;
  }
  seen();
  hopper::wgmma_wait<0>();
  hopper::pin(c);
  if (speaks) hopper::mbarrier_arrive(stages.empty(last));
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
        word[i] = filled ? ptx::bf16_pair(pair[0], pair[1]) : 0u;
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
template <Product product, bool picked, class Tiling>
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
      multiply<product, picked, Tiling, Tiling::n>(c, stages, turn, begin, expert.k, seen);
    } else {
      multiply<product, picked, Tiling, narrow>(c, stages, turn, begin, expert.k, seen);
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

/// A persistent block: warpgroup 0 loads by TMA, and picked rows by copies; 1 and 2 multiply. k of every expert with
/// tiles is at least 1.
template <Product product, bool picked, class Tiling>
__global__ void __launch_bounds__(Tiling::threads, 1)
    wgmma_kernel(Plan plan, const CUtensorMap* a_maps, const CUtensorMap* b_maps) {
#ifdef LYCEUM_HOPPER
  const Stages<Tiling> stages{(ptx::shared_address(launched_shared()) + 1023) / 1024 * 1024};
  if (threadIdx.x == 0) stages.initialise(picked ? 1 + 128 : 1);
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    if constexpr (picked) {
      hopper::give_registers<40>();
      produce_picked<product, Tiling>(plan, product == Product::forward ? b_maps : a_maps, stages);
    } else {
      hopper::give_registers<24>();
      if (threadIdx.x == 0) produce<product, Tiling>(plan, a_maps, b_maps, stages);
    }
  } else {
    hopper::take_registers<picked ? 232 : 240>();
    consume<product, picked, Tiling>(plan, stages, group - 1);
  }
#else
  __trap();  // hopper_is_here() keeps launches away
#endif
}

/// Tensor maps of every expert's operands, written with the plan: the templates have the boxes and the swizzle, and
/// address, extents and strides are replaced.
struct TensorMaps {
  CUtensorMap a_template, b_template;
  Product product;
  CUtensorMap *a, *b;  // by slot

  __device__ void write([[maybe_unused]] const Expert& expert, [[maybe_unused]] std::int32_t slot) const {
#ifdef LYCEUM_HOPPER
    const bool a_k = a_along_k(product), b_k = b_along_k(product);
    write_map(a + slot, a_template, expert.a, expert.a_stride, a_k ? expert.k : expert.m,
              a_k ? expert.filled : expert.k);
    write_map(b + slot, b_template, expert.b, expert.b_stride, b_k ? expert.k : expert.n, b_k ? expert.n : expert.k);
#endif
  }
  __device__ void finish() const {
#ifdef LYCEUM_HOPPER
    hopper::tensor_map_release();
#endif
  }

 private:
#ifdef LYCEUM_HOPPER
  /// For `lines` lines of `width` elements.
  __device__ static void write_map(CUtensorMap* map, const CUtensorMap& like, const void* data, std::int64_t stride,
                                   std::int32_t width, std::int32_t lines) {
    const auto* from = reinterpret_cast<const std::uint64_t*>(&like);
    auto* to = reinterpret_cast<std::uint64_t*>(map);
    for (int i = 0; i < 16; ++i) to[i] = from[i];
    hopper::tensor_map_replace(map, data, max(width, 1), max(lines, 1), static_cast<std::uint64_t>(stride) * 2);
  }
#endif
};

using Encode = decltype(&cuTensorMapEncodeTiled);

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

template <Product product, bool picked, class Tiling>
void run_tiles(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  const std::shared_ptr<std::byte> memory =
      launch.stream.memory().allocate(2 * weights.size() * sizeof(CUtensorMap), MemoryKind::buffers);
  auto* const a_maps = reinterpret_cast<CUtensorMap*>(memory.get());
  auto* const b_maps = a_maps + weights.size();
  const TensorMaps maps{map_of(a_along_k(product) ? Tiling::m : 64, a_maps),
                        map_of(b_along_k(product) ? Tiling::n : 64, b_maps), product, a_maps, b_maps};
  const MadePlan made = make_plan(launch, rows, weights, Tiling::m, Tiling::n, maps);
  start_shared(launch.stream, launch.name, wgmma_kernel<product, picked, Tiling>,
               static_cast<unsigned>(launch.stream.processors()), Tiling::threads, Tiling::shared_bytes, made.plan,
               a_maps, b_maps);
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

template <Product product, bool picked>
void run_product(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  if constexpr (product != Product::weight_grad) {  // whose sums run over rows, and are long
    const bool ping_pong = kernel == Kernel::automatic
                               ? cost<PingPongTiling>(product, weights) < cost<CooperativeTiling>(product, weights)
                               : kernel == Kernel::ping_pong;
    if (ping_pong) return run_tiles<product, picked, PingPongTiling>(launch, rows, weights);
  }
  run_tiles<product, picked, CooperativeTiling>(launch, rows, weights);
}

/// Picked rows are named by the distance from the first one in units of 16 bytes, in 32 bits.
constexpr std::int64_t max_place = 0xffffffff;

bool aligned(const void* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool wgmma_takes(Product product, const Rows<bfloat16>& rows, const Weight& weight) {
  if (weight.rows == 0 || weight.cols == 0) return false;
  // Segments begin at multiples of 32 rows, so every offset is aligned where a row's width is.
  const bool x_rows = aligned(rows.x, x_width(product, weight)) &&
                      (!rows.picked || (rows.x_stride % 8 == 0 && rows.x_rows * rows.x_stride / 8 < max_place));
  switch (product) {
    case Product::forward:
    case Product::dgrad: return x_rows && aligned(weight.data, weight.stride);
    case Product::weight_grad: return x_rows && aligned(rows.y, weight.rows);
  }
  return false;
}

void run_wgmma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  const bool picked = rows.picked != nullptr;
  switch (launch.product) {
    case Product::forward:
      return picked ? run_product<Product::forward, true>(launch, rows, weights, kernel)
                    : run_product<Product::forward, false>(launch, rows, weights, kernel);
    case Product::dgrad: return run_product<Product::dgrad, false>(launch, rows, weights, kernel);
    case Product::weight_grad:
      return picked ? run_product<Product::weight_grad, true>(launch, rows, weights, kernel)
                    : run_product<Product::weight_grad, false>(launch, rows, weights, kernel);
  }
}

}  // namespace lyceum::grouped

namespace lyceum {

namespace {

/// Code made for another architecture may run on a GPU of sm_90 too, but then the kernel is the empty one, which needs
/// few registers.
struct Hopper {
  std::optional<bool> here;

  static bool look(int device) {
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    if (major != 9 || minor != 0) return false;
    cudaFuncAttributes kernel;
    check(cudaFuncGetAttributes(&kernel,
                                grouped::wgmma_kernel<grouped::Product::forward, false, grouped::CooperativeTiling>),
          "cudaFuncGetAttributes");
    return kernel.numRegs > 128;
  }
};

}  // namespace

bool hopper_is_here(const CudaStream& stream) {
  std::optional<bool>& here = stream.keep<Hopper>().here;
  if (!here) here = Hopper::look(stream.device());
  return *here;
}

}  // namespace lyceum
