#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace lyceum {

/// Returns the id of a token; nothing if it is not in the vocabulary.
using TokenIds = std::function<std::optional<std::int32_t>(std::string_view token)>;

/// Returns the token that the `post_processor` of a tokenizer.json adds at the beginning of a text; nothing if it adds
/// none. Throws as end_of_text() does.
std::optional<std::int32_t> begin_of_text(const nlohmann::json& post_processor, const TokenIds& id_of);
/// Returns the end-of-text token: the one that the `post_processor` of a tokenizer.json adds at the end of a text, or
/// else the first of the usual names that has an id. Throws a bad_input Error if there is no such token or a component
/// is not supported, and the JSON library's exceptions if members are missing or of another type.
std::int32_t end_of_text(const nlohmann::json& post_processor, const TokenIds& id_of);

}  // namespace lyceum
