#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

/// Models as Hugging Face's transformers keep them, and what they are in Lyceum. An architecture is data that both
/// directions go by: import-hf, export-hf.
namespace lyceum::hugging_face {

using Json = nlohmann::ordered_json;

/// Keys of config.json and what they say of a Config; their values where config.json does not have them are those of
/// the model's class.
struct Field {
  std::vector<std::string_view> keys;
  /// Throws a bad_input Error for what Lyceum has no model for. Fields are read in their order.
  std::function<void(const Json& json, Config& config)> read;
  std::function<void(const Config& config, Json& json)> write;  // resolved
};

/// A part of the names of tensors.
struct Rename {
  std::string_view ours, theirs;
};

struct Architecture {
  std::string_view type;   // config.json's model_type
  std::string_view model;  // the class, in config.json's architectures
  bool native;             // whether transformers has the class, without code that comes with a model
  std::vector<Field> fields;
  std::vector<Rename> renames;  // of names with '.' for '/', one after another
  bool output_bias = false;     // with model.qkv_bias the output projection has one, too, which must be zero
};

/// In the order in which export-hf tries them.
std::span<const Architecture> architectures();
/// Of a model_type; null: none.
const Architecture* find_architecture(std::string_view type);

/// The model that config.json describes, not resolved; keys that do not describe a model have their defaults, but for
/// batch.seq_len. Throws a bad_input Error that names the first key that no model of Lyceum has, or that it does not
/// know.
Config config_of(const Architecture& architecture, const Json& json);
/// What describes the resolved model in config.json, as far as the architecture has words for it: a model that
/// config_of() does not give back is not of this architecture.
Json json_of(const Architecture& architecture, const Config& resolved);

/// The name of one of Lyceum's tensors.
std::string their_name(const Architecture& architecture, std::string name);
/// The name of the bias that `output_bias` is about.
std::string output_bias_name(const Architecture& architecture, std::int64_t layer);

}  // namespace lyceum::hugging_face
