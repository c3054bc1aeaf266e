#pragma once

#include <string>
#include <vector>

#include "io/report/alarms.h"
#include "io/report/digest.h"

namespace lyceum {

/// Returns the list of alarms at the top of a page, one line per alarm, with links to the cards of layers. Past alarms
/// are collapsed.
std::string alarm_list(const std::vector<Alarm>& alarms);

/// Returns a map of the share of starved experts of each layer over time; empty if no expert was ever starved.
std::string starved_overview(const RoutingDigest& routing);

/// Returns one card per router, marked if it has current alarms. Precondition: the log has a record. A card has
/// - maps of the load by expert and time, of all choices and of each k-th choice;
/// - the starved experts and the steps since when they are;
/// - charts of load percentiles, MaxVio, idle experts, entropy and information over time.
std::string layer_cards(const RoutingDigest& routing, const std::vector<Alarm>& alarms);

}  // namespace lyceum
