#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "convert/transforms/experts.h"

namespace lyceum {

/// Returns the keys with which only the experts that `lyceum convert insert` added are trained, as notes for the user:
/// the optim.train_only of these experts and their rows of routers, and the keys of optim.router_penalty that limit it
/// to these rows. The second note says so if no such keys exist, and is left out if routers train no matrix. `config`
/// is that of the new model.
std::vector<std::string> insertion_notes(const Config& config, Site site, const ExpertOrigins& origins);

}  // namespace lyceum
