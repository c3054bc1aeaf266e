#pragma once

#include <string>

#include "io/routing/domains.h"

namespace lyceum {

/// One page that needs nothing else: how far apart the data sets are by layer, and for each router two maps of data
/// sets and choices, the shares of the choices and the mean probabilities, relative to an even spread.
std::string domains_page(const DomainRouting& domains);

}  // namespace lyceum
