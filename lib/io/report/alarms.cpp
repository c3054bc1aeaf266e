#include "io/report/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "io/report/chart.h"
#include "io/routing/stats.h"

namespace lyceum {
namespace {

constexpr std::size_t most_listed_steps = 3;  // number of steps that one alarm lists for its starved experts

/// Returns when the spans began, with the number of experts: "step 4,000 (20), step 4,100 (10), step 4,200 (4) and
/// later (1)", or only the step if there is one.
std::string beginnings_text(const RoutingHistory& history, const std::vector<StarvedSpan>& spans) {
  std::map<std::size_t, std::size_t> experts;  // number of experts by the first record of their spans
  for (const StarvedSpan& span : spans) ++experts[span.begin];
  if (experts.size() == 1) return starved_since(history, experts.begin()->first);
  std::string text;
  std::size_t listed = 0, later = 0;
  for (const auto& [begin, count] : experts) {
    if (listed++ >= most_listed_steps) {
      later += count;
    } else {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", starved_since(history, begin), count);
    }
  }
  return later ? fmt::format("{} and later ({})", text, later) : text;
}

std::int64_t step_before(const RoutingHistory& history, std::size_t record) {
  return record == 0 ? 0 : history.steps[record - 1];
}

std::size_t experts_of(const std::vector<StarvedSpan>& spans) {
  std::vector<std::size_t> experts;
  for (const StarvedSpan& span : spans) experts.push_back(span.expert);
  std::ranges::sort(experts);
  return static_cast<std::size_t>(std::unique(experts.begin(), experts.end()) - experts.begin());
}

void add_starved_alarms(const RoutingHistory& history, const RoutingHistory::Layer& layer, std::vector<Alarm>& alarms) {
  std::vector<StarvedSpan> still, over;
  for (const StarvedSpan& span : starved_spans(layer)) {
    (span.end == history.steps.size() ? still : over).push_back(span);
  }
  const auto first = [](const std::vector<StarvedSpan>& spans) {
    return std::ranges::min(spans, {}, &StarvedSpan::begin).begin;
  };
  if (!still.empty()) {
    alarms.push_back({.step = step_before(history, first(still)),
                      .router = layer.id,
                      .text = fmt::format("{} of {} experts {} starved: no token since {}", still.size(), layer.experts,
                                          still.size() == 1 ? "is" : "are", beginnings_text(history, still))});
  }
  if (!over.empty()) {
    const std::size_t end = std::ranges::max(over, {}, &StarvedSpan::end).end;
    alarms.push_back(
        {.step = step_before(history, first(over)),
         .router = layer.id,
         .over = true,
         .text = fmt::format("{} of {} experts {} starved, until step {}", experts_of(over), layer.experts,
                             experts_of(over) == 1 ? "was" : "were", grouped_number(history.steps[end - 1]))});
  }
}

/// How unevenly one record of a router is loaded.
struct Unevenness {
  double violation = 0;   // mean MaxVio of single steps if `of_steps`, else `sum`
  bool of_steps = false;  // true if the log has single steps with enough tokens to judge them
  double idle = 0;        // if `of_steps`: mean number of experts that are idle in a step and not starved
  double sum = 0;         // MaxVio of the sum of the record's steps
};

Unevenness unevenness(const RoutingHistory& history, const RoutingHistory::Layer& layer, std::size_t record,
                      const std::vector<StarvedSpan>& starved) {
  const RoutedTokens load = layer_load(layer, {record, record + 1});
  Unevenness result{.violation = load.max_violation(), .sum = load.max_violation()};
  const auto steps = static_cast<double>(history.steps[record] - step_before(history, record));
  const StepBalance balance = step_balance(layer, record);
  if (std::isnan(balance.max_vio_mean) || !(load.mean() / steps >= least_judged_tokens)) return result;
  const auto covers = [&](const StarvedSpan& span) { return span.begin <= record && record < span.end; };
  result.violation = double{balance.max_vio_mean};
  result.of_steps = true;
  result.idle = double{balance.idle_mean} - static_cast<double>(std::ranges::count_if(starved, covers));
  return result;
}

void add_uneven_alarm(const RoutingHistory& history, const RoutingHistory::Layer& layer, std::vector<Alarm>& alarms) {
  const double limit = alarming_violation(layer);
  if (limit <= 0) return;
  const auto choosable = static_cast<double>(layer.experts - layer.always_on);
  const std::vector<StarvedSpan> starved = starved_spans(layer);
  std::optional<std::size_t> begin, last;
  std::size_t worst_record = 0;
  Unevenness worst;
  for (std::size_t r = 0; r < history.steps.size(); ++r) {
    const Unevenness record = unevenness(history, layer, r, starved);
    if (!(record.violation > limit) && !(record.idle >= choosable / 2)) continue;
    if (!begin || record.violation > worst.violation) worst = record, worst_record = r;
    if (!begin) begin = r;
    last = r;
  }
  if (!begin) return;
  const bool over = *last + 1 < history.steps.size();
  const std::string until = over ? "until step " + grouped_number(history.steps[*last]) : "still in the newest record";
  const std::string step = grouped_number(history.steps[worst_record]);
  std::string text;
  if (worst.of_steps) {
    text = fmt::format(
        "uneven steps, {}; worst record, at step {}: MaxVio of a step {:.3g} on average (limit {:.2g}), {:.3g} of {} "
        "experts idle in a step",
        until, step, worst.violation, limit, double{step_balance(layer, worst_record).idle_mean}, choosable);
    if (worst.sum <= limit && worst.violation > limit) {
      text += fmt::format("; the sum of its steps has MaxVio {:.2g}, since the busy experts change from step to step",
                          worst.sum);
    }
  } else {
    text = fmt::format("MaxVio above {:.2g} {}; worst {:.3g} at step {}", limit, until, worst.violation, step);
  }
  alarms.push_back({.step = history.steps[*begin], .router = layer.id, .over = over, .text = text});
}

}  // namespace

std::string starved_since(const RoutingHistory& history, std::size_t begin) {
  return begin == 0 ? "the start" : "step " + grouped_number(history.steps[begin - 1]);
}

double alarming_violation(const RoutingHistory::Layer& layer) {
  const double most = static_cast<double>(layer.experts - layer.always_on) / static_cast<double>(layer.top_k) - 1;
  return std::min(4.0, most / 2);
}

std::vector<StarvedSpan> starved_spans(const RoutingHistory::Layer& layer) {
  const std::size_t experts = static_cast<std::size_t>(layer.experts);
  const std::size_t records = layer.counts.size() / (experts * static_cast<std::size_t>(layer.top_k));
  std::vector<RoutedTokens> loads;
  for (std::size_t r = 0; r < records; ++r) loads.push_back(layer_load(layer, {r, r + 1}));
  std::vector<StarvedSpan> spans;
  for (auto e = static_cast<std::size_t>(layer.always_on); e < experts; ++e) {
    double passed_by = 0;  // tokens that an even load would have given the expert since it was last chosen
    for (std::size_t r = 0, begin = 0; r <= records; ++r) {
      if (r < records && loads[r].tokens[e] == 0) {
        passed_by += loads[r].mean();
        continue;
      }
      if (passed_by >= starving_tokens) spans.push_back({.expert = e, .begin = begin, .end = r});
      begin = r + 1;
      passed_by = 0;
    }
  }
  return spans;
}

std::vector<Alarm> routing_alarms(const RoutingHistory& history) {
  std::vector<Alarm> alarms;
  for (const RoutingHistory::Layer& layer : history.layers) {
    add_starved_alarms(history, layer, alarms);
    add_uneven_alarm(history, layer, alarms);
  }
  std::ranges::stable_sort(alarms, [](const Alarm& a, const Alarm& b) {
    return std::tie(a.over, a.step, a.router) < std::tie(b.over, b.step, b.router);
  });
  return alarms;
}

}  // namespace lyceum
