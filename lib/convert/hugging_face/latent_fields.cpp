#include "convert/hugging_face/latent_fields.h"

#include <cstdint>
#include <string>
#include <utility>

#include "io/text/json.h"

namespace lyceum::hugging_face {

namespace {

/// A width of latent attention. `absent`: the class's value without the key. `null`: what null means, if it is allowed;
/// then 0 is written as null.
Field latent_width(std::string_view key, std::int64_t LatentAttentionConfig::*member, std::int64_t absent,
                   bool null_is_zero = false) {
  const auto read = [=](const Json& json, Config& config) {
    const Json& value = value_of(json, key);
    const bool zero = null_is_zero && json.contains(std::string(key)) && value.is_null();
    config.model.latent.*member = zero ? 0 : number_of<std::int64_t>(value_or(json, key, absent), key);
  };
  const auto write = [=](const Config& config, Json& json) {
    const std::int64_t width = config.model.latent.*member;
    json[std::string(key)] = width == 0 && null_is_zero ? Json() : Json(width);
  };
  return {.keys = {key}, .read = read, .write = write};
}

/// Numbers that follow from others: widths, and the number of heads of keys.
Field derived_numbers() {
  const auto read = [](const Json& json, Config& config) {
    const LatentAttentionConfig& latent = config.model.latent;
    for (const auto& [key, implied] :
         {std::pair{"qk_head_dim", latent.head_dim()}, std::pair{"head_dim", latent.rope_dim},
          std::pair{"num_key_value_heads", config.model.heads}}) {
      const Json& value = value_of(json, key);
      require_input(value.is_null() || value == implied, "{} = {}: must be {} in this class", key,
                    excerpt(json_text(value)), implied);
    }
  };
  const auto write = [](const Config& config, Json& json) {
    const LatentAttentionConfig& latent = config.model.latent;
    json["qk_head_dim"] = latent.head_dim();
    json["head_dim"] = latent.rope_dim;
  };
  return {.keys = {"qk_head_dim", "head_dim"}, .read = read, .write = write};
}

}  // namespace

std::vector<Field> latent_attention() {
  return {always(&Config::model, &ModelConfig::attention, AttentionKind::latent),
          latent_width("q_lora_rank", &LatentAttentionConfig::query_rank, 1536, true),
          latent_width("kv_lora_rank", &LatentAttentionConfig::key_value_rank, 512),
          latent_width("qk_nope_head_dim", &LatentAttentionConfig::nope_dim, 128),
          latent_width("qk_rope_head_dim", &LatentAttentionConfig::rope_dim, 64),
          latent_width("v_head_dim", &LatentAttentionConfig::value_dim, 128),
          derived_numbers(),
          only("attention_bias", false, false),
          only("moe_layer_freq", 1, 1)};
}

Field interleaved_positions(std::string_view key) {
  const auto read = [=](const Json& json, Config& config) {
    const bool half = !key.empty() && !number_of<bool>(value_or(json, key, true), key);
    config.model.positions.layout = half ? RopeLayout::half : RopeLayout::interleaved;
  };
  const auto write = [=](const Config& config, Json& json) {
    if (!key.empty()) json[std::string(key)] = config.model.positions.layout == RopeLayout::interleaved;
  };
  return {.keys = key.empty() ? std::vector<std::string_view>{} : std::vector{key}, .read = read, .write = write};
}

}  // namespace lyceum::hugging_face
