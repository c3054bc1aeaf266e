#pragma once

#include "autograd/tape.h"
#include "kernels/routing_policy.h"

namespace lyceum {

/// Routing statistics of one router, in memory of the stream's device. Each pass adds to them.
struct RoutingTally {
  Tensor counts;       // i64 [top_k, experts]: number of tokens whose k-th choice is that expert
  Tensor probability;  // f64 [experts]: sum over tokens of each expert's probability
  Tensor entropy;      // f64 [1]: sum over tokens of the entropy of their probabilities
  Tensor dropped{};    // i64 [top_k, experts]: the part of counts that was dropped for capacity; undefined: not counted
};

/// Chooses the experts of each token from a router's logits [tokens, experts] in accumulator precision, by the formulas
/// of RouteTokens. Results:
///   gates [tokens, k], best choice first
///   index i32 [tokens, k]: the chosen experts, −1 in columns from `choices` on; no gradient
///   load f64 [sequences, load_width(experts)]: sums for balance losses and the tally; undefined if `sequences` is 0.
///   Its counts have no gradient.
struct Route {
  std::int64_t k;
  Scores scores = Scores::softmax;
  Gates rule = Gates::raw;
  double gate_scale = 1;  // factor of the gates
  Tensor choices{};       // f64 [1]: choices per token, at most k; undefined: k
  Tensor bias{};          // accumulator type [experts]: added to scores for the choice only; undefined: none
  Tensor group{};         // i32 [experts]: the group of each expert, if group_limit > 0
  std::int64_t groups = 0, group_limit = 0;  // number of groups; groups that a token chooses from, 0: all
  GroupScore group_score = GroupScore::top2;
  /// `skip`: number of best experts that a token passes over. `always_on`: number of first experts, which every token
  /// uses without choosing them.
  std::int64_t skip = 0, always_on = 0;
  /// `even`: replace choices so that all experts get equally many, to measure speed; row 0 of the logits then chooses
  /// as token `first_token` of the step.
  bool even = false;
  std::int64_t first_token = 0;
  /// True if load contains entropies and their gradient reaches the logits. With tally.entropy alone, load contains
  /// entropies, but their gradient is ignored.
  bool entropy = false;
  /// Row 0 of the logits is token `first` of `sequences` sequences of seq_len tokens each.
  std::int64_t sequences = 0, seq_len = 1, first = 0;
  RoutingTally tally{};  // statistics to add to, which needs sequences > 0; undefined: none

  struct Saved {
    Tensor logits, norms, index;
  };
  std::array<Tensor, 3> forward(const Stream& stream, Saved& saved, const Tensor& logits) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_gates, const Tensor& d_index,
                                 const Tensor& d_load) const;
};

/// Hash routing: the token id alone determines the expert (HashTokens) [Roller et al. 2021]. Results: gates [tokens,
/// 1], all 1, and index i32 [tokens, 1]. No gradients.
struct RouteByHash {
  Tensor tokens;  // i32 [tokens]
  std::int64_t layer, experts;
  DType type;            // of the gates: an accumulator type, f32 or f64
  RoutingTally tally{};  // counts and probability to add to; undefined: none

  struct Saved {};
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&, const Tensor&) const { return {}; }
};

/// Uniform routing: k random experts for each token, see UniformChoices [Zuo et al. 2022]. Results: gates [tokens, k],
/// all `gate`, and index i32 [tokens, k]. No gradients.
struct RouteUniformly {
  std::uint64_t seed;
  std::int64_t layer, first, period;  // as in UniformDraw
  Tensor step;                        // f64 [1]; undefined: step 0
  std::int64_t tokens, experts, k;
  double gate;
  DType type;            // of the gates: an accumulator type, f32 or f64
  RoutingTally tally{};  // counts, probability and entropy to add to; undefined: none

  struct Saved {};
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved) const;
  std::array<Tensor, 0> backward(const Stream&, Saved&, const Tensor&, const Tensor&) const { return {}; }
};

}  // namespace lyceum
