#include "io/checkpoint/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
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

/// Reads the slices of a rank, each as a tensor with the one box that this rank saves, or none if it has no elements.
void read_slices(const CheckpointHeader& header, std::string_view text, std::size_t rank,
                 std::vector<StoredTensor>& tensors) {
  DescriptionReader description(text);
  const auto step = description.number<std::int64_t>();
  require(step == header.step && description.text() == header.run_uuid,
          "rank {} saves a different step or run than rank 0", rank);
  PackedRanges packed;
  while (!description.at_end()) {
    StoredTensor& tensor = tensors.emplace_back();
    tensor.name = description.text();
    tensor.shape = description.shape();
    Box box;
    box.offset = description.shape();
    box.extent = description.shape();
    tensor.type = description.number<std::int8_t>() ? DType::bf16 : DType::f32;
    if (box.extent.size() == 0 && inside(box, tensor.shape)) continue;
    const auto first = packed.add(tensor.type, box.extent.size());
    const std::string dataset =
        first ? PackedRanges::dataset(tensor.type) : dataset_name(tensor.name, tensor.shape, box);
    tensor.boxes.push_back({rank, dataset, box, first});
  }
}

/// Moves the boxes of `from`, the same tensor on a later rank, to `tensor`.
void merge(StoredTensor& tensor, StoredTensor& from, std::size_t rank) {
  require(tensor.shape == from.shape, "tensor {} is {} on rank {}, but {} on another rank", from.name, from.shape, rank,
          tensor.shape);
  require(tensor.type == from.type, "tensor {} is {} on rank {}, but {} on another rank", from.name, name_of(from.type),
          rank, name_of(tensor.type));
  std::ranges::move(from.boxes, std::back_inserter(tensor.boxes));
}

/// Throws a failed Error if a name is the group of another one, or if the boxes do not cover a tensor exactly once.
/// `tensors`: in the order of their names.
void check_tensors(std::span<const StoredTensor> tensors) {
  std::vector<Box> boxes;
  std::string_view before;  // the last name, whose groups are no tensors
  for (const StoredTensor& tensor : tensors) {
    const std::string_view name = tensor.name;
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(name, before).in1 - name.begin());
    for (std::size_t slash = name.find('/', common); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      const std::string_view group = name.substr(0, slash);
      require(!std::ranges::binary_search(tensors, group, {}, &StoredTensor::name), "tensor {} is inside tensor {}",
              name, group);
    }
    before = name;
    boxes.clear();
    for (const StoredSlice& stored : tensor.boxes) boxes.push_back(stored.box);
    const auto owner = [&](std::size_t i) { return fmt::format("rank {}", tensor.boxes[i].file); };
    const std::string problem = coverage_problem(tensor.name, tensor.shape, boxes, owner);
    require(problem.empty(), "{}", problem);
  }
}

}  // namespace

std::vector<StoredTensor> plan_tensors(const CheckpointHeader& header, const std::vector<std::string>& descriptions) {
  std::vector<StoredTensor> slices;
  std::vector<std::size_t> ends;  // of the slices of each rank
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    read_slices(header, descriptions[rank], rank, slices);
    ends.push_back(slices.size());
  }
  std::vector<std::uint32_t> order(slices.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return std::pair(std::string_view(slices[i].name), i); });
  std::vector<StoredTensor> tensors;
  tensors.reserve(slices.size());
  for (const std::uint32_t i : order) {
    if (tensors.empty() || tensors.back().name != slices[i].name) {
      tensors.push_back(std::move(slices[i]));
    } else {
      merge(tensors.back(), slices[i], static_cast<std::size_t>(std::ranges::upper_bound(ends, i) - ends.begin()));
    }
  }
  check_tensors(tensors);
  return tensors;
}

}  // namespace lyceum
