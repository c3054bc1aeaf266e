#include "io/routing/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/real_text.h"
#include "io/routing/merge.h"
#include "io/text/table.h"

namespace lyceum {
namespace {

using Row = std::vector<std::string>;

/// Returns a table whose columns are as wide as their widest cell, the first one left-aligned, the others
/// right-aligned.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t c = 1; c < row.size(); ++c) text += fmt::format("  {:>{}}", row[c], widths[c]);
    text += '\n';
  }
  return text;
}

std::string ratio_text(double ratio) { return real_text(ratio, ".3f"); }  // "inf" for a starved expert

Row header(const RoutingHistory::Layer& layer, bool experts, bool dropped) {
  Row row = {"layer, choice"};
  if (experts) {
    row[0] = "expert width";
    for (const std::int64_t size : layer.expert_sizes) row.push_back(std::to_string(size));
  }
  for (const char* name : {"max", "min", "max/min", "mean", "CV", "busiest"}) row.emplace_back(name);
  if (dropped) row.emplace_back("dropped");
  return row;
}

Row row_of(const RoutedTokens& load, bool experts, bool dropped) {
  Row row = {fmt::format("layer{} top{}", label_of(load.id), *load.choice)};
  if (experts) {
    for (const std::int64_t tokens : load.tokens) row.push_back(std::to_string(tokens));
  }
  for (std::string& cell :
       Row{std::to_string(load.max()), std::to_string(load.min()), ratio_text(load.max_over_min()),
           real_text(load.mean(), ".1f"), ratio_text(load.variation()), std::to_string(load.busiest())}) {
    row.push_back(std::move(cell));
  }
  if (dropped) row.push_back(std::to_string(load.dropped));
  return row;
}

/// Returns a number, or "-" if it is unknown.
std::string known(float number, int decimals) {
  return std::isnan(number) ? "-" : real_text(number, fmt::format(".{}f", decimals));
}

/// Returns a table of the balance of single steps, next to that of their sum, with one row per router.
std::string steps_table(const RoutingHistory& history, RecordRange range) {
  std::vector<Row> rows = {{"layer", "MaxVio mean", "max", "of sum", "idle mean", "max", "of experts"}};
  for (const RoutingHistory::Layer& layer : history.layers) {
    const StepBalance steps = step_balance(layer, range);
    rows.push_back({fmt::format("layer{}", label_of(layer.id)), known(steps.max_vio_mean, 3),
                    known(steps.max_vio_max, 3), ratio_text(layer_load(layer, range).max_violation()),
                    known(steps.idle_mean, 2), known(steps.idle_max, 0), std::to_string(layer.choosable())});
  }
  return "Single steps: MaxVio and idle experts (no token in the step), mean and maximum over the steps\n" +
         aligned(rows);
}

/// Returns a part as a percentage, or "-" if there is no whole.
std::string percentage(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? real_text(100.0 * static_cast<double>(part) / static_cast<double>(whole), ".1f") + " %" : "-";
}

/// Returns a table of the replicas of experts, with one row per router that may have any.
std::string replicas_table(const RoutingHistory& history, RecordRange range) {
  std::vector<Row> rows = {
      {"layer", "replicas", "of experts", "most", "of expert", "tokens", "of all", "kept", "sent", "weights"}};
  for (const RoutingHistory::Layer& layer : history.layers) {
    const ReplicaCounts counts = replica_counts(layer, range);
    if (counts.empty()) continue;
    const auto most = std::ranges::max_element(counts.replicas);
    const std::int64_t replicas = std::reduce(counts.replicas.begin(), counts.replicas.end()),
                       tokens = std::reduce(counts.tokens.begin(), counts.tokens.end());
    const RoutedTokens load = layer_load(layer, range);
    rows.push_back({fmt::format("layer{}", label_of(layer.id)), std::to_string(replicas),
                    std::to_string(std::ranges::count_if(counts.replicas, [](std::int64_t n) { return n > 0; })),
                    std::to_string(*most), replicas > 0 ? std::to_string(most - counts.replicas.begin()) : "-",
                    std::to_string(tokens), percentage(tokens, load.total() - load.dropped),
                    percentage(counts.kept, replicas), std::to_string(counts.sent), text_of_bytes(counts.bytes)});
  }
  return "Replicas of experts, summed over micro-batches: those of the expert that has most, the tokens that they "
         "computed,\nreplicas whose weights were there already, and transfers of weights\n" +
         aligned(rows);
}

/// Returns a table of the information of choices about tokens, with one row per router.
std::string information_table(const RoutingHistory& history, RecordRange range) {
  std::vector<Row> rows = {{"layer", "H(m)", "H(m|x)", "MI"}};
  for (const RoutingHistory::Layer& layer : history.layers) {
    const Information info = information(layer, range);
    rows.push_back({fmt::format("layer{}", label_of(layer.id)), ratio_text(info.entropy), ratio_text(info.of_token),
                    ratio_text(info.mutual())});
  }
  return "Information of a choice about its token, in nats: entropy of the router's mean probabilities H(m), mean "
         "entropy of "
         "a\ntoken's probabilities H(m|x), and their difference, the mutual information MI\n" +
         aligned(rows);
}

}  // namespace

std::string width_text(const ChosenWidth& width) {
  return fmt::format("mean width of the chosen experts {}, of all experts {}", real_text(width.mean(), ".1f"),
                     real_text(width.even(), ".1f"));
}

std::string routing_table(const RoutingReader& log, RecordRange range, bool experts) {
  const std::vector<std::int64_t>& steps = log.steps();
  const RoutingHistory sum = merged_records(log, range);
  constexpr RecordRange all{0, 1};  // of the sum
  // The first step of the log's first record is unknown: the run may have begun with a checkpoint.
  const std::string first = range.begin > 0 ? fmt::format("{} to ", steps[range.begin - 1] + 1) : std::string("up to ");
  std::string text =
      fmt::format("Tokens per expert, summed over {}, steps {}{}; top0 is a token's first choice\n",
                  count_text(static_cast<std::int64_t>(range.size()), "record"), first, steps[range.end - 1]);
  const std::vector<RoutedTokens> loads = loads_by_choice(sum, all);
  const bool dropped = has_dropped_counts(sum);
  std::vector<Row> rows;
  const RoutingHistory::Layer* above = nullptr;
  auto load = loads.begin();
  for (const RoutingHistory::Layer& layer : sum.layers) {
    // One table for all layers, unless widths differ and are in the header.
    if (!above || (experts && above->expert_sizes != layer.expert_sizes)) {
      if (!rows.empty()) text += aligned(rows) + "\n";
      rows = {header(layer, experts, dropped)};
    }
    above = &layer;
    for (std::int64_t k = 0; k < layer.top_k; ++k) rows.push_back(row_of(*load++, experts, dropped));
  }
  text += rows.empty() ? "" : aligned(rows);
  if (has_step_balance(sum, all)) text += '\n' + steps_table(sum, all);
  if (has_replicas(sum, all)) text += '\n' + replicas_table(sum, all);
  if (has_information(sum, all)) text += '\n' + information_table(sum, all);
  if (const ChosenWidth width = chosen_width(sum, all); width.varies()) text += '\n' + width_text(width) + '\n';
  return text;
}

}  // namespace lyceum
