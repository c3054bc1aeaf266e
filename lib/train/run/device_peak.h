#pragma once

#include "core/stream.h"
#include "core/tensor.h"

/// The peak rate of one device, as specified by its manufacturer or as measured with matrix products.
namespace lyceum {

/// The specified peak rates of a GPU, for dense products with f32 accumulation. 0 if unknown.
struct StatedPeaks {
  double bf16_flops = 0, f32_flops = 0;  // FLOP/s
  double bytes = 0;                      // bytes per second of device memory
};
/// Returns the specified peaks of a GPU. `gpu`: its name as the driver reports it, "NVIDIA H100 80GB HBM3".
StatedPeaks stated_peaks(std::string_view gpu);

/// The rate of the fastest of several equal matrix products.
struct GemmPeak {
  double flops;       // FLOP/s
  std::int64_t size;  // rows and columns of the matrices
};

/// Returns the number of rows of square matrices whose product reaches the peak of a stream. On a CPU, 512 for one
/// thread and more for more threads, so that a product takes some milliseconds. On a GPU, the least power of two, from
/// 512 to 8192, for which a product takes at least a millisecond; this is measured.
std::int64_t peak_gemm_size(const Stream& stream, DType type);

/// Measures the rate of square GEMMs of peak_gemm_size() in `type` on this stream. Takes about 0.2 s, and more on a
/// GPU, where the size is measured first.
GemmPeak measure_gemm_peak(const Stream& stream, DType type);

/// The operands of a matrix product that is repeated for measurements: three square matrices.
class GemmLoad {
 public:
  /// Allocates matrices of `size` rows and fills them with random numbers.
  GemmLoad(const Stream& stream, DType type, std::int64_t size);
  /// Multiplies once and waits for the result. Returns the FLOPs of the product.
  double multiply() const;

 private:
  const Stream stream_;
  DType type_;
  Tensor a_, b_, c_;
};

}  // namespace lyceum
