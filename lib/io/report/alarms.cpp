#include "io/report/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "io/report/chart.h"
#include "io/routing/stats.h"

namespace lyceum {
namespace {

constexpr std::size_t most_listed_steps = 3;  // number of steps that one alarm lists for its starved experts

/// Returns when the spans began, with the number of experts: "step 4,000 (20), step 4,100 (10), step 4,200 (4) and
/// later (1)", or only the step if there is one.
std::string beginnings_text(const std::vector<std::int64_t>& steps, const std::vector<StarvedSpan>& spans) {
  std::map<std::size_t, std::size_t> experts;  // number of experts by the first record of their spans
  for (const StarvedSpan& span : spans) ++experts[span.begin];
  if (experts.size() == 1) return starved_since(steps, experts.begin()->first);
  std::string text;
  std::size_t listed = 0, later = 0;
  for (const auto& [begin, count] : experts) {
    if (listed++ >= most_listed_steps) {
      later += count;
    } else {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", starved_since(steps, begin), count);
    }
  }
  return later ? fmt::format("{} and later ({})", text, later) : text;
}

std::int64_t step_before(const std::vector<std::int64_t>& steps, std::size_t record) {
  return record == 0 ? 0 : steps[record - 1];
}

std::size_t experts_of(const std::vector<StarvedSpan>& spans) {
  std::vector<std::size_t> experts;
  for (const StarvedSpan& span : spans) experts.push_back(span.expert);
  std::ranges::sort(experts);
  return static_cast<std::size_t>(std::unique(experts.begin(), experts.end()) - experts.begin());
}

}  // namespace

RouterWatch::RouterWatch(const RoutingHistory::Layer& router, const std::vector<std::int64_t>& steps)
    : router_(router),
      steps_(steps),
      passed_by_(static_cast<std::size_t>(router.experts)),
      begin_(static_cast<std::size_t>(router.experts)) {}

void RouterWatch::add(const RoutingHistory::Layer& layer, std::size_t record, const std::vector<std::int64_t>& tokens) {
  const std::size_t number = records_.size();
  const RoutedTokens load{.id = router_.id, .choice = {}, .tokens = tokens, .always_on = router_.always_on};
  const double mean = load.mean();
  for (auto e = static_cast<std::size_t>(router_.always_on); e < tokens.size(); ++e) {
    if (tokens[e] == 0) {
      passed_by_[e] += mean;
    } else {
      end_span(e, number);
    }
  }
  Unevenness result{.violation = load.max_violation(), .sum = load.max_violation()};
  const auto steps = static_cast<double>(steps_[number] - step_before(steps_, number));
  const StepBalance balance = step_balance(layer, record);
  if (!std::isnan(balance.max_vio_mean) && mean / steps >= least_judged_tokens) {
    result.violation = double{balance.max_vio_mean};
    result.of_steps = true;
    result.idle = balance.idle_mean;
  }
  records_.push_back(result);
}

void RouterWatch::end_span(std::size_t expert, std::size_t end) {
  if (passed_by_[expert] >= starving_tokens) spans_.push_back({.expert = expert, .begin = begin_[expert], .end = end});
  begin_[expert] = end + 1;
  passed_by_[expert] = 0;
}

std::vector<StarvedSpan> RouterWatch::starved() {
  for (std::size_t e = 0; e < begin_.size(); ++e) end_span(e, records_.size());
  std::ranges::sort(spans_, {}, [](const StarvedSpan& span) { return std::pair(span.expert, span.begin); });
  return spans_;
}

std::vector<Alarm> RouterWatch::alarms(const std::vector<StarvedSpan>& starved) const {
  std::vector<Alarm> alarms;
  add_starved_alarms(starved, alarms);
  add_uneven_alarm(starved, alarms);
  return alarms;
}

void RouterWatch::add_starved_alarms(const std::vector<StarvedSpan>& starved, std::vector<Alarm>& alarms) const {
  std::vector<StarvedSpan> still, over;
  for (const StarvedSpan& span : starved) (span.end == steps_.size() ? still : over).push_back(span);
  const auto first = [](const std::vector<StarvedSpan>& spans) {
    return std::ranges::min(spans, {}, &StarvedSpan::begin).begin;
  };
  if (!still.empty()) {
    alarms.push_back(
        {.step = step_before(steps_, first(still)),
         .router = router_.id,
         .text = fmt::format("{} of {} experts {} starved: no token since {}", still.size(), router_.choosable(),
                             still.size() == 1 ? "is" : "are", beginnings_text(steps_, still))});
  }
  if (!over.empty()) {
    const std::size_t end = std::ranges::max(over, {}, &StarvedSpan::end).end;
    alarms.push_back(
        {.step = step_before(steps_, first(over)),
         .router = router_.id,
         .over = true,
         .text = fmt::format("{} of {} experts {} starved, until step {}", experts_of(over), router_.choosable(),
                             experts_of(over) == 1 ? "was" : "were", grouped_number(steps_[end - 1]))});
  }
}

void RouterWatch::add_uneven_alarm(const std::vector<StarvedSpan>& starved, std::vector<Alarm>& alarms) const {
  const double limit = alarming_violation(router_);
  if (limit <= 0) return;
  const auto choosable = static_cast<double>(router_.choosable());
  std::vector<std::int64_t> change(records_.size() + 1);  // of the number of starved experts, from record to record
  for (const StarvedSpan& span : starved) {
    ++change[span.begin];
    --change[span.end];
  }
  std::optional<std::size_t> begin, last;
  std::size_t worst_record = 0;
  std::int64_t starved_now = 0;
  for (std::size_t r = 0; r < records_.size(); ++r) {
    starved_now += change[r];
    const Unevenness& record = records_[r];
    const bool idle = record.of_steps && double{record.idle} - static_cast<double>(starved_now) >= choosable / 2;
    if (!(record.violation > limit) && !idle) continue;
    if (!begin || record.violation > records_[worst_record].violation) worst_record = r;
    if (!begin) begin = r;
    last = r;
  }
  if (!begin) return;
  const Unevenness& worst = records_[worst_record];
  const bool over = *last + 1 < records_.size();
  const std::string until = over ? "until step " + grouped_number(steps_[*last]) : "still in the newest record";
  const std::string step = grouped_number(steps_[worst_record]);
  std::string text;
  if (worst.of_steps) {
    text = fmt::format(
        "uneven steps, {}; worst record, at step {}: MaxVio of a step {:.3g} on average (limit {:.2g}), {:.3g} of {} "
        "experts idle in a step",
        until, step, worst.violation, limit, double{worst.idle}, choosable);
    if (worst.sum <= limit && worst.violation > limit) {
      text += fmt::format("; the sum of its steps has MaxVio {:.2g}, since the busy experts change from step to step",
                          worst.sum);
    }
  } else {
    text = fmt::format("MaxVio above {:.2g} {}; worst {:.3g} at step {}", limit, until, worst.violation, step);
  }
  alarms.push_back({.step = steps_[*begin], .router = router_.id, .over = over, .text = text});
}

void sort_alarms(std::vector<Alarm>& alarms) {
  std::ranges::stable_sort(alarms, [](const Alarm& a, const Alarm& b) {
    return std::tie(a.over, a.step, a.router) < std::tie(b.over, b.step, b.router);
  });
}

std::string starved_since(const std::vector<std::int64_t>& steps, std::size_t begin) {
  return begin == 0 ? "the start" : "step " + grouped_number(steps[begin - 1]);
}

double alarming_violation(const RoutingHistory::Layer& layer) {
  const double most = static_cast<double>(layer.choosable()) / static_cast<double>(layer.top_k) - 1;
  return std::min(4.0, most / 2);
}

}  // namespace lyceum
