#pragma once

#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "config/config.h"
#include "core/tensor.h"

namespace lyceum {

/// A logical tensor of a model, with its name and its whole shape in checkpoints.
struct ModelTensor {
  std::string name;
  Shape shape;
  Initial initial;
  /// True for a tensor of a unit with the role `buffer`; it is stored in accumulator precision whatever the model's
  /// type.
  bool buffer = false;
};

/// Returns the tensors of the model that a resolved configuration describes, in forward order and without moments of
/// the optimiser. They do not depend on the mesh. The model is constructed on a rehearsal stream, so nothing is
/// computed and no memory is taken.
std::vector<ModelTensor> model_tensors(const Config& config);

/// Returns the number of elements that training updates. Throws a usage Error if a pattern of optim.train_only matches
/// no rows of any tensor, or if none of the named tensors has a gradient.
std::int64_t count_trained_values(const Config& config);

}  // namespace lyceum
