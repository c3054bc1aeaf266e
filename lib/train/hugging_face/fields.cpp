#include "train/hugging_face/fields.h"

#include <algorithm>

#include "io/text/json.h"

namespace lyceum::hugging_face {

namespace {

/// Positions may be in a separate object.
const Json& of_positions(const Json& json, const Json& positions, std::string_view key) {
  const Json& own = positions.is_object() ? value_of(positions, key) : positions;
  return own.is_null() ? value_of(json, key) : own;
}

}  // namespace

const Json& value_of(const Json& json, std::string_view key) {
  static const Json null;
  const auto found = json.find(std::string(key));
  return found == json.end() ? null : *found;
}

Field only(std::string_view key, Json value, Json absent) {
  return {.keys = {key},
          .read =
              [=](const Json& json, Config&) {
                const Json& given = value_of(json, key);
                const Json& found = given.is_null() ? absent : given;
                require_input(found == value, "{} = {}: Lyceum supports only {}", key, excerpt(json_text(found)),
                              json_text(value));
              },
          .write = [=](const Config&, Json& json) { json[std::string(key)] = value; }};
}

Field rope(double absent, double share_absent) {
  static constexpr const char *base = "rope_theta", *share = "partial_rotary_factor", *older = "rope_scaling",
                              *newer = "rope_parameters";
  const auto read = [=](const Json& json, Config& config) {
    const bool is_new = !value_of(json, newer).is_null();
    const Json& positions = value_of(json, is_new ? newer : older);
    const char* const name = is_new ? newer : older;
    require_input(positions.is_null() || positions.is_object(), "{} = {} is not an object", name,
                  excerpt(json_text(positions)));
    for (const auto& [key, value] : positions.items()) {
      const bool plain = (key == "rope_type" || key == "type") && value == "default";
      require_input(plain || key == base || key == share || value.is_null(),
                    "{} has {} = {}: Lyceum does not support scaled rotary positions", name, excerpt(key),
                    excerpt(json_text(value)));
    }
    const Json &given = of_positions(json, positions, base), &turned = of_positions(json, positions, share);
    config.model.rope_base = given.is_null() ? absent : number_of<double>(given, base);
    require_input((turned.is_null() ? share_absent : number_of<double>(turned, share)) == 1,
                  "{} is not 1: Lyceum's rotary positions rotate whole heads", share);
  };
  const auto write = [=](const Config& config, Json& json) {
    Json positions{{"rope_type", "default"}, {base, config.model.rope_base}};
    if (share_absent != 1) json[share] = positions[share] = 1.0;
    json[base] = config.model.rope_base;
    json[newer] = positions;
  };
  return {.keys = {base, share, older, newer}, .read = read, .write = write};
}

Field no_window(std::optional<bool> used_absent) {
  static constexpr const char *use = "use_sliding_window", *window = "sliding_window", *types = "layer_types";
  const auto read = [=](const Json& json, Config& config) {
    for (const Json& type : value_of(json, types)) {
      require_input(type == "full_attention", "{} has {}: Lyceum supports only full_attention", types,
                    excerpt(json_text(type)));
    }
    const Json &says = value_of(json, use), &reach = value_of(json, window);
    const bool used = says.is_null() ? used_absent.value_or(true) : number_of<bool>(says, use);
    if (!used || reach.is_null()) return;
    const auto tokens = number_of<std::int64_t>(reach, window);
    require_input(tokens >= config.batch.seq_len,
                  "{} = {} is less than max_position_embeddings = {}: Lyceum does not support sliding windows", window,
                  tokens, config.batch.seq_len);
  };
  const auto write = [=](const Config&, Json& json) {
    if (used_absent) json[use] = false;
    json[window] = nullptr;
  };
  return {.keys = {use, window, types, "max_window_layers"}, .read = read, .write = write};
}

Field heads_divide() {
  const auto read = [](const Json&, Config& config) {
    const ModelConfig& model = config.model;
    require_input(model.heads > 0 && model.hidden % model.heads == 0,
                  "num_attention_heads = {} does not divide hidden_size = {}, as the class requires", model.heads,
                  model.hidden);
  };
  return {.keys = {}, .read = read, .write = [](const Config&, Json&) {}};
}

Field gates(const GateSum& gate_sum) {
  static constexpr const char* key = "norm_topk_prob";
  const auto read = [=](const Json& json, Config& config) {
    const Json& value = value_of(json, key);
    const bool sum = value.is_null() ? gate_sum.absent : number_of<bool>(value, key);
    config.moe.gates = sum && (config.moe.top_k > 1 || !gate_sum.of_several) ? Gates::renormalized : Gates::raw;
  };
  const auto write = [](const Config& config, Json& json) { json[key] = gates_of(config.moe) == Gates::renormalized; };
  return {.keys = {key}, .read = read, .write = write};
}

Field dense_layers_listed() {
  static constexpr const char *list = "mlp_only_layers", *step = "decoder_sparse_step";
  const auto read = [](const Json& json, Config& config) {
    require_input(value_of(json, step).is_null() || value_of(json, step) == 1,
                  "{} = {}: in Lyceum all layers after the first dense ones have experts", step,
                  excerpt(json_text(value_of(json, step))));
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

Field shared_always(std::int64_t absent) {
  static constexpr const char* key = "n_shared_experts";
  const auto read = [=](const Json& json, Config& config) {
    const Json& value = value_of(json, key);
    config.moe.shared_experts = value.is_null() ? absent : number_of<std::int64_t>(value, key);
    require_input(config.moe.shared_experts > 0, "{} = {}: must be above 0", key, config.moe.shared_experts);
  };
  const auto write = [](const Config& config, Json& json) {
    json[key] = std::max<std::int64_t>(config.moe.shared_experts, 1);
  };
  return {.keys = {key}, .read = read, .write = write};
}

Field norm_chosen() {
  static constexpr const char* key = "use_qk_norm";
  const auto read = [](const Json& json, Config& config) {
    const Json& value = value_of(json, key);
    const bool normed = !value.is_null() && number_of<bool>(value, key);
    config.model.qk_norm = normed ? QkNormKind::head : QkNormKind::none;
  };
  const auto write = [](const Config& config, Json& json) { json[key] = config.model.qk_norm == QkNormKind::head; };
  return {.keys = {key}, .read = read, .write = write};
}

Field expert_groups() {
  static constexpr const char *groups = "n_group", *chosen = "topk_group";
  const auto read = [](const Json& json, Config& config) {
    const auto count = [&](const char* key) {
      const Json& value = value_of(json, key);
      return value.is_null() ? 1 : number_of<std::int64_t>(value, key);
    };
    if (count(groups) == 1) return;
    config.balance.device_groups = count(groups);
    config.moe.group_limit = count(chosen);
  };
  const auto write = [](const Config& config, Json& json) {
    const bool limited = config.moe.group_limit > 0;
    json[groups] = limited ? config.balance.device_groups : 1;
    json[chosen] = limited ? config.moe.group_limit : 1;
  };
  return {.keys = {groups, chosen}, .read = read, .write = write};
}

}  // namespace lyceum::hugging_face
