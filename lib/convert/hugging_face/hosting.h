#pragma once

#include <string>
#include <vector>

#include "convert/hugging_face/architecture.h"
#include "convert/transforms/recipe.h"

namespace lyceum::hugging_face {

/// How an architecture holds a model.
struct Hosting {
  const Architecture* architecture;
  Config config;                   // resolved: a model that computes the same and is one of the architecture's
  std::vector<std::string> notes;  // how it differs from the one that was asked for
  std::vector<std::string> wrong;  // "moe.router = hash": why there is no such model; mostly empty
  bool undescribed = false;        // config.json of this architecture cannot even say what the model would be
};

/// The same model in this architecture: experts as wide as the widest one, or experts and gates that it always has.
Hosting host(const Architecture& architecture, const Config& resolved);

/// In the first architecture that holds it exactly. Throws a usage Error that names the keys for which the best of them
/// cannot. Architectures that are not native are for those who ask for them.
Hosting smallest_host(const Config& resolved);

/// A recipe for each tensor of the host's model: those of a checkpoint that are smaller get zeros behind, and those
/// that it does not have are zero.
std::vector<Recipe> host_recipes(const Hosting& hosting, const CheckpointReader& source);

}  // namespace lyceum::hugging_face
