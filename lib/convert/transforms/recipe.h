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

/// How the tensors of a new model are made from those of a checkpoint, for `lyceum convert`.
namespace lyceum {

/// A selection of rows (axis 0) or columns (axis 1) of a tensor, in order. An index may occur several times.
struct Pick {
  int axis = 0;
  std::vector<std::int64_t> indices;
  bool operator==(const Pick&) const = default;
};

/// The source of some rows of a new tensor. The members apply in order: pick, scale, pad.
struct RowSource {
  std::string tensor = {};        // name in the checkpoint; empty: initial values of the new tensor
  std::optional<Pick> pick = {};  // the selected part; nothing: all of it
  float scale = 1;                // factor; 0 gives zeros
  Shape padded = {};              // shape of a vector or matrix that is padded with zeros; rank 0: not padded
  bool operator==(const RowSource&) const = default;
};

/// How one tensor of the new model is made.
struct Recipe {
  ModelTensor tensor;
  std::vector<RowSource> parts;  // concatenated along axis 0
};

/// The parts of tensors that are not copied unchanged, keyed by the new tensor's name. All others are copies of the
/// tensor of the same name.
using SpecialParts = std::map<std::string, std::vector<RowSource>>;

/// Returns a recipe for each tensor of the model except adapters. Throws a usage Error if the checkpoint lacks the
/// source of a part, or if the parts do not add up to the tensor's shape; and a failed Error if `special` has a tensor
/// that is not of the model.
std::vector<Recipe> recipes_of(const Config& resolved, const CheckpointReader& source, SpecialParts special);

/// Computes a tensor into `values`, which must have as many elements as the tensor. Initial values depend on (seed,
/// name, element), as in a run that begins. Throws as CheckpointReader::read() does.
void make_tensor(const Recipe& recipe, const CheckpointReader& source, std::uint64_t seed, std::span<float> values);

/// Returns the names of the checkpoint's weights that no recipe reads, in alphabetical order.
std::vector<std::string> unread_weights(const CheckpointReader& source, std::span<const Recipe> recipes);

/// Returns `count` consecutive numbers: first, first + 1, ….
std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t count);

}  // namespace lyceum
