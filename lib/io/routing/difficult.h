#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/routing/mixture_id.h"
#include "io/routing/token_log.h"

namespace lyceum {

/// What model B does with the tokens that model A finds hard to predict. [MoDSE §4.3, Tables 5 and 6]
struct DifficultTokens {
  struct Model {
    std::string file;
    std::int64_t step = 0;
    double loss = 0;  // mean over all tokens whose target counts
  };
  /// Of the tokens whose loss in A is above the threshold.
  struct Reduction {
    double threshold;
    std::int64_t tokens = 0;
    double loss_a = 0, loss_b = 0;  // means; NaN of no tokens
    double reduction() const { return loss_a - loss_b; }
  };
  /// Choices of experts of one width.
  struct Width {
    std::int64_t width, experts = 0;              // of that width, in all layers
    std::int64_t choices = 0, first = 0;          // by the difficult tokens: all of them, and each one's best
    std::int64_t all_choices = 0, all_first = 0;  // by all tokens
  };
  /// Difficult tokens of a layer whose choice-th expert has each width, in the order of `widths`.
  struct LayerChoice {
    MixtureId id;
    std::int64_t choice;
    std::vector<std::int64_t> tokens;
  };

  Model a, b;
  std::int64_t tokens = 0;
  std::vector<Reduction> reductions{};  // by falling thresholds; the difficult tokens are those of the first
  std::vector<Width> widths{};          // of B's FFN experts, falling; none where it has none
  std::vector<LayerChoice> layers{};

  /// Choices of experts wider (sign 1) or narrower (sign −1) than the mean of all experts.
  Width sum_of(int sign) const;
};

/// Thresholds where the user gives none: the mean loss, times these.
inline constexpr double default_thresholds[] = {2.0, 1.8, 1.6, 1.4, 1.2, 1.0};

/// `thresholds`: of the loss in A, nats; none: default_thresholds. Reads the files some rows at a time. Throws a
/// bad_input Error where the files are not of the same tokens.
DifficultTokens difficult_tokens(const TokenLogFile& a, const TokenLogFile& b, std::vector<double> thresholds);

/// Both tables; with `layers` also one with a row a layer and choice (appendix B).
std::string difficult_text(const DifficultTokens& difficult, bool layers);
/// One JSON object with all of it.
std::string difficult_json(const DifficultTokens& difficult);

}  // namespace lyceum
