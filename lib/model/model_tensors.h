#pragma once

#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "core/tensor.h"
#include "io/config/config.h"

namespace lyceum {

/// A logical tensor of a model, as its checkpoints have it.
struct ModelTensor {
  std::string name;
  Shape shape;
  Initial initial;
};

/// All values, without moments, of the model that a resolved configuration describes, in the order of forward. They do
/// not depend on the mesh. The code of the model tells them; nothing is computed and no memory taken.
std::vector<ModelTensor> model_tensors(const Config& config);

/// Values that training moves, by gradients or by a router's own rule, and all of them.
struct TrainedShare {
  std::int64_t trained = 0, all = 0;
};
/// Throws a usage Error that names the patterns of optim.train_only that no tensor has, or where none of what they name
/// is trained.
TrainedShare trained_share(const Config& config);

}  // namespace lyceum
