#pragma once

#include "autograd/tape.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// What the passes of a layer's router add to, where the model computes.
struct RoutingTally {
  Tensor counts;       // i64 [top_k, experts]: tokens whose k-th choice is that expert
  Tensor probability;  // f64 [experts]: sum of probabilities over tokens
  Tensor entropy;      // f64 [1]: sum of the entropies of their probabilities
  Tensor dropped{};    // i64 [top_k, experts]: of counts, those that experts had no room for; undefined for none
};

/// From a router's logits [tokens, experts], in accumulator precision, to the experts of each token; the formulas are
/// RouteTokens'. Results:
///   gates [tokens, k], best choice first
///   index i32 [tokens, k], the experts that they belong to, −1 where `choices` are fewer; no gradient
///   load f64 [sequences, load_width(experts)], what balance losses and the tally are made of; undefined where
///   `sequences` is 0. Its counts have no derivative.
struct Route {
  std::int64_t k;
  Scores scores = Scores::softmax;
  Gates rule = Gates::raw;
  Tensor choices{};                          // f64 [1]: RouteTokens'; undefined: k
  Tensor bias{};                             // accumulator type [experts]: RouteTokens'; undefined for none
  Tensor group{};                            // i32 [experts]: the group of each, with a group_limit
  std::int64_t groups = 0, group_limit = 0;  // RouteTokens'
  std::int64_t skip = 0, always_on = 0;      // RouteTokens'
  bool even = false;
  bool entropy = false;  // RouteTokens'; a tally has them anyway
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

/// The experts of tokens that are known by themselves, see HashTokens: gates in `type` [tokens, 1], index i32
/// [tokens, 1]. No gradients.
struct RouteByHash {
  Tensor tokens;  // i32 [tokens]
  std::int64_t layer, experts;
  DType type;
  RoutingTally tally{};  // undefined for none

  struct Saved {};
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&, const Tensor&) const { return {}; }
};

}  // namespace lyceum
