#pragma once

#include "autograd/tape.h"

namespace lyceum {

/// What the passes of a layer's router add to, where the model computes.
struct RoutingTally {
  Tensor counts;       // i64 [top_k, experts]: tokens whose k-th choice is that expert
  Tensor probability;  // f64 [experts]: sum of scores over tokens
};

/// From a router's logits [tokens, experts], in accumulator precision, to the experts of each token; the formulas are
/// RouteTokens'. Results:
///   gates [tokens, k], largest first
///   index i32 [tokens, k], the experts that they belong to; no gradient
///   load f64 [sequences, load_width(experts)], what balance losses and the tally are made of; undefined where
///   `sequences` is 0. Its counts have no derivative.
struct Route {
  std::int64_t k;
  bool renormalize = false, even = false;
  /// The tokens are those from `first` on of so many sequences of seq_len.
  std::int64_t sequences = 0, seq_len = 1, first = 0;
  RoutingTally tally{};  // undefined for none; takes this call's on top of what it holds, with `sequences` only

  struct Saved {
    Tensor logits, norms, index;
  };
  std::array<Tensor, 3> forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_gates, const Tensor& d_index,
                                 const Tensor& d_load) const;
};

}  // namespace lyceum
