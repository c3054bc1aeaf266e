#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/tensor.h"

namespace lyceum {

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
