#pragma once

#include "core/stream.h"
#include "core/tensor.h"

/// The peak of one device: as its maker states it, or as matrix products reach it.
namespace lyceum {

/// Peaks that the maker of a GPU states, per second, for dense products with f32 accumulation. 0 if unknown.
struct StatedPeaks {
  double bf16_flops = 0, f32_flops = 0;
  double bytes = 0;  // of device memory
};
/// `gpu`: the name that the driver has for it, "NVIDIA H100 80GB HBM3".
StatedPeaks stated_peaks(std::string_view gpu);

struct GemmPeak {
  double flops;       // a second
  std::int64_t size;  // rows and columns of the matrices
};

/// Rows of the square matrices that reach a stream's peak: 512 for one thread, and more for more of them, so that a
/// product always takes some milliseconds of a core; on a GPU so many that it lasts a millisecond, up to 8192.
std::int64_t peak_gemm_size(const Stream& stream, DType type);

/// The best of several square GEMMs in `type` on this stream alone. Takes about 0.2 s.
GemmPeak measure_gemm_peak(const Stream& stream, DType type);

/// Keeps the matrices of repeated products.
class GemmLoad {
 public:
  /// Square matrices of `size` rows.
  GemmLoad(const Stream& stream, DType type, std::int64_t size);
  /// Multiplies once, and waits for the result. Returns the FLOPs.
  double multiply() const;

 private:
  const Stream stream_;
  DType type_;
  Tensor a_, b_, c_;
};

}  // namespace lyceum
