#pragma once

#include <string>

#include "io/routing/history.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Returns the tables of `lyceum routing` over a range of records:
/// - As in MoDSE's appendix A, one row per router and choice ("layer0 top0" is each token's first choice) with max,
///   min, max/min, mean, coefficient of variation and busiest expert. If `experts`, the first columns are the tokens of
///   every expert, under the experts' widths. If capacity is limited, the last column is the number of dropped choices.
/// - MaxVio and idle experts of single steps, if the log has them.
/// - The replicas of experts, if the log has any: their number, their tokens and transfers of weights.
/// - The information of the choices about tokens, if the log has it.
/// - The mean width of the chosen experts, if widths differ within a layer.
std::string routing_table(const RoutingReader& log, RecordRange range, bool experts);

/// Returns "mean width of the chosen experts 4045.2, of all experts 3840.0".
std::string width_text(const ChosenWidth& width);

}  // namespace lyceum
