#include <cuda.h>

#include <optional>

#include "core/allocator.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_plan.cuh"
#include "kernels/cuda/grouped_wgmma_block.cuh"
#include "kernels/cuda/grouped_wgmma_layout.h"
#include "kernels/cuda/machine_hopper.cuh"

namespace lyceum::grouped {

namespace {

/// k of every expert with tiles is at least 1.
template <Product product, bool picked, class Tiling>
__global__ void __launch_bounds__(Tiling::threads, 1)
    wgmma_kernel(Plan plan, const CUtensorMap* a_maps, const CUtensorMap* b_maps) {
#ifdef LYCEUM_HOPPER
  run_block<product, picked, Tiling>(cuda::HopperMachine(launched_shared()), plan, a_maps, b_maps);
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
    write_map(a + slot, a_template, lines_of_a(product, expert));
    write_map(b + slot, b_template, lines_of_b(product, expert));
#endif
  }
  __device__ void finish() const {
#ifdef LYCEUM_HOPPER
    hopper::tensor_map_release();
#endif
  }

 private:
#ifdef LYCEUM_HOPPER
  __device__ static void write_map(CUtensorMap* map, const CUtensorMap& like, const Lines& lines) {
    const auto* from = reinterpret_cast<const std::uint64_t*>(&like);
    auto* to = reinterpret_cast<std::uint64_t*>(map);
    for (int i = 0; i < 16; ++i) to[i] = from[i];
    hopper::tensor_map_replace(map, lines.data, max(lines.width, 1), max(lines.count, 1),
                               static_cast<std::uint64_t>(lines.stride) * 2);
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
  count_product(launch, Tiling::ping_pong ? Kernel::ping_pong : Kernel::cooperative);
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
