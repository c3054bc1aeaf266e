#include <optional>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/grouped_wgmma_launch.cuh"

namespace lyceum::grouped {

namespace {

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

}  // namespace

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

namespace {

/// Picked rows are named by the distance from the first one in units of 16 bytes, in 32 bits.
constexpr std::int64_t max_place = 0xffffffff;

bool aligned(const void* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool wgmma_takes(Product product, const Rows<bfloat16>& rows, const Weight& weight) {
  if (weight.rows == 0 || weight.cols == 0) return false;
  // Segments begin at multiples of 32 rows, so every offset is aligned where a row's width is.
  const bool x_rows = aligned(rows.x, x_width(product, weight)) && rows.x_stride % 8 == 0 &&
                      rows.x_rows * rows.x_stride / 8 < max_place;  // 0 where none is picked
  switch (product) {
    case Product::forward:
    case Product::dgrad: return x_rows && aligned(weight.data, weight.stride);
    case Product::weight_grad: return x_rows && aligned(rows.y, weight.rows);
  }
  return false;
}

void run_wgmma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel) {
  const bool picked = rows.picked != nullptr;
  using Act = NoActivation;
  using Tiling = CooperativeTiling;
  switch (launch.product) {
    case Product::forward:
      return picked ? run_cheaper_tiles<Product::forward, true, Act>(launch, rows, weights, kernel)
                    : run_cheaper_tiles<Product::forward, false, Act>(launch, rows, weights, kernel);
    case Product::dgrad: return run_cheaper_tiles<Product::dgrad, false, Act>(launch, rows, weights, kernel);
    case Product::weight_grad:
      return picked ? run_tiles<Product::weight_grad, true, Act, Tiling>(launch, rows, weights)
                    : run_tiles<Product::weight_grad, false, Act, Tiling>(launch, rows, weights);
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
    check(
        cudaFuncGetAttributes(
            &kernel,
            grouped::wgmma_kernel<grouped::Product::forward, false, grouped::NoActivation, grouped::CooperativeTiling>),
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
