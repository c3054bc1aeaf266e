#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "core/dtype.h"
#include "core/stream.h"
#include "kernels/gemm_choice_method.h"

// The choice of the cuBLASLt algorithm for matrix products on a GPU. An algorithm is chosen once per shape and stored
// in the stream. Choices are plain data: a caller can send them to other ranks or save them for later runs, which then
// compute the same bits. Only CUDA streams have choices; on other streams these functions do nothing and return empty
// values.
namespace lyceum {

/// The properties of a Gemm that the choice of an algorithm may depend on. Strides are in elements.
struct GemmShape {
  std::int64_t m, n, k, a_stride, b_stride, c_stride;
  bool transpose_a, transpose_b, accumulate;
  DType in, out;
  std::uint32_t a_alignment, b_alignment, c_alignment;  // of the first element: bytes, a power of two up to 256
  /// The number of products computed together; the result of product i follows that of product i − 1 in memory. Unless
  /// `separate`, a sum of depth batch · k is divided into `batch` chunks: product i reads a and b from depth i · k on.
  std::int32_t batch = 1;
  bool separate = false;  // a batch of independent products, whose matrices a and b follow each other in memory, too
  auto operator<=>(const GemmShape&) const = default;
};

/// An algorithm of cuBLASLt.
struct GemmAlgorithm {
  /// The bits of a cublasLtMatmulAlgo_t. NVIDIA permits storing them for use with the same version of the library.
  std::array<std::uint64_t, 8> bits{};
  std::int32_t proposal = 0;  // index among the library's proposals for the shape
  bool operator==(const GemmAlgorithm&) const = default;
};
using GemmChoices = std::map<GemmShape, GemmAlgorithm>;

/// Sets the method by which algorithms are chosen from now on, and discards all choices made so far.
void set_gemm_choice_method(const Stream& stream, GemmChoiceMethod method);
/// Returns the device and library version for which the stream's choices are valid: "NVIDIA H100 80GB HBM3, cuBLASLt
/// 130100". Empty unless the stream is a CUDA stream.
std::string gemm_device(const Stream& stream);
/// Returns all algorithms that have been chosen or pinned so far.
GemmChoices gemm_choices(const Stream& stream);
/// Sets the algorithms for these shapes, replacing earlier choices. They must come from a stream with the same
/// gemm_device(). If the library rejects an algorithm, the first product of its shape throws a bad_input Error.
void pin_gemms(const Stream& stream, const GemmChoices& choices);

}  // namespace lyceum
