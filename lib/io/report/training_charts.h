#pragma once

#include "io/report/html.h"

namespace lyceum {

/// Returns a chart of training and validation loss.
std::string loss_chart(const ReportInput& input);
/// Returns charts of learning rate and gradient norm; empty if there are none.
std::string optimizer_charts(const ReportInput& input);
/// Returns a chart of the imbalance of expert ranks; empty if the run has one expert rank.
std::string rank_imbalance_chart(const ReportInput& input);

}  // namespace lyceum
