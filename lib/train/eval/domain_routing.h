#pragma once

#include <vector>

#include "config/config.h"
#include "io/routing/domains.h"
#include "train/eval/evaluator.h"

namespace lyceum {

/// Returns one entry per router of the model that the resolved `config` describes, in forward order. `routing` of each
/// is empty until add_domain().
std::vector<DomainRouting::Router> domain_routers(const Config& config);

/// Appends `data_set` and the routing statistics of its evaluation to `domains`. Sets its loss and its tokens, which
/// are Evaluation::positions: routers count tokens without a target, too. Throws an Error if the evaluation has another
/// number of routers than `domains`.
void add_domain(DomainRouting& domains, DomainRouting::DataSet data_set, const Evaluation& evaluation);

}  // namespace lyceum
