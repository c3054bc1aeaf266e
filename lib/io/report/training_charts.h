#pragma once

#include "io/report/html.h"

namespace lyceum {

/// Training and validation loss over training.
std::string loss_chart(const ReportInput& input);
/// Learning rate and gradient norm over training.
std::string optimizer_charts(const ReportInput& input);

}  // namespace lyceum
