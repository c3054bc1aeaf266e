#pragma once

#include <array>
#include <cstdint>

#include "config/feature.h"

namespace lyceum {

/// The kind of dropout: plain, of single elements; concrete, which learns the rate of each site [Gal et al. 2017]; or
/// block, of runs of consecutive tokens in one column [DropBlock, Ghiasi et al. 2018].
enum class DropoutKind { plain, concrete, block };
constexpr auto names_of(DropoutKind) { return std::array{"plain", "concrete", "block"}; }

/// The keys model.dropout…: dropout of embeddings and of the result of each half of a block, in training only.
struct DropoutConfig {
  double rate = 0;  // model.dropout: the probability that an element is dropped, initially if it is learnt; 0: none
  DropoutKind kind = DropoutKind::plain;
  std::int64_t block = 7;  // with kind = block: consecutive tokens that are dropped together
  /// Factors of the two parts of the loss that regularises learnt rates, see ConcreteRegulariser; the second one is per
  /// column. The defaults are those of the authors.
  double weight_regularizer = 1e-6, regularizer = 1e-5;
};

/// True if each site has a rate that is learnt.
inline bool learns_rates(const DropoutConfig& dropout) {
  return dropout.rate > 0 && dropout.kind == DropoutKind::concrete;
}

/// Adds the keys model.dropout….
void declare_dropout_keys(ConfigKeys& keys, DropoutConfig& dropout);
void check_dropout(Findings& findings, const Config& config);
/// Resets keys without effect.
void simplify_dropout(DropoutConfig& dropout);

}  // namespace lyceum
