#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/routing/log.h"

namespace lyceum {

/// An expert that no token chose in the records [begin, end), though an even spread would have given it
/// `idle_tokens` or more: as many tokens pass by an expert of a fair share by chance once in e^100.
struct IdleSpan {
  std::size_t expert = 0, begin = 0, end = 0;
};
constexpr std::int64_t idle_tokens = 100;

/// By expert, then by time.
std::vector<IdleSpan> idle_spans(const RoutingHistory::Layer& layer);

/// What somebody who watches a run must see.
struct Alarm {
  std::int64_t step = 0;              // where it began
  std::optional<MixtureId> router{};  // none: of the whole model
  bool over = false;                  // not so any more in the newest record
  std::string text;                   // without step and layer in front
};

/// Of every router: idle experts, and a MaxVio that stays above `alarming_violation`. What is still going on comes
/// first, then by step and layer.
std::vector<Alarm> routing_alarms(const RoutingHistory& history);

/// MaxVio that is an alarm: 4, or half of the most that a layer of few experts can have.
double alarming_violation(const RoutingHistory::Layer& layer);

/// The last step at which the expert had tokens before record `begin`: "step 4,000", or "the start".
std::string idle_since(const RoutingHistory& history, std::size_t begin);

}  // namespace lyceum
