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

constexpr std::size_t most_told_steps = 3;  // at which experts of a layer died, in one line

/// "from step 4,000 (20), 4,100 (10), 4,200 (4) and later (1)": when spans began, with the number of experts.
std::string beginnings(const RoutingHistory& history, const std::vector<IdleSpan>& spans) {
  std::map<std::size_t, std::size_t> experts;  // by first idle record
  for (const IdleSpan& span : spans) ++experts[span.begin];
  if (experts.size() == 1) return idle_since(history, experts.begin()->first);
  std::string text;
  std::size_t told = 0, later = 0;
  for (const auto& [begin, count] : experts) {
    if (told++ >= most_told_steps) {
      later += count;
    } else {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", idle_since(history, begin), count);
    }
  }
  return later ? fmt::format("{} and later ({})", text, later) : text;
}

std::int64_t step_before(const RoutingHistory& history, std::size_t record) {
  return record == 0 ? 0 : history.steps[record - 1];
}

std::size_t experts_of(const std::vector<IdleSpan>& spans) {
  std::vector<std::size_t> experts;
  for (const IdleSpan& span : spans) experts.push_back(span.expert);
  std::ranges::sort(experts);
  return static_cast<std::size_t>(std::unique(experts.begin(), experts.end()) - experts.begin());
}

void add_idle_alarms(const RoutingHistory& history, const RoutingHistory::Layer& layer, std::vector<Alarm>& alarms) {
  std::vector<IdleSpan> still, over;
  for (const IdleSpan& span : idle_spans(layer)) {
    (span.end == history.steps.size() ? still : over).push_back(span);
  }
  const auto first = [](const std::vector<IdleSpan>& spans) {
    return std::ranges::min(spans, {}, &IdleSpan::begin).begin;
  };
  if (!still.empty()) {
    alarms.push_back({.step = step_before(history, first(still)),
                      .router = layer.id,
                      .text = fmt::format("{} of {} experts {} had no token since {}", still.size(), layer.experts,
                                          still.size() == 1 ? "has" : "have", beginnings(history, still))});
  }
  if (!over.empty()) {
    const std::size_t end = std::ranges::max(over, {}, &IdleSpan::end).end;
    alarms.push_back({.step = step_before(history, first(over)),
                      .router = layer.id,
                      .over = true,
                      .text = fmt::format("{} of {} experts temporarily had no tokens, until step {}", experts_of(over),
                                          layer.experts, grouped_number(history.steps[end - 1]))});
  }
}

void add_violation_alarm(const RoutingHistory& history, const RoutingHistory::Layer& layer,
                         std::vector<Alarm>& alarms) {
  const double limit = alarming_violation(layer);
  if (limit <= 0) return;
  std::optional<std::size_t> begin, last;
  std::size_t worst = 0;
  double worst_violation = 0;
  for (std::size_t r = 0; r < history.steps.size(); ++r) {
    const double violation = layer_load(layer, {r, r + 1}).max_violation();
    if (!(violation > limit)) continue;
    if (!begin) begin = r;
    last = r;
    if (violation > worst_violation) worst_violation = violation, worst = r;
  }
  if (!begin) return;
  const bool over = *last + 1 < history.steps.size();
  alarms.push_back(
      {.step = history.steps[*begin],
       .router = layer.id,
       .over = over,
       .text = fmt::format("MaxVio above {:.2g} {}; worst {:.3g} at step {}", limit,
                           over ? "until step " + grouped_number(history.steps[*last]) : "still in the newest record",
                           worst_violation, grouped_number(history.steps[worst]))});
}

}  // namespace

std::string idle_since(const RoutingHistory& history, std::size_t begin) {
  return begin == 0 ? "the start" : "step " + grouped_number(history.steps[begin - 1]);
}

double alarming_violation(const RoutingHistory::Layer& layer) {
  const double most = static_cast<double>(layer.experts - layer.always_on) / static_cast<double>(layer.top_k) - 1;
  return std::min(4.0, most / 2);
}

std::vector<IdleSpan> idle_spans(const RoutingHistory::Layer& layer) {
  const std::size_t experts = static_cast<std::size_t>(layer.experts);
  const std::size_t records = layer.counts.size() / (experts * static_cast<std::size_t>(layer.top_k));
  std::vector<RoutedTokens> loads;
  for (std::size_t r = 0; r < records; ++r) loads.push_back(layer_load(layer, {r, r + 1}));
  std::vector<IdleSpan> spans;
  for (auto e = static_cast<std::size_t>(layer.always_on); e < experts; ++e) {
    double passed_by = 0;  // tokens of an even share since the expert was last chosen
    for (std::size_t r = 0, begin = 0; r <= records; ++r) {
      if (r < records && loads[r].tokens[e] == 0) {
        passed_by += loads[r].mean();
        continue;
      }
      if (passed_by >= idle_tokens) spans.push_back({.expert = e, .begin = begin, .end = r});
      begin = r + 1;
      passed_by = 0;
    }
  }
  return spans;
}

std::vector<Alarm> routing_alarms(const RoutingHistory& history) {
  std::vector<Alarm> alarms;
  for (const RoutingHistory::Layer& layer : history.layers) {
    add_idle_alarms(history, layer, alarms);
    add_violation_alarm(history, layer, alarms);
  }
  std::ranges::stable_sort(alarms, [](const Alarm& a, const Alarm& b) {
    return std::tie(a.over, a.step, a.router) < std::tie(b.over, b.step, b.router);
  });
  return alarms;
}

}  // namespace lyceum
