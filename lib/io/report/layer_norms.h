#pragma once

#include <string>

#include "io/report/html.h"

namespace lyceum {

/// Returns charts of the norms of layers and of the largest logits over training, and a table of the last record; empty
/// if the run recorded none.
std::string layer_norms(const ReportInput& input);

}  // namespace lyceum
