#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/routing_log.h"

namespace lyceum {

/// Records [begin, end) of a history.
struct RecordRange {
  std::size_t begin = 0, end = 0;
};

/// Records of steps `from` … `to`, both included; without either, the newest quarter (at least one record).
/// Throws a usage Error when no record lies there.
RecordRange select_records(const RoutingHistory& history, std::optional<std::int64_t> from = {},
                           std::optional<std::int64_t> to = {});

/// Tokens that each expert of a layer was given, summed over a range of records: as one choice, or as any.
struct RoutedTokens {
  std::int64_t layer = 0;
  std::optional<std::int64_t> choice;  // 0 for the top-1 choice; none: all choices together
  std::vector<std::int64_t> tokens;    // [experts]

  std::int64_t total() const;
  std::int64_t max() const;
  std::int64_t min() const;
  std::size_t busiest() const;
  double mean() const;
  /// Infinity when an expert got nothing and another one something; NaN when there were no tokens.
  double max_over_min() const;
  double max_over_mean() const;
  /// Standard deviation over mean, of the population of experts.
  double variation() const;
};

/// A load a layer and choice, in that order: the rows of MoDSE's appendix A.
std::vector<RoutedTokens> loads_by_choice(const RoutingHistory& history, RecordRange range);
/// A load a layer, over all choices.
std::vector<RoutedTokens> loads_by_layer(const RoutingHistory& history, RecordRange range);

/// Load of the busiest expert over the mean, 1 when balanced, a record at a time.
struct Imbalance {
  std::vector<double> mean, worst;  // over the layers, [records]
};
Imbalance imbalance_over_records(const RoutingHistory& history);

}  // namespace lyceum
