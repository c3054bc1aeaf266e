#include "convert/hugging_face/positions.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "convert/hugging_face/fields.h"
#include "core/error.h"
#include "io/text/json.h"

namespace lyceum::hugging_face {

namespace {

constexpr const char *base_key = "rope_theta", *fraction_key = "partial_rotary_factor", *older = "rope_scaling",
                     *newer = "rope_parameters", *original_key = "original_max_position_embeddings";

/// The type of scaling in config.json, and its keys. The keys of the types that Lyceum does not scale are never read.
struct ScalingType {
  const char* name;
  RopeScalingKind kind;
  std::vector<std::string_view> keys;
};

std::vector<ScalingType> scaling_types() {
  using enum RopeScalingKind;
  return {
      {"default", none, {}},
      {"linear", linear, {"factor"}},
      {"llama3", llama3, {"factor", original_key, "low_freq_factor", "high_freq_factor"}},
      {"yarn",
       yarn,
       {"factor", original_key, "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"}}};
}

const ScalingType& type_of(const std::vector<ScalingType>& types, RopeScalingKind kind) {
  return *std::ranges::find(types, kind, &ScalingType::kind);
}

/// The object of config.json that describes the positions. An empty one means defaults.
class Positions {
 public:
  Positions(const Json& json, const RotaryClass& of_class)
      : json_(json), name_(value_of(json, older).empty() ? newer : older), own_(of_class.positions) {
    if (!value_of(json, name_).is_null()) own_ = value_of(json, name_);
    require_input(own_.is_object(), "{} = {} is not an object", name_, excerpt(json_text(own_)));
  }

  /// Returns the value of a key that may also be beside the object; `absent` if neither has it. Throws if it is null.
  Json here_or_beside(const char* key, const Json& absent) const {
    return value_or(own_.contains(key) ? own_ : json_, key, absent);
  }
  /// Returns the type. Throws if it is not one that Lyceum supports, or if there are other keys than those of the type.
  ScalingType type() const {
    const char* const key = !own_.contains("rope_type") && own_.contains("type") ? "type" : "rope_type";
    const Json given = own_.contains(key) ? own_[key] : Json("default");
    const std::vector<ScalingType> types = scaling_types();
    const auto found = std::ranges::find_if(types, [&](const ScalingType& type) { return given == type.name; });
    require_input(found != types.end(), "{} has {} = {}: Lyceum supports default, linear, llama3 and yarn", name_, key,
                  excerpt(json_text(given)));
    for (const auto& [other, value] : own_.items()) {
      const bool known = other == "rope_type" || other == "type" || other == base_key || other == fraction_key ||
                         std::ranges::find(found->keys, other) != found->keys.end();
      require_input(known || value.is_null(), "{} has {} = {}, which is not a key of the type {}", name_,
                    excerpt(other), excerpt(json_text(value)), found->name);
    }
    return *found;
  }
  /// Returns the value of a key that must be there and not null.
  template <class T>
  T required(const char* key) const {
    const Json& value = value_of(own_, key);
    require_input(!value.is_null(), "{} has no {}", name_, key);
    return number_of<T>(value, key);
  }
  /// Returns the value of a key; `absent` if it is not there or null.
  template <class T>
  T optional(const char* key, T absent) const {
    const Json& value = value_of(own_, key);
    return value.is_null() ? absent : number_of<T>(value, key);
  }
  /// Returns the value of a key; `absent` if it is not there, null or 0.
  double nonzero(const char* key, double absent) const {
    const double value = optional(key, 0.0);
    return value == 0 ? absent : value;
  }
  /// True if the key is there with a value, or with null.
  bool has(const char* key) const { return !value_of(own_, key).is_null(); }
  bool is_null(const char* key) const { return own_.contains(key) && !has(key); }
  /// Returns the sequence length before scaling. `longest`: max_position_embeddings, the default.
  std::int64_t original_length(std::int64_t longest) const {
    const Json value = value_or(json_.contains(original_key) ? json_ : own_, original_key, longest);
    const auto length = number_of<std::int64_t>(value, original_key);
    require_input(length > 0, "{} = {}: must be above 0", original_key, length);
    return length;
  }

 private:
  const Json& json_;
  const char* name_;
  Json own_;
};

/// Reads the keys of a scaling. `longest`: max_position_embeddings.
PositionsConfig read_scaling(const Positions& positions, RopeScalingKind kind, std::int64_t longest) {
  using enum RopeScalingKind;
  PositionsConfig config{.scaling = kind};
  if (kind == none) return config;
  if (kind == llama3 || kind == yarn) config.original_length = positions.original_length(longest);
  if (kind == yarn && positions.is_null("factor")) {
    config.factor = static_cast<double>(longest) / static_cast<double>(config.original_length);
  } else {
    config.factor = positions.required<double>("factor");
  }
  if (kind == llama3) {
    config.low_freq_factor = positions.required<double>("low_freq_factor");
    config.high_freq_factor = positions.required<double>("high_freq_factor");
  }
  if (kind != yarn) return config;
  config.beta_fast = positions.nonzero("beta_fast", config.beta_fast);
  config.beta_slow = positions.nonzero("beta_slow", config.beta_slow);
  config.truncate = !positions.is_null("truncate") && positions.optional("truncate", true);
  config.attention_factor = positions.optional("attention_factor", config.attention_factor);
  require_input(config.attention_factor > 0 || !positions.has("attention_factor"),
                "attention_factor = {}: must be above 0", config.attention_factor);
  config.mscale = positions.optional("mscale", 0.0);
  config.mscale_all_dim = positions.optional("mscale_all_dim", 0.0);
  return config;
}

/// Returns the keys of the scaling, without its type.
Json scaling_json(const PositionsConfig& config) {
  using enum RopeScalingKind;
  Json json = Json::object();
  if (config.scaling == none) return json;
  json["factor"] = config.factor;
  if (config.scaling == linear) return json;
  json[original_key] = config.original_length;
  if (config.scaling == llama3) {
    json["low_freq_factor"] = config.low_freq_factor;
    json["high_freq_factor"] = config.high_freq_factor;
    return json;
  }
  json["beta_fast"] = config.beta_fast;
  json["beta_slow"] = config.beta_slow;
  if (!config.truncate) json["truncate"] = false;
  for (const auto& [key, value] :
       {std::pair{"attention_factor", config.attention_factor}, std::pair{"mscale", config.mscale},
        std::pair{"mscale_all_dim", config.mscale_all_dim}}) {
    if (value > 0) json[key] = value;
  }
  return json;
}

}  // namespace

Field rotary_positions(const RotaryClass& of_class) {
  const auto read = [=](const Json& json, Config& config) {
    const Positions positions(json, of_class);
    const RopeScalingKind kind = positions.type().kind;
    config.model.rope_base = number_of<double>(positions.here_or_beside(base_key, of_class.base), base_key);
    const auto fraction = number_of<double>(positions.here_or_beside(fraction_key, of_class.fraction), fraction_key);
    require_input(of_class.partial || fraction == 1, "{} = {}: this class rotates whole heads", fraction_key, fraction);
    config.model.positions = read_scaling(positions, kind, config.batch.seq_len);
    config.model.positions.rotary_fraction = fraction;
  };
  const auto write = [=](const Config& config, Json& json) {
    const PositionsConfig& own = config.model.positions;
    const char* const type = type_of(scaling_types(), own.scaling).name;
    const Json scaling = scaling_json(own);
    Json positions{{"rope_type", type}, {base_key, config.model.rope_base}};
    positions.update(scaling);
    if (of_class.partial) json[fraction_key] = positions[fraction_key] = own.rotary_fraction;
    json[base_key] = config.model.rope_base;
    json[newer] = positions;
    if (own.scaling == RopeScalingKind::none) return;
    // Versions of transformers before 4.43 know only `type`, and classes whose code comes with a model accept no key
    // beside `factor`.
    json[older] = {{own.scaling == RopeScalingKind::linear ? "type" : "rope_type", type}};
    json[older].update(scaling);
  };
  return {.keys = {base_key, fraction_key, older, newer, original_key}, .read = read, .write = write};
}

Field rotary_width() {
  static constexpr const char* key = "rotary_dim";
  const auto read = [](const Json& json, Config& config) {
    const Json& given = value_of(json, key);
    if (given.is_null()) return;
    const auto fraction =
        number_of<double>(given, key) / static_cast<double>(std::max<std::int64_t>(config.model.head_dim, 1));
    const auto has = [](const Json& part) { return part.is_object() && part.contains(fraction_key); };
    const bool both = has(json) || has(value_of(json, newer)) || has(value_of(json, older));
    double& own = config.model.positions.rotary_fraction;
    require_input(!both || own == fraction, "{} = {} of head_dim = {}, but {} = {}", key, excerpt(json_text(given)),
                  config.model.head_dim, fraction_key, own);
    own = fraction;
  };
  const auto write = [](const Config& config, Json& json) {
    const double width = config.model.positions.rotary_fraction * static_cast<double>(config.model.head_dim);
    if (width == std::floor(width)) json[key] = static_cast<std::int64_t>(width);
  };
  return {.keys = {key}, .read = read, .write = write};
}

}  // namespace lyceum::hugging_face
