#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

/// Models in the format of Hugging Face's transformers, and the corresponding models of Lyceum. An Architecture
/// describes one model class as data, which both import-hf and export-hf use.
namespace lyceum::hugging_face {

using Json = nlohmann::ordered_json;

/// Keys of config.json, and functions that convert them from and to a Config. For keys that config.json does not have,
/// read() uses the values of the model's class.
struct Field {
  std::vector<std::string_view> keys;
  /// Sets members of `config`. Throws a bad_input Error if Lyceum has no such model. The fields of an architecture are
  /// read in order, so a field can use members that earlier ones have set.
  std::function<void(const Json& json, Config& config)> read;
  std::function<void(const Config& config, Json& json)> write;  // config: resolved
};

/// A part of tensor names that differs: `ours` in Lyceum, `theirs` in transformers. Every occurrence is replaced.
struct Rename {
  std::string_view ours, theirs;
};

/// A model class of transformers.
struct Architecture {
  std::string_view type;   // config.json's model_type
  std::string_view model;  // name of the class, in config.json's architectures
  bool native;             // the class is part of transformers, not of code that comes with a model
  std::vector<Field> fields;
  std::vector<Rename> renames;   // applied in order, after '/' is replaced by '.'
  bool stacked_experts = false;  // one tensor has the experts of a layer, see stacked_experts.h
};

/// Returns all architectures, in the order in which export-hf tries them.
std::span<const Architecture> architectures();
/// Returns the architecture of a model_type, or null if there is none.
const Architecture* find_architecture(std::string_view type);

/// Returns the model that config.json describes, not resolved. Keys that do not describe the model have their defaults,
/// except batch.seq_len. Keys and values that cannot change what the model computes, such as unknown keys that are null
/// or false, are ignored. Throws a bad_input Error that names the first other unknown key, or a key whose value Lyceum
/// does not support.
Config config_of(const Architecture& architecture, const Json& json);
/// Returns the keys of config.json that describe a resolved model, as far as the architecture has keys for its
/// properties. The model is of this architecture only if config_of() gives the same model again.
Json json_of(const Architecture& architecture, const Config& resolved);

/// Returns the name in transformers of one of Lyceum's tensors.
std::string name_in_transformers(const Architecture& architecture, const ModelConfig& model, const std::string& ours);

}  // namespace lyceum::hugging_face
