#include "apps/convert_text.h"

#include <boost/algorithm/string/join.hpp>
#include <fmt/format.h>

#include <iterator>
#include <map>
#include <utility>

#include "config/binding.h"
#include "config/check.h"
#include "config/value_text.h"
#include "io/text/table.h"

namespace lyceum {

namespace {

/// Describes a source, for example "8 columns of model/layers/#/mlp/down_proj/weight, times 2".
std::string part_text(const RowSource& part, const std::string& made) {
  if (part.scale == 0) return "zeros";
  std::string text = "initial values";
  if (part.tensor == made) {
    text = "the same";
  } else if (!part.tensor.empty()) {
    text = pattern_of(part.tensor);
    if (text == pattern_of(made)) text = "the same with another index";
  }
  if (part.pick) {
    const std::int64_t picked = std::ssize(part.pick->indices);
    text = fmt::format("{} of {}", count_text(picked, part.pick->axis ? "column" : "row"), text);
  }
  if (part.padded.rank() > 0) text += " and zeros";
  return part.scale == 1 ? text : text + fmt::format(", times {}", part.scale);
}

}  // namespace

std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !pattern.empty() && (pattern.back() == '/' || pattern.back() == '.')) {
      pattern += '#';
    } else if (!digit || pattern.empty() || pattern.back() != '#') {
      pattern += c;
    }
  }
  return pattern;
}

std::string tensor_table(std::span<const TensorLine> tensors) {
  struct Line {
    std::int64_t tensors = 0, elements = 0;
    std::string shape;
  };
  std::map<std::pair<std::string, std::string>, Line> lines;
  for (const TensorLine& tensor : tensors) {
    Line& line = lines[{pattern_of(tensor.name), tensor.of}];
    const std::string shape = tensor.shape.text();
    line.shape = line.tensors == 0 || line.shape == shape ? shape : "several";
    ++line.tensors;
    line.elements += tensor.shape.size();
  }
  Table table({"created", ">tensors", ">elements", "shape", "from"});
  for (const auto& [key, line] : lines) {
    table.add({key.first, fmt::to_string(line.tensors), human_count(static_cast<double>(line.elements)), line.shape,
               key.second});
  }
  return table.text();
}

std::string changes_text(const Config& own, const Config& made) {
  std::string text;
  for (const Difference& change : differences(own, made)) {
    if (!describes_model(change.key)) continue;
    text +=
        fmt::format("changed    {} = {} (was {})\n", change.key, value_text(change.after), value_text(change.before));
  }
  return text;
}

TensorLine line_of(const Recipe& recipe, const std::string& name) {
  std::vector<std::string> parts;
  for (const RowSource& part : recipe.parts) parts.push_back(part_text(part, name.empty() ? recipe.tensor.name : name));
  return {name.empty() ? recipe.tensor.name : name, recipe.tensor.shape, boost::join(parts, ", then ")};
}

std::string left_over_text(const CheckpointReader& source, std::span<const Recipe> recipes) {
  std::map<std::string, std::int64_t> patterns;
  for (const std::string& name : unread_weights(source, recipes)) ++patterns[pattern_of(name)];
  std::string text;
  for (const auto& [pattern, number] : patterns)
    text += fmt::format("left over  {} ({})\n", pattern, count_text(number, "tensor"));
  return text;
}

}  // namespace lyceum
