#pragma once

#include <vector>

#include "config/config.h"
#include "io/routing/domains.h"
#include "train/eval/evaluator.h"

namespace lyceum {

/// The routers of that resolved configuration, without data sets yet.
std::vector<DomainRouting::Router> domain_routers(const Config& config);

/// Adds a data set: what the model's routers did in an evaluation on it.
void add_domain(DomainRouting& domains, DomainRouting::DataSet data_set, const Evaluation& evaluation);

}  // namespace lyceum
