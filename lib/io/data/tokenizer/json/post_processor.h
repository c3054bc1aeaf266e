#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace lyceum {

/// Returns the end-of-text token: the one that the `post_processor` of a tokenizer.json adds at the end of a text, or
/// else the first of the usual names that has an id. `id_of` returns the id of a token, or nothing. Throws a bad_input
/// Error if there is no such token or a component is not supported, and the JSON library's exceptions if members are
/// missing or of another type.
std::int32_t end_of_text(const nlohmann::json& post_processor,
                         const std::function<std::optional<std::int32_t>(std::string_view token)>& id_of);

}  // namespace lyceum
