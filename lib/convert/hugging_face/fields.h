#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "convert/hugging_face/architecture.h"
#include "core/error.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

/// The kinds of fields from which architectures are composed. `absent` is the value of the model's class for a key that
/// config.json does not have. A null value is different: it is an error, unless the class gives it a meaning. Some
/// fields use members of the Config that other fields must have set before; their comments name these.
namespace lyceum::hugging_face {

/// Returns the value of a key; JSON null if config.json does not have it.
const Json& value_of(const Json& json, std::string_view key);
/// Returns the value of a key; `absent` if config.json does not have it. Throws a bad_input Error if it is null.
Json value_or(const Json& json, std::string_view key, const Json& absent);

/// Returns the value of `key` as a T, with exact_value(). Throws a bad_input Error that names the key.
template <class T>
T number_of(const Json& value, std::string_view key) {
  try {
    return exact_value<T>(value);
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "{}: {}", key, excerpt(problem.what(), 100));
  }
}

/// A key with the same meaning as one of Lyceum's. It is required unless `absent` is given. It may be null only if
/// `null` is given, the value that null means.
template <class Section, class T>
Field same(std::string_view key, Section Config::*section, T Section::*member,
           std::optional<std::type_identity_t<T>> absent = {}, std::optional<std::type_identity_t<T>> null = {}) {
  return {.keys = {key},
          .read =
              [=](const Json& json, Config& config) {
                const Json& value = value_of(json, key);
                const bool there = json.contains(std::string(key));
                require_input(there || absent, "{} is missing", key);
                require_input(!there || !value.is_null() || null, "{} is null", key);
                T& target = config.*section.*member;
                if (!there) {
                  target = *absent;
                } else if (value.is_null()) {
                  target = *null;
                } else {
                  target = number_of<T>(value, key);
                }
              },
          .write = [=](const Config& config, Json& json) { json[std::string(key)] = config.*section.*member; }};
}

/// A property that all models of the class have, without a key.
template <class Section, class T>
Field always(Section Config::*section, T Section::*member, std::type_identity_t<T> value) {
  return {.keys = {},
          .read = [=](const Json&, Config& config) { config.*section.*member = value; },
          .write = [](const Config&, Json&) {}};
}

/// A key of which Lyceum supports only the value `value`.
Field only(std::string_view key, Json value, Json absent);
/// A key that models usually omit, and of which Lyceum supports only `value`. It is read like only(), but never
/// written.
Field required(std::string_view key, const Json& value);

/// A key that models have although their class does not read it. It is ignored and not written.
Field unread(std::string_view key);

/// quantization_config, which must have quant_method = mxfp4 if it is there: weights are converted when they are read,
/// see stacked_experts.h. It is not written.
Field mxfp4();

/// The kinds of attention of all layers in minimax_m2, which must be 1: softmax.
Field attention_kinds();

/// How a class determines which layers have a sliding window.
struct Windows {
  bool optional = true;  // the class has use_sliding_window; if that is false or missing, no layer has a window
  bool listed = true;    // layer_types, if present, determines the layers; else the class has no such key
  std::optional<std::int64_t> absent = 4096;  // default of sliding_window; nothing: no window
  std::optional<std::int64_t> first_absent =
      {};                    // default of max_window_layers, the first layer with a window; nothing: it is ignored
  bool alternating = false;  // instead, layers 0, 2, 4 … have one; with first_absent, those below max_window_layers
};
/// sliding_window and the keys that determine its layers: model.window and model.window_layers. A window of more than
/// max_position_embeddings is none. Uses model.layers and batch.seq_len.
Field window(const Windows& windows);

/// Requires that model.heads divides model.hidden, which it uses.
Field heads_divide();

/// Properties of norm_topk_prob: the value without the key, and whether it applies only if a token has several experts.
struct GateSum {
  bool absent = false, of_several = false;
};
/// norm_topk_prob: gates are divided by their sum. Uses moe.top_k.
Field gates(const GateSum& sum = {});

/// mlp_only_layers, the list of layers without experts, which must be the first layers: model.first_dense_layers. Also
/// requires that decoder_sparse_step, if present, is 1.
Field dense_layers_listed();

/// shared_expert_intermediate_size, a required key: the width of all shared experts together. Sets moe.shared_experts
/// to this width divided by moe.expert_hidden, of which it must be a multiple. Uses moe.expert_hidden.
Field shared_width();

/// n_shared_experts, which must be at least 1.
Field required_shared_experts(std::int64_t absent);

/// use_qk_norm: queries and keys of each head are normalised.
Field optional_qk_norm();

/// n_group and topk_group: experts are divided into groups of two or more, and a token chooses from the experts of
/// topk_group groups, those with the largest sums of their two best scores. Uses moe.experts. The parameters are the
/// class's values without the keys.
Field expert_groups(std::int64_t groups = 1, std::int64_t chosen = 1);
/// topk_method, n_group and topk_group of DeepSeek-V2. `greedy`: the groups have no effect. `group_limited_greedy`: a
/// token chooses from the experts of the topk_group groups with the best scores. Uses moe.experts.
Field greedy_groups();

}  // namespace lyceum::hugging_face
