#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// Returns the records of steps `from` to `to`, both inclusive. If neither is given, returns the newest quarter, at
/// least one record. Throws a usage Error if there is no record.
RecordRange select_records(const RoutingReader& log, std::optional<std::int64_t> from = {},
                           std::optional<std::int64_t> to = {});

/// True if the capacity of some router's experts is limited, so that the log has counts of dropped choices.
bool has_dropped_counts(const RoutingHistory& history);

/// The number of tokens that a router sent to each expert, summed over a range of records, for one of a token's choices
/// or for all of them. All statistics except total() and busiest() leave out experts that are always active. "Load"
/// means the tokens of an expert. The ratios are NaN if there are no tokens.
struct RoutedTokens {
  MixtureId id;
  std::optional<std::int64_t> choice;  // 0 for the first choice; nothing for all choices together
  std::vector<std::int64_t> tokens;    // [experts]
  std::int64_t dropped = 0;            // choices beyond capacity, of all experts
  std::int64_t always_on = 0;          // the number of first experts that are always active

  /// Returns the number of tokens of all experts together.
  std::int64_t total() const;
  /// Return the largest and the smallest load.
  std::int64_t max() const;
  std::int64_t min() const;
  /// Returns the index of the expert with the most tokens.
  std::size_t busiest() const;
  /// Returns the mean load.
  double mean() const;
  /// Returns the share of choices beyond capacity.
  double dropped_share() const;
  /// Returns the largest load over the smallest one; infinity if only the smallest one is 0.
  double max_over_min() const;
  /// Returns the largest load over the mean.
  double max_over_mean() const;
  /// Returns the coefficient of variation: the standard deviation (of the population) over the mean.
  double variation() const;
  /// Returns MaxVio: (largest load − mean) / mean; 0 if the load is even. [Wang et al. 2024]
  double max_violation() const { return max_over_mean() - 1; }
  /// Returns the entropy of the experts' shares, relative to that of an even load: 1 if even, 0 if one expert has all
  /// tokens.
  double entropy() const;
  /// Returns the load that `share` of the experts do not exceed, over the mean. 0 gives the least loaded expert, 1 the
  /// busiest.
  double percentile(double share) const;
};

/// The mean width of the FFN experts that tokens chose, over tokens, choices and layers: the workload of MoDSE §4.2.
class ChosenWidth {
 public:
  /// Adds the choices of one router: counts [top_k, experts], as in LayerRouting. Routers of attention are ignored.
  void add(const MixtureId& id, std::span<const std::int64_t> counts, std::span<const std::int64_t> expert_sizes);
  /// Returns the mean; NaN if there are no choices.
  double mean() const { return width_ / choices_; }
  /// Returns the mean that would result if all experts of a layer were chosen equally often.
  double even() const { return even_ / choices_; }
  /// True if mean() can differ from even(): widths differ within a layer.
  bool varies() const { return varies_; }

 private:
  double choices_ = 0, width_ = 0, even_ = 0;
  bool varies_ = false;
};
/// Returns the mean width of the chosen experts over the records in a range.
ChosenWidth chosen_width(const RoutingHistory& history, RecordRange range);

/// The information of a choice about its token, in nats [ModuleFormer]: the entropy H(m) of the mean probabilities, the
/// mean entropy H(m|x) of a token's probabilities, and the mutual information H(m) − H(m|x). NaN if unknown.
struct Information {
  double entropy, of_token;
  double mutual() const { return entropy - of_token; }
};
/// Returns the information over the records in a range that have entropies.
Information information(const RoutingHistory::Layer& layer, RecordRange range);
/// True if information() is known for some router.
bool has_information(const RoutingHistory& history, RecordRange range);

/// Returns the balance of the single steps of a record; unknown (NaN) in a log of an older version.
StepBalance step_balance(const RoutingHistory::Layer& layer, std::size_t record);
/// Combines the records in a range whose balance is known: means weighted by tokens, and maxima. Unknown if there are
/// none.
StepBalance step_balance(const RoutingHistory::Layer& layer, RecordRange range);
/// True if the balance of single steps is known for some router and record in the range.
bool has_step_balance(const RoutingHistory& history, RecordRange range);

/// Returns the replicas of a router's experts, summed over the records in a range; empty if the log has none.
ReplicaCounts replica_counts(const RoutingHistory::Layer& layer, RecordRange range);
/// True if replica_counts() has a replica for some router.
bool has_replicas(const RoutingHistory& history, RecordRange range);

/// Returns the load of a router over a range of records, of one choice or of all.
RoutedTokens layer_load(const RoutingHistory::Layer& layer, RecordRange range, std::optional<std::int64_t> choice = {});
/// Returns the load of each choice of each router, by router, then choice: the rows of MoDSE's appendix A.
std::vector<RoutedTokens> loads_by_choice(const RoutingHistory& history, RecordRange range);
/// Returns the load of each router over all choices.
std::vector<RoutedTokens> loads_by_layer(const RoutingHistory& history, RecordRange range);

}  // namespace lyceum
