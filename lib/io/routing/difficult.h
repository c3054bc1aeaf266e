#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/routing/mixture_id.h"
#include "io/routing/token_log.h"

namespace lyceum {

/// How model B treats the tokens that are difficult for model A: by how much it reduces their loss, and which experts
/// it chooses for them. Tokens whose target does not count in the loss are left out. [MoDSE §4.3, Tables 5 and 6]
struct DifficultTokens {
  /// A model, by its token log.
  struct Model {
    std::string file;
    std::int64_t step = 0;
    double loss = 0;  // mean over all tokens
  };
  /// The losses of the tokens whose loss in A is above a threshold.
  struct Reduction {
    double threshold;
    std::int64_t tokens = 0;
    double loss_a = 0, loss_b = 0;  // mean losses, nats; NaN if there are no such tokens
    double reduction() const { return loss_a - loss_b; }
  };
  /// The choices of B among the FFN experts of one width, in all layers.
  struct Width {
    std::int64_t width, experts = 0;              // experts: the number of experts of this width
    std::int64_t choices = 0, first = 0;          // choices of the difficult tokens: all, and first choices only
    std::int64_t all_choices = 0, all_first = 0;  // choices of all tokens
  };
  /// The number of difficult tokens of a layer whose k-th choice (k = `choice`, from 0) is an expert of each width, in
  /// the order of `widths`.
  struct LayerChoice {
    MixtureId id;
    std::int64_t choice;
    std::vector<std::int64_t> tokens;
  };

  Model a, b;
  std::int64_t tokens = 0;
  std::vector<Reduction> reductions{};  // by descending threshold; the first one defines the difficult tokens
  std::vector<Width> widths{};          // of B's FFN experts, descending; empty if it has none
  std::vector<LayerChoice> layers{};

  /// Returns the sum over the widths above (sign 1) or below (sign −1) the mean width of all experts.
  Width sum_of(int sign) const;
};

/// Default thresholds, as multiples of the mean loss in A.
inline constexpr double default_thresholds[] = {2.0, 1.8, 1.6, 1.4, 1.2, 1.0};

/// Compares two token logs of the same tokens. `thresholds` are losses in A, in nats; if there are none,
/// default_thresholds are used. Reads the files in blocks of rows. Throws a bad_input Error if the files are not of the
/// same tokens.
DifficultTokens difficult_tokens(const TokenLogFile& a, const TokenLogFile& b, std::vector<double> thresholds);

/// Returns the tables of reductions and of widths; if `layers`, also a table with one row per layer and choice (MoDSE,
/// appendix B).
std::string difficult_text(const DifficultTokens& difficult, bool layers);
/// Returns all numbers as one JSON object.
std::string difficult_json(const DifficultTokens& difficult);

}  // namespace lyceum
