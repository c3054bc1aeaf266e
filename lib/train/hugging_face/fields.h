#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"
#include "io/text/json.h"
#include "io/text/utf8.h"
#include "train/hugging_face/architecture.h"

/// What architectures are made of. `absent` is what a class has where config.json does not say: it has no key, or null.
namespace lyceum::hugging_face {

/// Null where config.json does not have the key.
const Json& value_of(const Json& json, std::string_view key);

template <class T>
T number_of(const Json& value, std::string_view key) {
  try {
    return exact_value<T>(value);
  } catch (const std::exception& problem) {
    fail(ExitCode::bad_input, "{}: {}", key, excerpt(problem.what(), 100));
  }
}

/// A key that says what one of Lyceum's says. No `absent`: it must be there.
template <class Section, class T>
Field same(std::string_view key, Section Config::*section, T Section::*member,
           std::optional<std::type_identity_t<T>> absent = {}) {
  return {.keys = {key},
          .read =
              [=](const Json& json, Config& config) {
                const Json& value = value_of(json, key);
                require_input(!value.is_null() || absent, "{} is missing", key);
                config.*section.*member = value.is_null() ? *absent : number_of<T>(value, key);
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

/// A key of whose values Lyceum has models with this one alone.
Field only(std::string_view key, Json value, Json absent);

/// Rotary positions of the half-split kind without scaling, base `absent`, as transformers 4 says them (rope_theta,
/// rope_scaling) and transformers 5 (rope_parameters). `share_absent`: of a head that they turn.
Field rope(double absent, double share_absent = 1);

/// Attention to all tokens before. `used_absent`: of use_sliding_window; none: the class has no such key, and a window
/// is used where there is one.
Field no_window(std::optional<bool> used_absent = {});

/// model.heads divides model.hidden.
Field heads_divide();

/// norm_topk_prob: gates are divided by their sum; `of_several`: but where a token has one expert.
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
