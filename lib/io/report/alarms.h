#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// A span of records [begin, end) in which no token chose an expert although an even load would have given it
/// `starving_tokens` or more. By chance this happens to an expert with a fair share with probability e^-100.
struct StarvedSpan {
  std::size_t expert = 0, begin = 0, end = 0;
};
/// The expected number of tokens without which an expert counts as starved.
constexpr std::int64_t starving_tokens = 100;

/// Returns the starved spans of one router, sorted by expert, then by time. Experts that are always active have none.
std::vector<StarvedSpan> starved_spans(const RoutingHistory::Layer& layer);

/// A problem of a run that its user should see.
struct Alarm {
  std::int64_t step = 0;              // at which it began
  std::optional<MixtureId> router{};  // nothing if it concerns the whole model
  bool over = false;                  // true if the newest record no longer has the problem
  std::string text;                   // without the step and the layer
};

/// Returns the alarms of all routers, current ones first, then sorted by step and layer. There are two kinds:
/// - Starved experts (see StarvedSpan).
/// - Uneven records: MaxVio is above alarming_violation(), or at least half of the experts are idle in a step without
///   being starved. Both numbers are means over the record's steps, if the log has them and an even load gives each
///   expert at least `least_judged_tokens` per step. Otherwise only MaxVio of the sum of the record's steps is judged.
std::vector<Alarm> routing_alarms(const RoutingHistory& history);

constexpr double least_judged_tokens = 10;  // with fewer, a load is uneven by chance

/// Returns the MaxVio above which a load is an alarm: 4, or half of the largest possible value if a layer has few
/// experts. If it is 0, because tokens choose all experts, there are no alarms.
double alarming_violation(const RoutingHistory::Layer& layer);

/// Returns the last step at which an expert had tokens if it is starved from record `begin` on: "step 4,000", or "the
/// start".
std::string starved_since(const RoutingHistory& history, std::size_t begin);

}  // namespace lyceum
