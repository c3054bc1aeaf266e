#pragma once

#include <string>
#include <vector>

#include "convert/hugging_face/architecture.h"
#include "convert/transforms/recipe.h"

namespace lyceum::hugging_face {

/// How a model is represented in an architecture.
struct Hosting {
  const Architecture* architecture;
  Config config;                   // resolved: the equivalent model of the architecture
  std::vector<std::string> notes;  // lines for the user: how it differs from the original
  std::vector<std::string> wrong;  // why there is no equivalent model, such as "moe.router = hash"; else empty
  bool drops_modules = false;      // the modules of multi-token prediction are left out
  bool undescribed = false;        // config.json of this architecture cannot describe the model at all
};

/// Returns the equivalent model in this architecture. Modules of multi-token prediction are left out if the
/// architecture has none, since they do not change the model. Narrower experts are padded to the width of the widest,
/// and experts and gates that the architecture always has are added. Does not throw if there is no such model; see
/// Hosting::wrong.
Hosting host(const Architecture& architecture, const Config& resolved);

/// Returns the model in the first architecture that represents it exactly, with its modules of multi-token prediction
/// if there is one. Throws a usage Error that names the closest architecture and the keys that it cannot represent.
/// Tries only native architectures; others must be requested with host().
Hosting first_exact_host(const Config& resolved);

/// Returns a recipe for each tensor of the hosting model. Tensors that are smaller in the checkpoint are padded with
/// zeros, and those that it does not have are zero. An added gate of the shared experts is therefore always ½, so their
/// down_proj is doubled. The columns of modules' projections are exchanged. Throws the errors of recipes_of().
std::vector<Recipe> host_recipes(const Hosting& hosting, const CheckpointReader& source);

}  // namespace lyceum::hugging_face
