#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/qk_clip.h"

namespace lyceum {

/// Measures the largest score of each head of an attention, if the caller has memory for it. Pass of_queries() to the
/// kernel AttentionForward, then call raise(). A is the accumulator type of the attention.
template <class A>
class LargestLogits {
 public:
  /// `of_heads`: f64 [heads], receives the largest scores; if it is undefined, nothing is measured. `rows`: queries.
  LargestLogits(const Stream& stream, const Tensor& of_heads, std::int64_t rows) : of_heads_(of_heads) {
    if (of_heads.defined()) of_queries_ = Tensor::empty(stream, dtype_of<A>, {rows, of_heads.size()});
  }
  /// Returns memory for AttentionForward::largest; empty if nothing is measured.
  Matrix<A> of_queries() const { return of_queries_.defined() ? of_queries_.matrix<A>() : Matrix<A>(); }
  /// Sets the largest score of each head to the maximum of its present value and the scores of all queries.
  void raise(const Stream& stream) const {
    if (!of_heads_.defined()) return;
    launch(stream, RaiseToColumns<A>{.x = of_queries_.matrix<const A>(), .y = of_heads_.span<double>()});
  }

 private:
  Tensor of_heads_, of_queries_;
};

}  // namespace lyceum
