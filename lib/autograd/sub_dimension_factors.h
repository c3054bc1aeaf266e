#pragma once

#include <cstdint>

#include "autograd/tape.h"
#include "kernels/sub_dimension_scaling.h"

/// The factors of MoHD's sub-dimensions: their computation, their use on the input of a half, and their sums for the
/// balance loss. sub_dimensions.h has the products that read and write sub-dimensions.
namespace lyceum {

/// Returns `index`, [tokens, k], as a matrix; also if k is 0, for which Tensor::matrix() has no rows.
inline Matrix<const std::int32_t> matrix_of_choices(const Tensor& index) {
  return {index.data<const std::int32_t>(), index.shape()[0], index.shape()[1]};
}

/// y = x with sub-dimension i of token t multiplied by factors[t, i]: the input of ReadSubDimensions with
/// sub_dimensions.input_gates. x, y [tokens, hidden], factors [tokens, sub_dimensions] in accumulator precision.
struct ScaleSubDimensions {
  struct Saved {
    Tensor x, factors;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& factors) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// Computes the factors [tokens, sub_dimensions] of WriteSubDimensions from the router's logits of the same shape, see
/// compute_factors().
struct FactorsOfSubDimensions {
  Tensor index;  // i32 [tokens, k]
  std::int64_t always_on;
  SubDimensionScaling scaling;

  struct Saved {
    Tensor logits;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_factors) const;
};

/// Computes load, f64 [sequences, load_width(sub_dimensions)], from factors [tokens, sub_dimensions], for the balance
/// loss; see SubDimensionLoad. Row 0 of the factors is token `first` of `sequences` sequences of seq_len tokens each.
struct LoadOfSubDimensions {
  Tensor index;  // i32 [tokens, k]
  std::int64_t sequences, seq_len, first;

  struct Saved {
    Tensor factors;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& factors) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_load) const;
};

}  // namespace lyceum
