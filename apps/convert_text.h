#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convert/transforms/recipe.h"

/// The texts that `lyceum convert` prints.
namespace lyceum {

/// A function that prints on one rank.
using PrintOnce = std::function<void(const std::string& text)>;

/// A tensor that a conversion makes, and a description of its sources.
struct TensorLine {
  std::string name;
  Shape shape;
  std::string of;
};
/// Returns a table with one line for all tensors that are made in the same way.
std::string tensor_table(std::span<const TensorLine> tensors);
/// Returns a tensor name in which the numbers of layers and experts are replaced by '#'.
std::string pattern_of(const std::string& name);

/// Describes a recipe. `name`: name of the result; empty: the recipe's tensor.
TensorLine line_of(const Recipe& recipe, const std::string& name = {});
/// Lists the tensors of `source` that no recipe reads, by pattern.
std::string left_over_text(const CheckpointReader& source, std::span<const Recipe> recipes);

}  // namespace lyceum
