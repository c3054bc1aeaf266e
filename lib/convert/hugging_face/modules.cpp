#include "convert/hugging_face/modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

namespace lyceum::hugging_face {

namespace {

constexpr std::string_view module_prefix = "model/mtp/", projection = "proj/weight";

/// The tensors of a module whose names differ, without the prefix of the module.
constexpr std::array renamed{std::pair<std::string_view, std::string_view>{projection, "eh_proj/weight"},
                             std::pair<std::string_view, std::string_view>{"norm/weight", "shared_head/norm/weight"}};

/// Returns the part of a tensor's name after "model/mtp/0/"; empty for a tensor that belongs to no module.
std::string_view name_in_module(std::string_view name) {
  if (!name.starts_with(module_prefix)) return {};
  const std::size_t slash = name.find('/', module_prefix.size());
  return slash == std::string_view::npos ? std::string_view() : name.substr(slash + 1);
}

}  // namespace

Field prediction_modules() {
  static constexpr const char *key = "num_nextn_predict_layers", *alias = "num_mtp_layers";
  const auto read = [](const Json& json, Config& config) {
    const char* const present = json.contains(alias) ? alias : key;
    config.mtp.depth = number_of<std::int64_t>(value_or(json, present, 0), present);
    require_input(config.mtp.depth >= 0 && config.mtp.depth <= most_layers, "{} = {}: must be from 0 to {}", present,
                  config.mtp.depth, most_layers);
  };
  const auto write = [](const Config& config, Json& json) { json[key] = config.mtp.depth; };
  return {.keys = {key, alias}, .read = read, .write = write};
}

std::string layer_name_of_module(const ModelConfig& model, const std::string& name) {
  std::string_view inner = name_in_module(name);
  if (inner.empty()) return name;
  const std::string number =
      name.substr(module_prefix.size(), name.find('/', module_prefix.size()) - module_prefix.size());
  const auto other = std::ranges::find(renamed, inner, &std::pair<std::string_view, std::string_view>::first);
  if (other != renamed.end()) inner = other->second;
  return fmt::format("model/layers/{}/{}", model.layers + std::stoll(number), inner);
}

bool is_module_projection(const std::string& name) { return name_in_module(name) == projection; }

void exchange_halves(std::span<float> values, std::int64_t hidden) {
  for (auto row = values.begin(); row != values.end(); row += 2 * hidden) {
    std::swap_ranges(row, row + hidden, row + hidden);
  }
}

Pick exchanged_halves(std::int64_t hidden) {
  Pick pick{.axis = 1, .indices = numbers_from(hidden, hidden)};
  for (std::int64_t column = 0; column < hidden; ++column) pick.indices.push_back(column);
  return pick;
}

std::vector<ModuleCopy> module_copies(const Config& config) {
  std::vector<ModuleCopy> copies;
  for (std::int64_t layer = config.model.layers; layer < all_blocks(config); ++layer) {
    copies.push_back({fmt::format("model.layers.{}.embed_tokens.weight", layer), false});
    copies.push_back({fmt::format("model.layers.{}.shared_head.head.weight", layer), true});
  }
  return copies;
}

bool is_of_module(const ModelConfig& model, std::int64_t depth, const std::string& name) {
  constexpr std::string_view layers = "model.layers.";
  if (!name.starts_with(layers)) return false;
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' && layer >= model.layers &&
         layer < model.layers + depth;
}

}  // namespace lyceum::hugging_face
