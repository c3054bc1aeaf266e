#pragma once

#include <memory>

#include "autograd/tape.h"
#include "autograd/token_rows.h"
#include "kernels/segments.h"

namespace lyceum {

/// The sub-dimensions that each token of a pass uses. MoHD divides the hidden width into `sub_dimensions` equal
/// sub-dimensions. Every token uses the first `always_on` of them and the k that its router chose.
struct SubDimensionChoices {
  std::int64_t sub_dimensions, always_on;
  Tensor index;                                  // i32 [tokens, k]; k may be 0
  std::shared_ptr<const SegmentTable> segments;  // one segment per sub-dimension: the rows of the tokens that chose it
  TokenRows rows;                                // the token of each row
  Tensor source;                                 // i64 [rows], see SubDimensionRows::source

  /// For k = 0: tokens choose nothing and use only the first `always_on` sub-dimensions, so there are no rows.
  SubDimensionChoices(const Stream& stream, std::int64_t sub_dimensions, std::int64_t always_on, std::int64_t tokens);
  /// For k > 0. `segments`, `rows`: the rows of the tokens that chose each sub-dimension, and their mapping to tokens.
  SubDimensionChoices(const Stream& stream, std::int64_t sub_dimensions, std::int64_t always_on, Tensor index,
                      std::shared_ptr<const SegmentTable> segments, TokenRows rows);
};

/// y = x · Wᵀ with only those sub-dimensions of x that a token uses; the others count as zero but are not multiplied.
/// One product computes the sub-dimensions that are always on, and a grouped product the chosen ones. x [tokens,
/// hidden], W [out, hidden], y [tokens, out].
struct ReadSubDimensions {
  std::shared_ptr<const SubDimensionChoices> choices;
  Parameter* weight;

  /// `d_rows`: dy of each row, computed by backward for weight_grad.
  struct Saved {
    Tensor x, d_rows;
    SegmentLayout sub_dimension, out;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// y = z · Wᵀ, computed only for the sub-dimensions that a token uses and zero in the others. Sub-dimension i is
/// multiplied by factors[t, i]. z [tokens, in], factors [tokens, sub_dimensions] in accumulator precision, W [hidden,
/// in], y [tokens, hidden].
struct WriteSubDimensions {
  std::shared_ptr<const SubDimensionChoices> choices;
  Parameter* weight;

  /// `dense`, `rows`: results before the factors, for the sub-dimensions that are always on and the chosen ones.
  /// `d_dense`, `d_rows`: their gradients, computed by backward for weight_grad.
  struct Saved {
    Tensor z, factors, dense, rows, d_dense, d_rows;
    SegmentLayout in, sub_dimension;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& z, const Tensor& factors) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

}  // namespace lyceum
