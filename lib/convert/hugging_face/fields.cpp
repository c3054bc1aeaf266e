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

Field no_window(const Windows& windows) {
  static constexpr const char *use = "use_sliding_window", *window = "sliding_window", *types = "layer_types",
                              *first = "max_window_layers";
  const auto read = [=](const Json& json, Config& config) {
    const Json& listed = value_of(json, types);
    for (const Json& type : listed) {
      require_input(type == "full_attention", "{} has {}: Lyceum supports only full_attention", types,
                    excerpt(json_text(type)));
    }
    require_input(listed.is_null() || (listed.is_array() && std::ssize(listed) == config.model.layers),
                  "{} does not have num_hidden_layers = {} entries", types, config.model.layers);
    if (windows.optional && !number_of<bool>(value_or(json, use, false), use)) return;
    const Json absent = windows.absent ? Json(*windows.absent) : Json();
    const Json& reach = json.contains(window) ? value_of(json, window) : absent;
    require_input(!windows.optional || !reach.is_null(), "{} is null, but {} = true", window, use);
    if (reach.is_null() || (windows.listed && !listed.is_null())) return;
    if (windows.first_absent) {
      const auto from = number_of<std::int64_t>(value_or(json, first, *windows.first_absent), first);
      if (windows.alternating ? from <= 0 : from >= config.model.layers) return;
    }
    const auto tokens = number_of<std::int64_t>(reach, window);
    require_input(tokens >= config.batch.seq_len,
                  "{} = {} is less than max_position_embeddings = {}: Lyceum does not support sliding windows", window,
                  tokens, config.batch.seq_len);
  };
  const auto write = [=](const Config&, Json& json) {
    if (windows.optional) json[use] = false;
    json[window] = nullptr;
  };
  std::vector<std::string_view> keys{window, types};
  if (windows.optional) keys.emplace_back(use);
  if (windows.first_absent) keys.emplace_back(first);
  return {.keys = keys, .read = read, .write = write};
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

Field expert_groups() {
  static constexpr const char *groups = "n_group", *chosen = "topk_group";
  const auto read = [](const Json& json, Config& config) {
    const auto count = [&](const char* key) { return number_of<std::int64_t>(value_or(json, key, 1), key); };
    const std::int64_t all = count(groups), some = count(chosen), experts = config.moe.experts;
    // The score of a group is the sum of its two best experts, so it must have two.
    require_input(all >= 1 && experts % all == 0 && (all == 1 || experts / all >= 2),
                  "{} = {} does not divide {} experts into groups of two or more", groups, all, experts);
    require_input(some >= 1 && some <= all, "{} = {} is not between 1 and {} = {}", chosen, some, groups, all);
    if (all == 1) return;
    config.balance.device_groups = all;
    config.moe.group_limit = some;
  };
  const auto write = [](const Config& config, Json& json) {
    const bool limited = config.moe.group_limit > 0;
    json[groups] = limited ? config.balance.device_groups : 1;
    json[chosen] = limited ? config.moe.group_limit : 1;
  };
  return {.keys = {groups, chosen}, .read = read, .write = write};
}

}  // namespace lyceum::hugging_face
