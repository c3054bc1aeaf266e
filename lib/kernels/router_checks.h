#pragma once

#include <cstdint>
#include <iterator>

#include "kernels/balance_bias.h"
#include "kernels/checks.h"
#include "kernels/hash_tokens.h"
#include "kernels/router.h"
#include "kernels/router_backward.h"

namespace lyceum {

// Checks of the operands of routing kernels, used by all devices. All throw an Error unless the operands fit together.

/// Throws an Error unless `load` has the columns of a load and enough sequences for all tokens. No load always fits.
template <class Route, class Load>
void require_sequences(const char* kernel, const Route& route, const Load& load) {
  if (load.rows == 0) return;
  require_extents(kernel, "load", load, load.rows, load_width(route.logits.cols));
  require(route.seq_len > 0 && route.first >= 0 && route.first + route.logits.rows <= load.rows * route.seq_len,
          "{}: tokens {} to {} are not in {} sequences of {}", kernel, route.first, route.first + route.logits.rows,
          load.rows, route.seq_len);
}

template <class A>
void require_fitting(const RouteTokens<A>& route) {
  const std::int64_t tokens = route.logits.rows, experts = route.logits.cols, k = route.index.cols;
  require_extents("RouteTokens", "index", route.index, tokens, k);
  require_extents("RouteTokens", "gates", route.gates, tokens, k);
  require_extents("RouteTokens", "norms", route.norms, tokens, 2);
  require(route.always_on >= 0 && k <= experts - route.always_on,
          "RouteTokens: cannot choose {} of {} experts, of which {} are always active", k, experts, route.always_on);
  require(route.first_token >= 0, "RouteTokens: there is no token {}", route.first_token);
  if (!route.choices.empty()) require_length("RouteTokens", "choices", route.choices, 1);
  require_sequences("RouteTokens", route, route.load);
  if (route.counts.rows > 0) require_extents("RouteTokens", "counts", route.counts, k, experts);
  if (!route.probability.empty()) require_length("RouteTokens", "probability", route.probability, experts);
  if (!route.entropies.empty()) require_length("RouteTokens", "entropies", route.entropies, 1);
  require(route.entropies.empty() || (route.entropy && route.load.rows > 0),
          "RouteTokens: a sum of entropies needs a load that contains entropies");
  require(tokens == 0 || route.load.rows > 0 || (route.counts.rows == 0 && route.probability.empty()),
          "RouteTokens: counts and probabilities need a load");
  require(route.skip >= 0 && route.skip <= experts - route.always_on - k,
          "RouteTokens: cannot choose {} of {} experts, of which {} are skipped", k, experts, route.skip);
  if (route.group_limit > 0) require_length("RouteTokens", "group", route.group, experts);
  require(route.group_limit == 0 || (route.group_limit <= route.groups && route.groups <= most_groups),
          "RouteTokens: cannot limit choices to {} of {} groups", route.group_limit, route.groups);
  if (!route.bias.empty()) require_length("RouteTokens", "bias", route.bias, experts);
  require(route.bias.empty() || route.scores != Scores::softmax, "RouteTokens: softmax scores cannot have a bias");
}

template <class A>
void require_fitting(const RouteTokensBackward<A>& route) {
  const std::int64_t tokens = route.logits.rows, experts = route.logits.cols;
  require_extents("RouteTokensBackward", "norms", route.norms, tokens, 2);
  require_extents("RouteTokensBackward", "index", route.index, tokens, route.index.cols);
  if (route.d_gates.cols > 0) {
    require_extents("RouteTokensBackward", "d_gates", route.d_gates, tokens, route.index.cols);
  }
  require_extents("RouteTokensBackward", "d_logits", route.d_logits, tokens, experts);
  if (!route.choices.empty()) require_length("RouteTokensBackward", "choices", route.choices, 1);
  require_sequences("RouteTokensBackward", route, route.d_load);
}

template <class A>
void require_fitting(const HashTokens<A>& hash) {
  const auto tokens = std::ssize(hash.tokens);
  require_length("HashTokens", "index", hash.index, tokens);
  require_length("HashTokens", "gates", hash.gates, tokens);
  if (!hash.counts.empty()) require_length("HashTokens", "counts", hash.counts, hash.experts);
  if (!hash.probability.empty()) require_length("HashTokens", "probability", hash.probability, hash.experts);
  require(hash.experts > 0 && hash.layer >= 0, "HashTokens: there can be no layer {} with {} experts", hash.layer,
          hash.experts);
}

template <class A>
void require_fitting(const BalanceBias<A>& balance) {
  require_length("BalanceBias", "bias", balance.bias, balance.counts.cols);
  require_length("BalanceBias", "verdict", balance.verdict, 1);
}

}  // namespace lyceum
