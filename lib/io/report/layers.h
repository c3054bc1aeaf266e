#pragma once

#include <string>
#include <vector>

#include "io/report/alarms.h"
#include "io/routing/history.h"

namespace lyceum {

/// What is wrong, on top of a page: a line an alarm, with links to the cards of its layer.
std::string alarm_list(const std::vector<Alarm>& alarms);

/// How many experts of each layer were starved, over time; empty if none ever was.
std::string starved_overview(const RoutingHistory& history);

/// A card a layer: expert × time maps, of all choices and of each; which experts are starved and since when;
/// percentiles of the load, MaxVio, idle experts and entropy over time. Those with current alarms are marked.
std::string layer_cards(const RoutingHistory& history, const std::vector<Alarm>& alarms);

}  // namespace lyceum
