#pragma once

#include <iosfwd>
#include <string>

#include "io/routing/history.h"
#include "io/routing/stats.h"

namespace lyceum {

/// Tables as in MoDSE's appendix A: a row a router and choice ("layer0 top0" is each token's first choice) with max,
/// min, max/min, mean, coefficient of variation and busiest expert; `experts` puts the tokens of every expert in front,
/// under the experts' widths. Where the capacity of experts is limited, a last column is what was dropped of a row's
/// tokens. Below, MaxVio and idle experts of single steps, if the log has them; the mean width of the chosen experts,
/// if widths differ within a layer; and the information of the choices about tokens.
std::string routing_table(const RoutingHistory& history, RecordRange range, bool experts);

/// "mean width of the chosen experts 4045.2, of all experts 3840.0"
std::string width_text(const ChosenWidth& width);

/// Lines of step,layer,choice,expert,expert_size,expert_rank,tokens,mean_probability,site under a header; every record.
/// Where the capacity of experts is limited, a last column is dropped.
void write_routing_csv(const RoutingHistory& history, std::ostream& out);

}  // namespace lyceum
