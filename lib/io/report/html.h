#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/routing/history.h"
#include "io/routing/stats.h"
#include "io/run/metrics.h"

namespace lyceum {

/// What a report is made from; whatever is empty is omitted from the page.
struct ReportInput {
  std::string title;
  std::vector<MetricPoint> train = {}, valid = {};                 // cross-entropy, nats per token
  std::vector<MetricPoint> lr = {}, grad_norm = {}, skipped = {};  // skipped: steps skipped so far
  std::optional<double> unigram_entropy = {};                      // nats per token
  RoutingHistory routing = {};
  std::string no_routing = "No routing was recorded.";  // why, where `routing` is empty: a sentence
  std::vector<std::pair<std::string, std::string>> facts = {};
  std::vector<std::string> missing = {};  // what a reader looks for in vain, and why: a sentence each
  std::string config = {};                // resolved, INI
  std::optional<RecordRange> range = {};  // records that the load figures sum over; none: the newest quarter
};

/// One page that needs nothing else: no network, readable without JavaScript, light and dark, wide and narrow; HTML
/// that is XML too.
std::string html_report(const ReportInput& input);

}  // namespace lyceum
