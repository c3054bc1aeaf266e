#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/config/config.h"

namespace lyceum {

/// A logical tensor of a model, as its checkpoints have it.
struct ModelTensor {
  std::string name;
  Shape shape;
  std::optional<double> init_std;  // as Parameter's
};

/// All values, without moments, of the model that a resolved configuration describes, in the order of forward. They do
/// not depend on the mesh. The code of the model tells them; nothing is computed and no memory taken.
std::vector<ModelTensor> model_tensors(const Config& config);

}  // namespace lyceum
