#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "core/dtype.h"
#include "core/stream.h"
#include "kernels/gemm_choosing.h"

/// Which algorithm multiplies matrices on a GPU: chosen once for every shape and kept by the stream. As plain data a
/// choice can be sent to other ranks and to later runs, which then get the same bits. Streams of other devices have no
/// choice: these functions do nothing to them.
namespace lyceum {

/// All of a Gemm that the choice of an algorithm may depend on.
struct GemmShape {
  std::int64_t m, n, k, a_stride, b_stride, c_stride;
  bool transpose_a, transpose_b, accumulate;
  DType in, out;
  std::uint32_t a_alignment, b_alignment, c_alignment;  // bytes, a power of two up to 256
  /// Products of this shape at once, over parts of a longer sum: k further on in a and b, results one behind the other.
  std::int32_t batch = 1;
  auto operator<=>(const GemmShape&) const = default;
};

struct GemmAlgorithm {
  /// A cublasLtMatmulAlgo_t, which NVIDIA lets be stored for the same version of the library.
  std::array<std::uint64_t, 8> bits{};
  std::int32_t proposal = 0;  // its place among the library's proposals
  bool operator==(const GemmAlgorithm&) const = default;
};
using GemmChoices = std::map<GemmShape, GemmAlgorithm>;

/// For shapes that come from now on; forgets what was chosen.
void set_gemm_choosing(const Stream& stream, GemmChoosing choosing);
/// Where choices hold: "NVIDIA H100 80GB HBM3, cuBLASLt 130100". Empty on streams that choose nothing.
std::string gemm_device(const Stream& stream);
/// What was chosen or pinned so far.
GemmChoices gemm_choices(const Stream& stream);
/// Takes these algorithms from now on, also where others were chosen. They must be of the same gemm_device(). The first
/// product of a shape whose algorithm the library refuses throws a bad_input Error.
void pin_gemms(const Stream& stream, const GemmChoices& choices);

}  // namespace lyceum
