#pragma once

#include "autograd/tape.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Σ_t −log softmax(x[t] · Wᵀ)[targets[t]]: a scalar in accumulator precision, in nats. x [tokens, hidden], W [words of
/// this rank, hidden]. The ranks of a group share the words: they send each other three numbers a token, forwards only;
/// all get the same loss, which counts once, and partial sums of dx.
///
/// The logits of at most `chunk` tokens are there at a time. Those of all tokens are kept and turned into their
/// gradient in place. Where there are more tokens than that, backward makes the logits of one chunk after another
/// again, and of their gradient rows of dx and, in the same sweep, a part of the weight gradient.
struct LinearCrossEntropy {
  Parameter* weight;
  Tensor targets;      // i32 [tokens], in the whole vocabulary, or no_target
  std::int64_t chunk;  // tokens; 0: all
  const ProcessGroup* group;
  Range words;  // this rank's
  std::int64_t vocab;
  Tensor losses = {};  // [tokens] in accumulator precision, where defined: takes the loss of each token

  struct Saved {
    Tensor x, log_sum_exp;
    Tensor logits;  // then their gradient; undefined where they are made again
  };
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  bool weights_in_backward() const { return !keeps_logits(chunk, targets.size()); }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy) const;

  /// Whether one chunk has all tokens.
  static bool keeps_logits(std::int64_t chunk, std::int64_t tokens) { return chunk == 0 || chunk >= tokens; }
};

}  // namespace lyceum
