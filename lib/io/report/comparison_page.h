#pragma once

#include <string>

#include "io/report/comparison.h"

namespace lyceum {

/// Returns runs side by side as a self-contained HTML page that is also valid XML: the curves of all runs in one chart
/// per metric (training loss by step, by tokens and by time, validation loss, gradient norm, tokens per second, load
/// balance) and the tables of comparison_text(). It needs no network and is readable without JavaScript.
std::string comparison_page(const Comparison& comparison, const std::string& title);

}  // namespace lyceum
