#pragma once

#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "config/config.h"
#include "core/tensor.h"

namespace lyceum {

/// A logical tensor of a model, as its checkpoints have it.
struct ModelTensor {
  std::string name;
  Shape shape;
  Initial initial;
  bool buffer = false;  // of a unit with the role buffer: in accumulator precision in every model
};

/// All values, without moments, of the model that a resolved configuration describes, in the order of forward. They do
/// not depend on the mesh. They come from the code of the model; nothing is computed and no memory taken.
std::vector<ModelTensor> model_tensors(const Config& config);

/// Values that gradients move. Throws a usage Error that names the patterns of optim.train_only that name no rows of
/// any tensor, or where none of what they name is trained.
std::int64_t trained_values(const Config& config);

}  // namespace lyceum
