#include <cmath>
#include <optional>
#include <type_traits>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_wgmma_launch.cuh"

namespace lyceum::grouped {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// Returns the driver's cuTensorMapEncodeTiled, looked up at run time: a program linked with the driver would not start
/// on machines without one. Throws an Error if the driver has no such function.
Encode encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  require(found == cudaDriverEntryPointSuccess && function, "the CUDA driver has no cuTensorMapEncodeTiled: update it");
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap map_of(int lines, void* somewhere) {
  CUtensorMap map;
  const cuuint64_t extents[2] = {64, static_cast<cuuint64_t>(lines)}, strides[1] = {128};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(lines)}, steps[2] = {1, 1};
  static const Encode encode = encoder();
  const CUresult code = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, somewhere, extents, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(code == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error {}", static_cast<int>(code));
  return map;
}

namespace {

/// Upper bound of the size of a matrix that rows are picked from: their offsets are 32-bit counts of 16 bytes.
constexpr std::int64_t max_picked_units = 0xffffffff;

bool aligned(const void* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool wgmma_supports(Product product, const Rows<bfloat16>& rows, const Weight& weight) {
  if (weight.rows == 0 || weight.cols == 0) return false;
  // Segments begin at multiples of 32 rows, so every offset is aligned if the width of rows is.
  const auto takes = [](const void* data, std::int64_t width, const PickedFrom& from) {
    // Stride is 0 if rows are not picked.
    return aligned(data, width) && from.stride % 8 == 0 && from.rows * from.stride / 8 < max_picked_units;
  };
  const bool x_rows = takes(rows.x, x_width(product, weight), rows.picked_x);
  switch (product) {
    case Product::forward:
    case Product::dgrad: return x_rows && aligned(weight.data, weight.stride);
    case Product::weight_grad: return x_rows && takes(rows.y, weight.rows, rows.picked_dy);
  }
  return false;
}

namespace {

template <class Tiling>
void run_weight_grad(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  using Act = NoActivation;
  constexpr Product product = Product::weight_grad;
  switch (picked_operand(product, rows)) {
    case Pick::none: return run_tiles<product, Pick::none, Act, Tiling>(launch, rows, weights);
    case Pick::a: return run_tiles<product, Pick::a, Act, Tiling>(launch, rows, weights);
    case Pick::b:  // threads copy b, which only TMA could load for several blocks
      using Apart = std::conditional_t<Tiling::cluster == 1, Tiling, PingPongTiling>;
      return run_tiles<product, Pick::b, Act, Apart>(launch, rows, weights);
  }
}

/// Estimates the cost of weight gradients in the tiles of `Tiling`, in elements of a block's tiles, assuming that all
/// experts have equally many rows of tokens: the blocks compute their tiles in rounds, and a tile at the edge costs as
/// much as a whole one. Ping-pong tiles take 1.17 times as long per element, and loading_factor() holds for them, too,
/// as measured on an H200 with 63 experts of DeepSeekMoE-2B (docs/cuda.md).
template <class Tiling>
double weight_grad_cost(const Launch& launch, std::span<const Weight> weights) {
  using Tile = TileOf<Product::weight_grad, NoActivation, Tiling>;
  double tiles = 0, loading = 0;
  for (const Weight& weight : weights) {
    const std::int64_t down = round_up<std::int64_t>(weight.rows, Tile::m) / Tile::m;
    const auto of_expert = static_cast<double>(down * (round_up<std::int64_t>(weight.cols, Tile::n) / Tile::n));
    tiles += of_expert;
    loading += of_expert * loading_factor<Tiling>(weight.cols);
  }
  const double rounds = std::ceil(tiles * Tiling::cluster / persistent_processors(launch.stream));
  return rounds * Tiling::m * Tiling::n * (Tiling::ping_pong ? 1.17 : 1) * loading / tiles;
}

/// Returns the kernel with the lowest weight_grad_cost(). For many experts these are cooperative tiles; for one expert
/// ping-pong tiles, which are smaller and so use more multiprocessors; for weights whose rows are not whole cache lines
/// clusters. Products with picked rows of x cannot use clusters, see run_weight_grad().
Kernel cheapest_weight_grad(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights) {
  Kernel kernel = Kernel::cooperative;
  double least = weight_grad_cost<CooperativeTiling>(launch, weights);
  const auto consider = [&](Kernel other, double cost) {
    if (cost < least) kernel = other, least = cost;
  };
  consider(Kernel::ping_pong, weight_grad_cost<PingPongTiling>(launch, weights));
  if (picked_operand(Product::weight_grad, rows) != Pick::b) {
    consider(Kernel::clustered, weight_grad_cost<ClusteredPingPongTiling>(launch, weights));
  }
  return kernel;
}

}  // namespace

void run_wgmma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  using Act = NoActivation;
  switch (launch.product) {
    case Product::forward: return run_rows<Product::forward, Act>(launch, rows, weights, kernel);
    case Product::dgrad: return run_rows<Product::dgrad, Act>(launch, rows, weights, kernel);
    case Product::weight_grad: break;
  }
  if (kernel == Kernel::automatic) kernel = cheapest_weight_grad(launch, rows, weights);
  switch (kernel) {
    case Kernel::cooperative: return run_weight_grad<CooperativeTiling>(launch, rows, weights);
    case Kernel::clustered: return run_weight_grad<ClusteredPingPongTiling>(launch, rows, weights);
    default: return run_weight_grad<PingPongTiling>(launch, rows, weights);
  }
}

}  // namespace lyceum::grouped

namespace lyceum {

namespace {

/// Caches can_run_hopper_kernels(). A build for another architecture may also run on an sm_90 GPU, but then the wgmma
/// kernel is the empty variant, which is recognised by its few registers.
struct Hopper {
  std::optional<bool> here;

  static bool look(int device) {
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    if (major != 9 || minor != 0) return false;
    cudaFuncAttributes kernel;
    check(cudaFuncGetAttributes(&kernel, grouped::wgmma_kernel<grouped::Product::forward, grouped::Pick::none,
                                                               grouped::NoActivation, grouped::CooperativeTiling>),
          "cudaFuncGetAttributes");
    return kernel.numRegs > 128;
  }
};

}  // namespace

bool can_run_hopper_kernels(const CudaStream& stream) {
  std::optional<bool>& here = stream.keep<Hopper>().here;
  if (!here) here = Hopper::look(stream.device());
  return *here;
}

}  // namespace lyceum
