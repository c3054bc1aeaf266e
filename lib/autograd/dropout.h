#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/range.h"
#include "kernels/dropout.h"

namespace lyceum {

/// A DropoutMask that owns its `step`, so that backward finds the mask of forward.
struct DropoutSource {
  std::uint64_t seed;
  std::int64_t site, first;  // first: index in the step's batch of the token in row 0
  Tensor step;               // f64 [1]: number of the step
  std::int64_t block = 1, seq_len = 1;

  DropoutMask mask() const;
};

/// y = x · m / (1 − rate) with a random mask m, both [tokens, columns]; see ApplyDropout.
struct Dropout {
  DropoutSource source;
  double rate;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// Dropout with a learnt rate: y = x · (1 − z) / (1 − p), both [tokens, columns]; see ApplyConcreteDropout.
struct ConcreteDropout {
  DropoutSource source;              // with block = 1
  Parameter* logit;                  // [1]: log p − log(1 − p)
  std::optional<Range> graded = {};  // rows of dy that this rank adds to the logit's gradient; unset: all

  struct Saved {
    Tensor x;
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  /// Returns the gradient of x and adds that of the logit.
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {logit}; }
  bool weights_in_backward() const { return true; }
  void weight_grad(const Stream&, Saved&, const Tensor&) const {}

 private:
  Tensor apply(const Stream& stream, const Tensor& x) const;
  void add_logit_gradient(const Stream& stream, const Saved& saved, const Tensor& dy) const;
};

/// The regulariser of ConcreteDropout, a scalar [1] in accumulator precision; see lyceum::ConcreteRegulariser.
struct RegulariseDropout {
  Parameter* logit;  // [1]
  double norm_factor, entropy_factor;
  bool graded = true;  // false: another rank adds the gradient of the logit to the sum over ranks

  struct Saved {
    Tensor squares;
  };
  /// `squares`: one element, the sum of the squared weights.
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& squares) const;
  /// Returns the gradient of `squares` and adds that of the logit.
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {logit}; }
  bool weights_in_backward() const { return true; }
  void weight_grad(const Stream&, Saved&, const Tensor&) const {}
};

}  // namespace lyceum
