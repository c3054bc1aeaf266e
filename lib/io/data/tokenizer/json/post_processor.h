#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace lyceum {

/// Returns the token that ends a text: the one that the `post_processor` of a tokenizer.json puts there, else the first
/// of the usual names that has an id. `id_of`: the id of a token, if there is one. Throws a bad_input Error for a
/// component that is not supported, or if there is no such token; exceptions of the library for one that is not as it
/// should be.
std::int32_t end_of_text(const nlohmann::json& post_processor,
                         const std::function<std::optional<std::int32_t>(std::string_view token)>& id_of);

}  // namespace lyceum
