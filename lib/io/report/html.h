#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/routing/history.h"
#include "io/routing/stats.h"
#include "io/run/metrics.h"

namespace lyceum {

/// The contents of a report. Whatever is empty is omitted from the page.
struct ReportInput {
  std::string title;
  std::vector<MetricPoint> train = {}, valid = {};  // cross-entropy, nats per token
  std::vector<MetricPoint> mtp = {};  // weighted loss of the modules of multi-token prediction, nats per token
  std::vector<MetricPoint> lr = {}, grad_norm = {};
  std::vector<MetricPoint> skipped = {}, outliers = {};  // steps without an update so far, and those of skip_above
  /// FLOPs of the busiest expert rank over the mean: mean of the layers, and the worst layer.
  std::vector<MetricPoint> rank_imbalance = {}, rank_imbalance_max = {};
  std::vector<MetricPoint> rank_imbalance_without_replicas = {};  // mean of the layers
  Metrics layers = {};                         // norms of layers and the largest logit, by their keys in metrics.jsonl
  std::optional<double> unigram_entropy = {};  // nats per token
  RoutingReader routing = {};
  std::string no_routing = "No routing was recorded.";  // a sentence that says why `routing` is empty
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::vector<std::string> missing = {};  // one sentence per missing part of the report, with the reason
  std::string config = {};                // resolved, in INI syntax
  std::optional<RecordRange> range = {};  // records over which the load figures sum; by default the newest quarter
};

/// Returns the report of a run as a self-contained HTML page that is also valid XML. It needs no network, is readable
/// without JavaScript, on light and dark, wide and narrow screens.
std::string html_report(const ReportInput& input);

}  // namespace lyceum
