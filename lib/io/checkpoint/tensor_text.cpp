#include "io/checkpoint/tensor_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {
namespace {

using Json = nlohmann::json;

Shape shape_of(const Json& json) {
  const auto extents = exact_value<std::vector<std::int64_t>>(json);
  require_input(extents.size() <= Shape::max_rank, "a shape has {} dimensions, at most {} are supported",
                extents.size(), Shape::max_rank);
  for (const std::int64_t extent : extents) require_input(extent >= 0, "a shape has the negative extent {}", extent);
  return Shape(std::span(extents));
}

/// Appends "[2,3]".
void append(std::string& text, const Shape& shape) {
  fmt::format_to(std::back_inserter(text), "[{}]", fmt::join(shape.extents(), ","));
}

DType type_of(const Json& json) {
  const auto name = json.value("type", std::string(name_of(DType::f32)));
  for (const DType type : {DType::f32, DType::bf16}) {
    if (name_of(type) == name) return type;
  }
  fail(ExitCode::bad_input, "tensor {} has the unknown type {}", json.at("name").get<std::string>(), excerpt(name, 20));
}

StoredTensor tensor_of(const Json& json) {
  StoredTensor tensor{.name = json.at("name"), .shape = shape_of(json.at("shape")), .boxes = {}, .type = type_of(json)};
  for (const Json& entry : json.at("boxes")) {
    StoredSlice stored{
        .file = Exact(entry.at(0)), .dataset = entry.at(1), .box = {shape_of(entry.at(2)), shape_of(entry.at(3))}};
    if (entry.size() > 4) stored.first = exact_value<std::int64_t>(entry.at(4));
    tensor.boxes.push_back(std::move(stored));
  }
  return tensor;
}

/// Parses a tensor in exactly the form that append_json() writes, without the many allocations of a JSON tree.
class WrittenTensor {
 public:
  explicit WrittenTensor(std::string_view text) : rest_(text) {}

  /// Returns nothing if the text has another form, which may be valid JSON or not.
  std::optional<StoredTensor> parse() {
    StoredTensor tensor;
    if (!skip("{\"boxes\":[") || !boxes(tensor.boxes) || !skip(",\"name\":") || !string(tensor.name) ||
        !skip(",\"shape\":") || !shape(tensor.shape)) {
      return std::nullopt;
    }
    if (skip(",\"type\":\"bf16\"")) tensor.type = DType::bf16;
    return rest_ == "}" ? std::optional(std::move(tensor)) : std::nullopt;
  }

 private:
  bool boxes(std::vector<StoredSlice>& boxes) {
    if (skip("]")) return true;
    do {
      StoredSlice& stored = boxes.emplace_back();
      std::int64_t file = 0, first = 0;
      if (!skip("[") || !number(file) || !skip(",") || !string(stored.dataset) || !skip(",") ||
          !shape(stored.box.offset) || !skip(",") || !shape(stored.box.extent)) {
        return false;
      }
      stored.file = static_cast<std::size_t>(file);
      if (skip(",")) {
        if (!number(first)) return false;
        stored.first = first;
      }
      if (!skip("]")) return false;
    } while (skip(","));
    return skip("]");
  }

  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// Reads an integer that is not negative.
  bool number(std::int64_t& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    const std::string_view digits = rest_.substr(0, static_cast<std::size_t>(end - rest_.data()));
    if (error != std::errc() || digits.starts_with('-') || (digits.starts_with('0') && digits.size() > 1)) return false;
    return skip(digits);
  }
  /// Reads a string of printable ASCII without escapes.
  bool string(std::string& text) {
    if (!skip("\"")) return false;
    const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    const auto end = std::ranges::find_if_not(rest_, is_plain);
    text.assign(rest_.begin(), end);
    rest_.remove_prefix(text.size());
    return skip("\"");
  }
  bool shape(Shape& shape) {
    std::array<std::int64_t, Shape::max_rank> extents{};
    std::size_t rank = 0;
    if (!skip("[")) return false;
    while (!skip("]")) {
      if (rank == extents.size() || (rank > 0 && !skip(",")) || !number(extents[rank++])) return false;
    }
    shape = Shape(std::span<const std::int64_t>(extents).first(rank));
    return true;
  }

  std::string_view rest_;
};

}  // namespace

void append_json(std::string& text, const StoredTensor& tensor) {
  text += "{\"boxes\":[";
  const char* separator = "[";
  for (const StoredSlice& stored : tensor.boxes) {
    fmt::format_to(std::back_inserter(text), "{}{},{},", separator, stored.file, json_text(Json(stored.dataset)));
    append(text, stored.box.offset);
    text += ',';
    append(text, stored.box.extent);
    if (stored.first) fmt::format_to(std::back_inserter(text), ",{}", *stored.first);
    text += ']';
    separator = ",[";
  }
  fmt::format_to(std::back_inserter(text), "],\"name\":{},\"shape\":", json_text(Json(tensor.name)));
  append(text, tensor.shape);
  if (tensor.type != DType::f32) fmt::format_to(std::back_inserter(text), ",\"type\":\"{}\"", name_of(tensor.type));
  text += '}';
}

StoredTensor parse_tensor(std::string_view json) {
  std::optional<StoredTensor> written = WrittenTensor(json).parse();
  return written ? std::move(*written) : tensor_of(parse_json<Json>(json));
}

}  // namespace lyceum
