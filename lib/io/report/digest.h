#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "io/report/alarms.h"
#include "io/routing/history.h"

namespace lyceum {

/// A number of one record, combined over the layers that have it.
struct LayerSpread {
  double sum = 0;
  std::int64_t layers = 0;
  double worst = std::numeric_limits<double>::quiet_NaN();
  /// Returns the mean; NaN if no layer has the number.
  double mean() const;
};

/// How evenly one record is loaded, over all layers with tokens.
struct RecordBalance {
  LayerSpread violation;       // MaxVio of the record's sum; worst: the largest
  LayerSpread entropy;         // of the record's sum; worst: the smallest
  LayerSpread dropped;         // share of dropped choices
  LayerSpread step_violation;  // MaxVio of single steps, of layers that have it
  LayerSpread step_idle;       // share of a layer's experts that no token of a step chose, of layers that have it
};

/// The part of a log that a page shows. It has the size of the maps of the page, and a few numbers per record.
struct RoutingDigest {
  std::vector<std::int64_t> steps;                // [S]: the last step of each record
  RecordRange range;                              // the records that `selected` sums
  std::vector<RecordRange> columns;               // the records that each record of `over_time` sums
  RoutingHistory selected;                        // one record
  RoutingHistory over_time;                       // one record for each column
  std::vector<RecordBalance> balance;             // [S]
  std::vector<std::vector<StarvedSpan>> starved;  // for each router; see RouterWatch
  std::vector<Alarm> alarms;                      // of all routers, sorted; see RouterWatch
};

/// Reads a log once, router by router, in memory that does not grow with its counts.
RoutingDigest digest_of(const RoutingReader& log, RecordRange range);

}  // namespace lyceum
