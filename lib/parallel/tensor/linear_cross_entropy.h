#pragma once

#include <array>

#include "autograd/tape.h"
#include "core/range.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Computes Σ_t −log softmax(x[t] · Wᵀ)[targets[t]], a scalar in accumulator precision, in nats. Tokens whose target is
/// no_target do not count. x [tokens, hidden], W [words of this rank, hidden]. The words are divided among the ranks of
/// `group`. The ranks exchange three numbers per token in the forward pass, and none in the backward pass. All ranks
/// get the same loss, which is a single loss and not one per rank, and partial sums of dx, which the caller must sum
/// over the group.
///
/// The second result with `z` is Σ_t (log Σ_v exp(x[t] · W[v]))², over the same tokens, a scalar like the first: the
/// z-loss of PaLM [Chowdhery et al. 2022] without its weight. It is undefined otherwise.
///
/// The third result with `pair_len` > 0 is the sum over targets of the symmetric divergence between the predictions for
/// the two copies of a sample, see PairDivergence, a scalar like the first. The forward pass then exchanges two more
/// numbers per pair. It is undefined otherwise.
///
/// At most `chunk` tokens have logits at a time. If one chunk contains all tokens, the logits are kept, and the
/// backward pass overwrites them with their gradient. Otherwise the backward pass recomputes the logits chunk by chunk,
/// and computes the rows of dx and the contribution to the weight gradient in the same sweep.
struct LinearCrossEntropy {
  Parameter* weight;
  Tensor targets;      // i32 [tokens]: indices in the whole vocabulary, or no_target
  std::int64_t chunk;  // number of tokens; 0: all
  const ProcessGroup* group;
  Range words;  // range of the vocabulary on this rank
  std::int64_t vocab;
  bool z = false;
  /// Number of tokens of a sequence, if sequences 2i and 2i + 1 are copies of the same sample, which needs logits of
  /// all tokens at once; 0: there are no copies.
  std::int64_t pair_len = 0;
  Tensor losses = {};         // [tokens] in accumulator precision: receives the loss of each token; optional
  Tensor largest_logit = {};  // f64 [1]: is raised to the largest logit of all words and tokens; optional

  static constexpr bool fills_empty_gradients = true;
  struct Saved {
    Tensor x, log_sum_exp;
    Tensor logits;  // undefined if they are recomputed; backward overwrites them with their gradient
    Tensor pairs;   // [2, tokens / 2]: sums of PairDivergence; undefined without copies
  };
  std::array<Tensor, 3> forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy, const Tensor& dz,
                                 const Tensor& d_pairs) const;
  std::vector<Parameter*> parameters() const { return {weight}; }
  /// True if backward() also adds the weight gradient, so that weight_grad() does nothing.
  bool weights_in_backward() const { return !keeps_logits(chunk, targets.size()); }
  void weight_grad(const Stream& stream, Saved& saved, const Tensor& dy, const Tensor& dz, const Tensor& d_pairs) const;

  /// True if one chunk contains all tokens.
  static bool keeps_logits(std::int64_t chunk, std::int64_t tokens) { return chunk == 0 || chunk >= tokens; }
};

}  // namespace lyceum
