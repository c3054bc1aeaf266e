#pragma once

#include <cstddef>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// Merges records of one router into one. Counts are summed, also those of replicas. Probabilities and entropies are
/// means weighted by the tokens of the records whose entropy is known (of all records if it is known for none). The
/// balance of single steps is combined as by step_balance(layer, range).
class RecordMerge {
 public:
  /// `router`: the properties; its records are ignored.
  explicit RecordMerge(const RoutingHistory::Layer& router);
  /// Adds record number `record` of a layer that is of this router.
  void add(const RoutingHistory::Layer& layer, std::size_t record);
  /// Appends the merged record to those of a layer that is of this router, and starts anew.
  void append_to(RoutingHistory::Layer& layer);

 private:
  RoutingHistory::Layer router_;
  std::vector<std::int64_t> counts_, dropped_;
  std::vector<double> probability_, informed_probability_;  // times tokens; informed: of records with an entropy
  double tokens_ = 0, informed_tokens_ = 0, entropy_ = 0;
  bool has_entropy_ = false, has_steps_ = false;
  ReplicaCounts replicas_;
  double step_tokens_ = 0, max_vio_ = 0, idle_ = 0;
  StepBalance worst_;
};

/// Returns a history with one record, the merged records of a range, for each router. If the range is empty, all counts
/// are 0.
RoutingHistory merged_records(const RoutingReader& log, RecordRange range);

}  // namespace lyceum
