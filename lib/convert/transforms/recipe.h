#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "model/model_tensors.h"

/// How the tensors of a new model are made of those of a checkpoint: `lyceum convert`.
namespace lyceum {

/// Rows or columns (`axis` 0 or 1) of a tensor in an order; one may come several times.
struct Pick {
  int axis = 0;
  std::vector<std::int64_t> indices;
  bool operator==(const Pick&) const = default;
};

/// What some rows of a new tensor are.
struct RowSource {
  std::string tensor = {};        // of the checkpoint; empty: initial values of the new tensor itself
  std::optional<Pick> pick = {};  // of that; none: all
  float scale = 1;                // 0: zeros, whatever it would be of
  Shape padded = {};              // with zeros behind, up to this shape; none: as it is
  bool operator==(const RowSource&) const = default;
};

/// The one way to make a tensor.
struct Recipe {
  ModelTensor tensor;
  std::vector<RowSource> parts;  // one below the other
};

/// What is special about some tensors, by name. All others are those of the same name.
using SpecialParts = std::map<std::string, std::vector<RowSource>>;

/// A recipe for each tensor of the model. Throws a usage Error where a part is not in the checkpoint or the parts do
/// not make up the tensor's shape.
std::vector<Recipe> recipes_of(const Config& resolved, const CheckpointReader& source, SpecialParts special);

/// Fills `values` with the tensor. Initial values go by (seed, name, element), as those of a run that begins.
void make_tensor(const Recipe& recipe, const CheckpointReader& source, std::uint64_t seed, std::span<float> values);

/// Weights of the checkpoint that no recipe reads, sorted by name.
std::vector<std::string> left_over(const CheckpointReader& source, std::span<const Recipe> recipes);

/// Neighbouring numbers: first, first + 1, …
std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t count);

}  // namespace lyceum
