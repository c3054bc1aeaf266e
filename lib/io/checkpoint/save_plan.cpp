#include "io/checkpoint/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace lyceum {

namespace {

/// Throws a failed Error if a tensor's name cannot be a path in an HDF5 file, to which a box may be appended in
/// brackets.
void check_name(const std::string& name) {
  const auto bad = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '[' || c == ']' || c == 0x7f; };
  require(!name.empty() && std::none_of(name.begin(), name.end(), bad),
          "tensor name \"{}\" is empty or contains brackets or control characters", name);
  const std::string padded = "/" + name + "/";
  for (const char* part : {"//", "/./", "/../"}) {
    require(padded.find(part) == std::string::npos, "tensor name \"{}\" has an empty or dotted part", name);
  }
}

/// Appends numbers and texts to a description.
class DescriptionWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T number) { text_.append(reinterpret_cast<const char*>(&number), sizeof(number)); }
  void put(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    text_ += text;
  }
  void put(const Shape& shape) {
    put(static_cast<std::int8_t>(shape.rank()));
    for (const std::int64_t extent : shape.extents()) put(extent);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Reads what DescriptionWriter wrote, in the same order.
class DescriptionReader {
 public:
  explicit DescriptionReader(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string_view text() { return take(number<std::uint64_t>()); }
  Shape shape() {
    std::array<std::int64_t, Shape::max_rank> extents{};
    const auto rank = static_cast<std::size_t>(number<std::int8_t>());
    for (std::size_t axis = 0; axis < rank; ++axis) extents.at(axis) = number<std::int64_t>();
    return Shape(std::span<const std::int64_t>(extents).first(rank));
  }

 private:
  std::string_view take(std::size_t bytes) {
    require(bytes <= rest_.size(), "the description of a rank's slices is incomplete");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::int64_t> PackedRanges::add(DType type, std::int64_t count) {
  if (count >= fewest_elements) return std::nullopt;
  std::int64_t& elements = type == DType::bf16 ? halves_ : floats_;
  return std::exchange(elements, elements + count);
}

std::string PackedRanges::dataset(DType type) { return fmt::format("packed[{}]", name_of(type)); }

std::string describe_slices(const CheckpointHeader& header, std::span<const CheckpointSlice> slices) {
  require(header.step >= 0, "step {} is negative", header.step);
  DescriptionWriter description;
  description.put(header.step);
  description.put(header.run_uuid);
  for (const CheckpointSlice& slice : slices) {
    check_name(slice.name);
    require(slice.shape.rank() > 0, "tensor {} has no dimensions: save it as [1]", slice.name);
    require(slice.values || slice.make || slice.box.extent.size() == 0, "tensor {} has no values", slice.name);
    require(slice.type == DType::f32 || slice.type == DType::bf16, "tensor {}: {} cannot be saved", slice.name,
            name_of(slice.type));
    description.put(slice.name);
    description.put(slice.shape);
    description.put(slice.box.offset);
    description.put(slice.box.extent);
    description.put(static_cast<std::int8_t>(slice.type == DType::bf16));
  }
  return description.take();
}

namespace {

/// Returns the tensors with the boxes of all ranks, sorted by name. Does not check that boxes cover them.
std::map<std::string, StoredTensor, std::less<>> merge(const CheckpointHeader& header,
                                                       const std::vector<std::string>& descriptions) {
  std::map<std::string, StoredTensor, std::less<>> tensors;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    DescriptionReader description(descriptions[rank]);
    const auto step = description.number<std::int64_t>();
    require(step == header.step && description.text() == header.run_uuid,
            "rank {} saves a different step or run than rank 0", rank);
    PackedRanges packed;
    while (!description.at_end()) {
      const std::string name(description.text());
      const Shape shape = description.shape();
      Box box;
      box.offset = description.shape();
      box.extent = description.shape();
      const DType type = description.number<std::int8_t>() ? DType::bf16 : DType::f32;
      StoredTensor& tensor = tensors.try_emplace(name, StoredTensor{name, shape, {}, type}).first->second;
      require(tensor.shape == shape, "tensor {} is {} on rank {}, but {} on another rank", name, shape, rank,
              tensor.shape);
      require(tensor.type == type, "tensor {} is {} on rank {}, but {} on another rank", name, name_of(type), rank,
              name_of(tensor.type));
      if (box.extent.size() == 0 && inside(box, shape)) continue;  // this rank has no elements of the tensor
      const auto first = packed.add(type, box.extent.size());
      tensor.boxes.push_back({rank, first ? PackedRanges::dataset(type) : dataset_name(name, shape, box), box, first});
    }
  }
  return tensors;
}

}  // namespace

std::vector<StoredTensor> plan_tensors(const CheckpointHeader& header, const std::vector<std::string>& descriptions) {
  auto tensors = merge(header, descriptions);
  std::vector<StoredTensor> result;
  result.reserve(tensors.size());
  std::vector<Box> boxes;
  std::string_view before;  // the last name, whose groups are no tensors
  for (auto& [name, tensor] : tensors) {
    const auto differs = std::ranges::mismatch(name, before).in1;
    const auto checked = static_cast<std::size_t>(differs - name.begin());
    for (std::size_t slash = name.find('/', checked); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      const std::string_view group = std::string_view(name).substr(0, slash);
      require(!tensors.contains(group), "tensor {} is inside tensor {}", name, group);
    }
    before = name;
    boxes.clear();
    for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
    const auto owner = [&](std::size_t i) { return fmt::format("rank {}", tensor.boxes[i].file); };
    const std::string problem = coverage_problem(name, tensor.shape, boxes, owner);
    require(problem.empty(), "{}", problem);
    result.push_back(std::move(tensor));
  }
  return result;
}

}  // namespace lyceum
