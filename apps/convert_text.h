#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "convert/transforms/recipe.h"

/// The texts that `lyceum convert` prints.
namespace lyceum {

/// A function that prints a text on one rank and does nothing on the others.
using PrintOnce = std::function<void(const std::string& text)>;

/// A tensor that a conversion makes.
struct TensorLine {
  std::string name;
  Shape shape;
  std::string of;  // its sources: "8 columns of model/layers/#/mlp/down_proj/weight, times 2"
};
/// Returns a table with one line for all tensors whose pattern_of() and sources are equal: their number, the sum of
/// their elements, and their shape, or "several" if their shapes differ.
std::string tensor_table(std::span<const TensorLine> tensors);
/// Returns a tensor name in which the numbers of layers and experts are replaced by '#':
/// "model/layers/#/mlp/experts/#/up_proj/weight".
std::string pattern_of(const std::string& name);

/// Returns one line per key of the model that the transform or the user changed; empty if there are none.
std::string changes_text(const Config& own, const Config& made);
/// Describes the tensor that a recipe makes. `name`: its name; if empty, that of the recipe's tensor.
TensorLine line_of(const Recipe& recipe, const std::string& name = {});
/// Returns lines about the weights of `source` that no recipe reads, one per pattern_of(); empty if there are none.
std::string left_over_text(const CheckpointReader& source, std::span<const Recipe> recipes);

}  // namespace lyceum
