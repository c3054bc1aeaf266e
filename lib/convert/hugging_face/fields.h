#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "convert/hugging_face/architecture.h"
#include "core/error.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

/// Fields of architectures. `absent` is the value of the model's class for a key that config.json does not have.
/// null is not "absent": it is refused, unless the class gives it a meaning.
namespace lyceum::hugging_face {

/// Null where config.json does not have the key.
const Json& value_of(const Json& json, std::string_view key);
/// The value of a key, or `absent`. Throws a bad_input Error for null.
Json value_or(const Json& json, std::string_view key, const Json& absent);

template <class T>
T number_of(const Json& value, std::string_view key) {
  try {
    return exact_value<T>(value);
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "{}: {}", key, excerpt(problem.what(), 100));
  }
}

/// A key that says what one of Lyceum's says. Without `absent` it is required; without `null` it must not be null.
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
                config.*section.*member = !there ? *absent : value.is_null() ? *null : number_of<T>(value, key);
              },
          .write = [=](const Config& config, Json& json) { json[std::string(key)] = config.*section.*member; }};
}

/// What all models of a class have.
template <class Section, class T>
Field always(Section Config::*section, T Section::*member, std::type_identity_t<T> value) {
  return {.keys = {},
          .read = [=](const Json&, Config& config) { config.*section.*member = value; },
          .write = [](const Config&, Json&) {}};
}

/// A key of which Lyceum supports a single value.
Field only(std::string_view key, Json value, Json absent);
/// A key that models usually omit, and of which Lyceum supports the single value `value`. It is read as only() reads
/// it, and never written.
Field required(std::string_view key, const Json& value);

/// Unscaled rotary positions of the half-split kind with the base `absent`, in the keys of transformers 4 (rope_theta,
/// rope_scaling) or 5 (rope_parameters); rope_scaling takes precedence, as in transformers. `share_absent`: the share
/// of a head that is rotated.
Field rope(double absent, double share_absent = 1);

/// How a class decides which layers have a sliding window.
struct Windows {
  bool optional = true;                           // use_sliding_window: without it no layer has a window
  bool listed = true;                             // layer_types names the layers
  std::optional<std::int64_t> absent = 4096;      // sliding_window; none: no window
  std::optional<std::int64_t> first_absent = {};  // max_window_layers: the first layer with a window
  bool alternating = false;                       // layers 0, 2, 4 … below max_window_layers have a window
};
/// Attention to all previous tokens: no layer has a window that is shorter than max_position_embeddings.
Field no_window(const Windows& windows);

/// model.heads divides model.hidden.
Field heads_divide();

/// norm_topk_prob: gates are divided by their sum; `of_several`: unless a token has one expert.
struct GateSum {
  bool absent = false, of_several = false;
};
Field gates(const GateSum& sum = {});

/// first_dense_layers, as the list of layers without experts.
Field dense_layers_listed();

/// shared_expert_intermediate_size: the width of all shared experts together.
Field shared_width();

/// n_shared_experts, at least one.
Field shared_always(std::int64_t absent);

/// use_qk_norm: of each head.
Field norm_chosen();

/// Groups of experts, and how many of them a token chooses from.
Field expert_groups();

}  // namespace lyceum::hugging_face
