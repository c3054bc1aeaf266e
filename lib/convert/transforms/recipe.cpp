#include "convert/transforms/recipe.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "autograd/parameter.h"
#include "core/error.h"
#include "core/random.h"

namespace lyceum {

namespace {

/// Returns the shape of the tensor that a part picks from. Throws a usage Error if the checkpoint does not have it.
Shape source_shape(const RowSource& part, const ModelTensor& tensor, const CheckpointReader& source) {
  if (part.tensor.empty()) return tensor.shape;
  const CheckpointReader::Entry* const entry = source.find(part.tensor);
  require_usage(entry, "{} has no {} to create {} from: do not change keys of the model on the command line",
                source.directory().string(), part.tensor, tensor.name);
  return entry->shape;
}

Shape picked_shape(const std::optional<Pick>& pick, Shape shape) {
  if (pick) shape[pick->axis] = std::ssize(pick->indices);
  return shape;
}

/// Returns the shape of the values that a part gives, after picking and padding.
Shape made_shape(const RowSource& part, const ModelTensor& tensor, const CheckpointReader& source) {
  const Shape picked = picked_shape(part.pick, source_shape(part, tensor, source));
  return part.padded.rank() == picked.rank() && inside(Box::whole(picked), part.padded) ? part.padded : picked;
}

/// True if the indices are consecutive.
bool is_consecutive(const std::vector<std::int64_t>& indices) {
  return std::ranges::adjacent_find(indices, [](auto a, auto b) { return b != a + 1; }) == indices.end();
}

/// Throws a usage Error unless the parts of a recipe add up to the shape of its tensor.
void require_whole(const Recipe& recipe, const CheckpointReader& source) {
  const ModelTensor& tensor = recipe.tensor;
  std::int64_t rows = 0;
  bool fits = true;
  std::string parts;
  for (const RowSource& part : recipe.parts) {
    const Shape from = source_shape(part, tensor, source);
    Shape made = made_shape(part, tensor, source);
    rows += std::exchange(made[0], tensor.shape[0]);
    fits = fits && made == tensor.shape;
    parts +=
        (parts.empty() ? "" : " and ") + (part.tensor.empty() ? "initial values" : part.tensor + " " + from.text());
  }
  require_usage(fits && rows == tensor.shape[0],
                "{} would be {} but is created from {}: do not change the keys of these sizes", tensor.name,
                tensor.shape.text(), parts);
}

/// Copies the picked rows or columns of a whole tensor of shape `shape` to `values`.
void gather(const std::vector<float>& whole, const Shape& shape, const Pick& pick, std::span<float> values) {
  const auto outer =
      std::accumulate(shape.extents().begin(), shape.extents().begin() + pick.axis, std::int64_t{1}, std::multiplies());
  const std::int64_t extent = shape[pick.axis], inner = shape.size() / (outer * extent);
  float* to = values.data();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const std::int64_t index : pick.indices) {
      to = std::copy_n(whole.data() + (o * extent + index) * inner, inner, to);
    }
  }
}

/// Returns all values of the tensor that a part picks from.
std::vector<float> whole_source(const RowSource& part, const ModelTensor& tensor, const Shape& shape,
                                const CheckpointReader& source, std::uint64_t seed) {
  std::vector<float> whole(static_cast<std::size_t>(shape.size()));
  if (part.tensor.empty()) {
    draw_initial(whole, tensor.initial, Philox(seed, tensor.name), 0);
  } else {
    source.read(part.tensor, Box::whole(shape), whole.data());
  }
  return whole;
}

/// Pads a matrix or vector in place: moves the values of shape `from` at the beginning of `values` to the upper left
/// corner of shape `to`, and sets all others to 0.
void pad(const Shape& from, const Shape& to, std::span<float> values) {
  require(to.rank() <= 2, "a tensor {} cannot be padded to {}: only vectors and matrices can", from, to);
  const bool matrix = to.rank() == 2;
  const std::int64_t rows = matrix ? from[0] : 1, columns = from[matrix ? 1 : 0], stride = to[matrix ? 1 : 0];
  std::fill(values.begin() + rows * columns, values.end(), 0.f);
  for (std::int64_t row = rows - 1; row >= 0 && columns < stride; --row) {
    const auto old = values.begin() + row * columns, begin = values.begin() + row * stride;
    std::copy_backward(old, old + columns, begin + columns);
    std::fill(begin + columns, begin + stride, 0.f);
  }
}

void make_part(const RowSource& part, const ModelTensor& tensor, const CheckpointReader& source, std::uint64_t seed,
               std::span<float> made) {
  if (part.scale == 0) {
    std::ranges::fill(made, 0.f);
    return;
  }
  const Shape shape = source_shape(part, tensor, source), picked = picked_shape(part.pick, shape);
  const std::span<float> values = made.first(static_cast<std::size_t>(picked.size()));
  const bool drawn = part.tensor.empty();
  if (drawn && !part.pick) {
    draw_initial(values, tensor.initial, Philox(seed, tensor.name), 0);
  } else if (drawn || (part.pick && !is_consecutive(part.pick->indices))) {
    gather(whole_source(part, tensor, shape, source, seed), shape, *part.pick, values);
  } else {
    Box box = Box::whole(shape);  // consecutive indices are one box
    if (part.pick) box.offset[part.pick->axis] = part.pick->indices.front();
    box.extent = picked;
    source.read(part.tensor, box, values.data());
  }
  if (part.scale != 1) {
    for (float& value : values) value *= part.scale;
  }
  if (values.size() < made.size()) pad(picked, part.padded, made);
}

}  // namespace

std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::vector<Recipe> recipes_of(const Config& resolved, const CheckpointReader& source, SpecialParts special) {
  std::vector<Recipe> recipes;
  for (ModelTensor& tensor : model_tensors(resolved)) {
    if (is_adapter(tensor.name)) continue;  // training adds them
    auto node = special.extract(tensor.name);
    std::vector<RowSource> parts;
    if (node.empty()) {
      parts.push_back({.tensor = tensor.name});
    } else {
      parts = std::move(node.mapped());
    }
    recipes.push_back({std::move(tensor), std::move(parts)});
    require_whole(recipes.back(), source);
  }
  require(special.empty(), "there is a recipe for {}, which the model does not have",
          special.empty() ? "" : special.begin()->first);
  return recipes;
}

void make_tensor(const Recipe& recipe, const CheckpointReader& source, std::uint64_t seed, std::span<float> values) {
  for (const RowSource& part : recipe.parts) {
    const auto count = static_cast<std::size_t>(made_shape(part, recipe.tensor, source).size());
    make_part(part, recipe.tensor, source, seed, values.first(count));
    values = values.subspan(count);
  }
}

std::vector<std::string> unread_weights(const CheckpointReader& source, std::span<const Recipe> recipes) {
  std::set<std::string> read;
  for (const Recipe& recipe : recipes) {
    for (const RowSource& part : recipe.parts) read.insert(part.tensor);
  }
  std::vector<std::string> names;
  for (const CheckpointReader::Entry& entry : source.tensors()) {
    if (!is_optimizer_state(entry.name) && !read.contains(entry.name)) names.push_back(entry.name);
  }
  return names;
}

}  // namespace lyceum
