#include "convert/hugging_face/fields.h"

#include <algorithm>

#include "io/text/json.h"

namespace lyceum::hugging_face {

const Json& value_of(const Json& json, std::string_view key) {
  static const Json null;
  const auto found = json.find(std::string(key));
  return found == json.end() ? null : *found;
}

Json value_or(const Json& json, std::string_view key, const Json& absent) {
  const auto found = json.find(std::string(key));
  if (found == json.end()) return absent;
  require_input(!found->is_null(), "{} is null", key);
  return *found;
}

Field only(std::string_view key, Json value, Json absent) {
  return {.keys = {key},
          .read =
              [=](const Json& json, Config&) {
                const Json found = json.contains(std::string(key)) ? value_of(json, key) : absent;
                require_input(found == value, "{} = {}: Lyceum supports only {}", key, excerpt(json_text(found)),
                              json_text(value));
              },
          .write = [=](const Config&, Json& json) { json[std::string(key)] = value; }};
}

Field required(std::string_view key, const Json& value) {
  Field field = only(key, value, value);
  field.write = [](const Config&, Json&) {};
  return field;
}

Field unread(std::string_view key) {
  return {.keys = {key}, .read = [](const Json&, Config&) {}, .write = [](const Config&, Json&) {}};
}

Field attention_kinds() {
  static constexpr const char* key = "attn_type_list";
  const auto read = [](const Json& json, Config&) {
    const Json& given = value_of(json, key);
    require_input(
        given.is_null() || (given.is_array() && std::ranges::all_of(given, [](const Json& each) { return each == 1; })),
        "{} = {}: Lyceum supports only 1 for every layer", key, excerpt(json_text(given), 80));
  };
  return {.keys = {key}, .read = read, .write = [](const Config&, Json&) {}};
}

Field mxfp4() {
  static constexpr const char *key = "quantization_config", *method = "quant_method";
  const auto read = [](const Json& json, Config&) {
    const Json& value = value_of(json, key);
    require_input(value.is_null() || (value.is_object() && value_of(value, method) == "mxfp4"),
                  "{} = {}: Lyceum supports only {} = mxfp4", key, excerpt(json_text(value), 80), method);
  };
  return {.keys = {key}, .read = read, .write = [](const Config&, Json&) {}};
}

namespace {

constexpr const char *use_window = "use_sliding_window", *window_tokens = "sliding_window",
                     *layer_types = "layer_types", *first_window_layer = "max_window_layers";
constexpr const char *with_window = "sliding_attention", *without_window = "full_attention";

/// Returns 1 for each layer with a window and 0 for each other layer, as layer_types lists them; empty if config.json
/// does not have the key.
std::vector<std::int64_t> listed_window_layers(const Json& json, const Windows& windows, std::int64_t layers) {
  const Json& listed = value_of(json, layer_types);
  if (listed.is_null()) return {};
  require_input(listed.is_array() && std::ssize(listed) == layers, "{} does not have num_hidden_layers = {} entries",
                layer_types, layers);
  std::vector<std::int64_t> all;
  for (const Json& type : listed) {
    require_input(type == without_window || (type == with_window && windows.listed), "{} has {}: Lyceum supports {}{}",
                  layer_types, excerpt(json_text(type)), without_window,
                  windows.listed ? " and sliding_attention" : " only, since the class has no such key");
    all.push_back(type == with_window ? 1 : 0);
  }
  return all;
}

/// Returns the layers with a window, as above, for a class that is `windows`, without layer_types.
std::vector<std::int64_t> default_window_layers(const Json& json, const Windows& windows, std::int64_t layers) {
  require_input(layers >= 1 && layers <= most_layers, "num_hidden_layers = {}: must be in [1, {}]", layers,
                most_layers);
  std::vector<std::int64_t> all(static_cast<std::size_t>(layers), 1);
  if (!windows.first_absent && !windows.alternating) return all;
  const auto first =
      windows.first_absent
          ? number_of<std::int64_t>(value_or(json, first_window_layer, *windows.first_absent), first_window_layer)
          : layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool has = windows.alternating ? layer < first && layer % 2 == 0 : layer >= first;
    all[static_cast<std::size_t>(layer)] = has ? 1 : 0;
  }
  return all;
}

bool any_window(const std::vector<std::int64_t>& layers) { return std::ranges::find(layers, 1) != layers.end(); }

void read_window(const Windows& windows, const Json& json, Config& config) {
  ModelConfig& model = config.model;
  std::vector<std::int64_t> layers = listed_window_layers(json, windows, model.layers);
  const bool used = !windows.optional || number_of<bool>(value_or(json, use_window, false), use_window);
  const Json absent = windows.absent ? Json(*windows.absent) : Json();
  const Json& reach = json.contains(window_tokens) ? value_of(json, window_tokens) : absent;
  require_input(!used || !windows.optional || !reach.is_null(), "{} is null, but {} = true", window_tokens, use_window);
  if (!used || reach.is_null()) {
    require_input(!any_window(layers), "{} has {}, but {}", layer_types, with_window,
                  used ? "sliding_window is null" : "use_sliding_window is not true");
    return;
  }
  if (layers.empty() || !windows.listed) layers = default_window_layers(json, windows, model.layers);
  if (!any_window(layers)) return;
  const auto tokens = number_of<std::int64_t>(reach, window_tokens);
  require_input(tokens > 0, "{} = {}: must be above 0", window_tokens, tokens);
  if (tokens > config.batch.seq_len) return;
  model.window = tokens;
  model.window_layers = shortest_window_layers(layers);
}

void write_window(const Windows& windows, const ModelConfig& model, Json& json) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) layers.push_back(window_of(model, layer) > 0 ? 1 : 0);
  // A class without layer_types has a window in all layers or in none.
  const bool has = any_window(layers) && (windows.listed || std::ranges::find(layers, 0) == layers.end());
  if (windows.optional) json[use_window] = has;
  // A class whose layers alternate needs both keys even if no layer has a window.
  const bool alternates = windows.alternating && !windows.first_absent;
  const Json without = alternates ? Json(*windows.absent) : Json();
  json[window_tokens] = has ? Json(model.window) : without;
  if (!(has || alternates) || !windows.listed) return;
  for (const std::int64_t layer : layers) json[layer_types].push_back(layer != 0 ? with_window : without_window);
  // For programs that do not read layer_types
  if (windows.first_absent && !windows.alternating && std::ranges::is_sorted(layers)) {
    json[first_window_layer] = std::ranges::find(layers, 1) - layers.begin();
  }
}

}  // namespace

Field window(const Windows& windows) {
  std::vector<std::string_view> keys{window_tokens, layer_types};
  if (windows.optional) keys.emplace_back(use_window);
  // The published models of every class with use_sliding_window have this key, also where the class ignores it.
  if (windows.first_absent || windows.optional) keys.emplace_back(first_window_layer);
  return {.keys = keys,
          .read = [=](const Json& json, Config& config) { read_window(windows, json, config); },
          .write = [=](const Config& config, Json& json) { write_window(windows, config.model, json); }};
}

Field heads_divide() {
  const auto read = [](const Json&, Config& config) {
    const ModelConfig& model = config.model;
    require_input(model.heads > 0 && model.hidden % model.heads == 0,
                  "num_attention_heads = {} does not divide hidden_size = {}, as this class of models requires",
                  model.heads, model.hidden);
  };
  return {.keys = {}, .read = read, .write = [](const Config&, Json&) {}};
}

Field gates(const GateSum& gate_sum) {
  static constexpr const char* key = "norm_topk_prob";
  const auto read = [=](const Json& json, Config& config) {
    const bool sum = number_of<bool>(value_or(json, key, gate_sum.absent), key);
    config.moe.gates = sum && (config.moe.top_k > 1 || !gate_sum.of_several) ? Gates::renormalized : Gates::raw;
  };
  const auto write = [](const Config& config, Json& json) { json[key] = gates_of(config.moe) == Gates::renormalized; };
  return {.keys = {key}, .read = read, .write = write};
}

Field dense_layers_listed() {
  static constexpr const char *list = "mlp_only_layers", *step = "decoder_sparse_step";
  const auto read = [](const Json& json, Config& config) {
    const Json every = value_or(json, step, 1);
    require_input(every == 1, "{} = {}: in Lyceum all layers after the first dense ones have experts", step,
                  excerpt(json_text(every)));
    std::int64_t layers = 0;
    for (const Json& layer : value_of(json, list)) {
      require_input(layer == layers++, "{} = {}: in Lyceum only the first layers can be without experts", list,
                    excerpt(json_text(value_of(json, list))));
    }
    config.model.first_dense_layers = layers;
  };
  const auto write = [](const Config& config, Json& json) {
    json[list] = Json::array();
    for (std::int64_t layer = 0; layer < config.model.first_dense_layers; ++layer) json[list].push_back(layer);
    json[step] = 1;
  };
  return {.keys = {list, step}, .read = read, .write = write};
}

Field shared_width() {
  static constexpr const char* key = "shared_expert_intermediate_size";
  const auto read = [](const Json& json, Config& config) {
    const Json& value = value_of(json, key);
    require_input(!value.is_null(), "{} is missing", key);
    const auto width = number_of<std::int64_t>(value, key);
    const std::int64_t expert = config.moe.expert_hidden;
    require_input(width > 0 && expert > 0 && width % expert == 0,
                  "{} = {} is not a multiple of moe_intermediate_size = {}, the width of Lyceum's shared experts", key,
                  width, expert);
    config.moe.shared_experts = width / expert;
  };
  const auto write = [](const Config& config, Json& json) {
    json[key] = std::max<std::int64_t>(config.moe.shared_experts, 1) * config.moe.expert_hidden;
  };
  return {.keys = {key}, .read = read, .write = write};
}

Field required_shared_experts(std::int64_t absent) {
  static constexpr const char* key = "n_shared_experts";
  const auto read = [=](const Json& json, Config& config) {
    config.moe.shared_experts = number_of<std::int64_t>(value_or(json, key, absent), key);
    require_input(config.moe.shared_experts > 0, "{} = {}: must be above 0", key, config.moe.shared_experts);
  };
  const auto write = [](const Config& config, Json& json) {
    json[key] = std::max<std::int64_t>(config.moe.shared_experts, 1);
  };
  return {.keys = {key}, .read = read, .write = write};
}

Field optional_qk_norm() {
  static constexpr const char* key = "use_qk_norm";
  const auto read = [](const Json& json, Config& config) {
    const bool normed = number_of<bool>(value_or(json, key, false), key);
    config.model.qk_norm = normed ? QkNormKind::head : QkNormKind::none;
  };
  const auto write = [](const Config& config, Json& json) { json[key] = config.model.qk_norm == QkNormKind::head; };
  return {.keys = {key}, .read = read, .write = write};
}

namespace {

constexpr const char *all_groups = "n_group", *chosen_groups = "topk_group", *choice_method = "topk_method";

/// Sets the groups of experts. `least`: the smallest number of experts of a group.
void set_groups(Config& config, std::int64_t all, std::int64_t some, std::int64_t least, GroupScore score) {
  const std::int64_t experts = config.moe.experts;
  require_input(all >= 1 && experts % all == 0 && (all == 1 || experts / all >= least),
                "{} = {} does not divide {} experts into groups of {} or more", all_groups, all, experts, least);
  require_input(some >= 1 && some <= all, "{} = {} is not between 1 and {} = {}", chosen_groups, some, all_groups, all);
  if (all == 1) return;
  config.balance.device_groups = all;
  config.moe.group_limit = some;
  config.moe.group_score = score;
}

void write_groups(const Config& config, Json& json) {
  const bool limited = config.moe.group_limit > 0;
  json[all_groups] = limited ? config.balance.device_groups : 1;
  json[chosen_groups] = limited ? config.moe.group_limit : 1;
}

}  // namespace

Field expert_groups(std::int64_t groups, std::int64_t chosen) {
  const auto read = [=](const Json& json, Config& config) {
    const auto count = [&](const char* key, std::int64_t absent) {
      return number_of<std::int64_t>(value_or(json, key, absent), key);
    };
    // The score of a group is the sum of its two best experts, so it must have two.
    set_groups(config, count(all_groups, groups), count(chosen_groups, chosen), 2, GroupScore::top2);
  };
  return {.keys = {all_groups, chosen_groups}, .read = read, .write = write_groups};
}

Field greedy_groups() {
  static constexpr const char *plain = "greedy", *limited = "group_limited_greedy";
  const auto read = [](const Json& json, Config& config) {
    const Json method = value_or(json, choice_method, plain);
    require_input(method == plain || method == limited, "{} = {}: Lyceum supports {} and {}", choice_method,
                  excerpt(json_text(method)), plain, limited);
    if (method == plain) return;
    const auto count = [&](const char* key) {
      const Json& value = value_of(json, key);
      require_input(!value.is_null(), "{} is missing, but {} = {}", key, choice_method, limited);
      return number_of<std::int64_t>(value, key);
    };
    set_groups(config, count(all_groups), count(chosen_groups), 1, GroupScore::maximum);
  };
  const auto write = [](const Config& config, Json& json) {
    json[choice_method] = config.moe.group_limit > 0 ? limited : plain;
    write_groups(config, json);
  };
  return {.keys = {choice_method, all_groups, chosen_groups}, .read = read, .write = write};
}

}  // namespace lyceum::hugging_face
