#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// Records [begin, end) of a history.
struct RecordRange {
  std::size_t begin = 0, end = 0;
};

/// Records of steps `from` … `to`, both included; without either, the newest quarter (at least one record).
/// Throws a usage Error if there is no record.
RecordRange select_records(const RoutingHistory& history, std::optional<std::int64_t> from = {},
                           std::optional<std::int64_t> to = {});

/// Whether a log says which choices exceeded the capacity of their expert.
bool tells_dropped(const RoutingHistory& history);

/// Tokens that a router gave each expert, summed over a range of records: as one choice, or as any.
struct RoutedTokens {
  MixtureId id;
  std::optional<std::int64_t> choice;  // 0 for the top-1 choice; none: all choices together
  std::vector<std::int64_t> tokens;    // [experts]
  std::int64_t dropped = 0;            // of all experts' tokens, those beyond their capacity
  std::int64_t always_on = 0;          // the first experts, which none of the numbers below counts

  std::int64_t total() const;
  std::int64_t max() const;
  std::int64_t min() const;
  std::size_t busiest() const;
  double mean() const;
  /// Of all tokens; NaN when there were none.
  double dropped_share() const;
  /// Infinity when an expert got nothing and another one something; NaN when there were no tokens.
  double max_over_min() const;
  double max_over_mean() const;
  /// Standard deviation over mean, of the population of experts.
  double variation() const;
  /// MaxVio: how far the busiest expert is above the mean, over the mean; 0 when even. [Wang et al. 2024]
  double max_violation() const { return max_over_mean() - 1; }
  /// Of the experts' shares, over that of an even load: 1 when even, 0 when one expert has all.
  double entropy() const;
  /// The load that `share` of the experts do not exceed, over the mean: 0 for the least loaded, 1 for the busiest.
  double percentile(double share) const;
};

/// How wide the experts of FFNs are that tokens chose, on average over tokens, choices and layers: the workload of
/// MoDSE §4.2.
class ChosenWidth {
 public:
  /// Of a router: counts [top_k, experts], as RoutingSums and records have them. An attention's do not count.
  void add(const MixtureId& id, std::span<const std::int64_t> counts, std::span<const std::int64_t> expert_sizes);
  /// NaN of no choices.
  double mean() const { return width_ / choices_; }
  /// What it is where all experts of a layer are chosen alike.
  double even() const { return even_ / choices_; }
  /// Whether it can be another than even.
  bool varies() const { return varies_; }

 private:
  double choices_ = 0, width_ = 0, even_ = 0;
  bool varies_ = false;
};
ChosenWidth chosen_width(const RoutingHistory& history, RecordRange range);

/// Information of a choice about its token, in nats [ModuleFormer]: entropies H(m) of the mean probabilities and H(m|x)
/// of a token's, on average over the tokens, and the mutual information H(m) − H(m|x). NaN where that is not known.
struct Information {
  double entropy, of_token;
  double mutual() const { return entropy - of_token; }
};
/// Of a router's tokens in those records of a range that have entropies.
Information information(const RoutingHistory::Layer& layer, RecordRange range);
/// Whether a log has what it is made of, in any record.
bool tells_information(const RoutingHistory& history, RecordRange range);

/// Balance of the single steps of a record; unknown in a log of an older version.
StepBalance step_balance(const RoutingHistory::Layer& layer, std::size_t record);
/// Combines the records that have it: means weighted by tokens, maxima of maxima. Unknown if none has.
StepBalance step_balance(const RoutingHistory::Layer& layer, RecordRange range);
/// True if some record in the range has it.
bool tells_steps(const RoutingHistory& history, RecordRange range);

/// The load by one router: of one choice, or of all.
RoutedTokens layer_load(const RoutingHistory::Layer& layer, RecordRange range, std::optional<std::int64_t> choice = {});
/// A load a router and choice, in that order: the rows of MoDSE's appendix A.
std::vector<RoutedTokens> loads_by_choice(const RoutingHistory& history, RecordRange range);
/// A load a router, over all choices.
std::vector<RoutedTokens> loads_by_layer(const RoutingHistory& history, RecordRange range);

}  // namespace lyceum
