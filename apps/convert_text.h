#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convert/transforms/recipe.h"

/// What `lyceum convert` prints.
namespace lyceum {

/// Prints on one rank.
using Tell = std::function<void(const std::string& text)>;

/// A tensor that is made, and of what.
struct TensorLine {
  std::string name;
  Shape shape;
  std::string of;
};
/// A line for tensors that are made alike.
std::string tensor_table(std::span<const TensorLine> tensors);
/// The name with '#' for the number of a layer, and of an expert.
std::string pattern_of(const std::string& name);

/// `name`: of what is made, where that is not the recipe's.
TensorLine line_of(const Recipe& recipe, const std::string& name = {});
std::string left_over_text(const CheckpointReader& source, std::span<const Recipe> recipes);

}  // namespace lyceum
