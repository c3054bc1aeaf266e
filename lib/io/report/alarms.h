#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/routing/history.h"

namespace lyceum {

/// A starved expert: no token chose it in the records [begin, end), in which an even load would have given it
/// `starving_tokens` or more. An expert with a fair share misses as many tokens by chance once in e^100.
struct StarvedSpan {
  std::size_t expert = 0, begin = 0, end = 0;
};
constexpr std::int64_t starving_tokens = 100;

/// By expert, then by time.
std::vector<StarvedSpan> starved_spans(const RoutingHistory::Layer& layer);

/// What somebody who watches a run must see.
struct Alarm {
  std::int64_t step = 0;              // where it began
  std::optional<MixtureId> router{};  // none: of the whole model
  bool over = false;                  // not so any more in the newest record
  std::string text;                   // without step and layer in front
};

/// The alarms of every router: starved experts, and records whose load is too uneven. In such a record, MaxVio is above
/// `alarming_violation`, or most experts are idle in a step although they are not starved. This is the mean over single
/// steps where the log has it and an even load gives an expert `telling_tokens` a step, else MaxVio of the record's
/// sum. Current alarms come first, then by step and layer.
std::vector<Alarm> routing_alarms(const RoutingHistory& history);

constexpr double telling_tokens = 10;  // fewer are uneven by chance

/// MaxVio that is an alarm: 4, or half of the most that a layer of few experts can have.
double alarming_violation(const RoutingHistory::Layer& layer);

/// The last step at which the expert had tokens before record `begin`: "step 4,000", or "the start".
std::string starved_since(const RoutingHistory& history, std::size_t begin);

}  // namespace lyceum
