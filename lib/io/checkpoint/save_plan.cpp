#include "io/checkpoint/save_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "io/text/json.h"

namespace lyceum {

namespace {

using Json = nlohmann::json;

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

std::vector<std::int64_t> numbers(const Shape& shape) { return {shape.extents().begin(), shape.extents().end()}; }
Shape parse_shape(const Json& json) {
  return Shape(std::span<const std::int64_t>(json.get<std::vector<std::int64_t>>()));
}

}  // namespace

std::string describe_slices(const CheckpointHeader& header, std::span<const CheckpointSlice> slices) {
  require(header.step >= 0, "step {} is negative", header.step);
  Json list = Json::array();
  for (const CheckpointSlice& slice : slices) {
    check_name(slice.name);
    require(slice.shape.rank() > 0, "tensor {} has no dimensions: save it as [1]", slice.name);
    require(slice.values || slice.make || slice.box.extent.size() == 0, "tensor {} has no values", slice.name);
    require(slice.type == DType::f32 || slice.type == DType::bf16, "tensor {}: {} cannot be saved", slice.name,
            name_of(slice.type));
    list.push_back({slice.name, numbers(slice.shape), numbers(slice.box.offset), numbers(slice.box.extent),
                    slice.type == DType::bf16});
  }
  return json_text(Json{{"step", header.step}, {"run_uuid", header.run_uuid}, {"slices", std::move(list)}});
}

std::vector<StoredTensor> plan_tensors(const CheckpointHeader& header, const std::vector<std::string>& descriptions) {
  std::map<std::string, StoredTensor> tensors;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    const Json description = parse_json<Json>(descriptions[rank]);
    require(description.at("step") == header.step && description.at("run_uuid") == header.run_uuid,
            "rank {} saves a different step or run than rank 0", rank);
    for (const Json& slice : description.at("slices")) {
      const std::string name = slice.at(0);
      const Shape shape = parse_shape(slice.at(1));
      const Box box{parse_shape(slice.at(2)), parse_shape(slice.at(3))};
      const DType type = slice.at(4).get<bool>() ? DType::bf16 : DType::f32;
      StoredTensor& tensor = tensors.try_emplace(name, StoredTensor{name, shape, {}, type}).first->second;
      require(tensor.shape == shape, "tensor {} is {} on rank {}, but {} on another rank", name, shape, rank,
              tensor.shape);
      require(tensor.type == type, "tensor {} is {} on rank {}, but {} on another rank", name, name_of(type), rank,
              name_of(tensor.type));
      if (inside(box, shape) && box.extent.size() == 0) continue;  // this rank has no elements of the tensor
      tensor.boxes.push_back({rank, dataset_name(name, shape, box), box});
    }
  }
  std::vector<StoredTensor> result;
  std::vector<Box> boxes;
  for (auto& [name, tensor] : tensors) {
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      require(!tensors.contains(name.substr(0, slash)), "tensor {} is inside tensor {}", name, name.substr(0, slash));
    }
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
