#pragma once

#include <string>

#include "io/routing/domains.h"

namespace lyceum {

/// Returns a self-contained HTML page: the distances of the data sets by layer, and for each router two maps of data
/// sets and choices: the shares of the choices and the mean probabilities, relative to an even spread.
std::string domains_page(const DomainRouting& domains);

}  // namespace lyceum
