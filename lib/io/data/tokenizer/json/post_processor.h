#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "io/data/tokenizer/added_around.h"

namespace lyceum {

/// Returns the id of a token; nothing if it is not in the vocabulary.
using TokenIds = std::function<std::optional<std::int32_t>(std::string_view token)>;

/// Returns the tokens that the `post_processor` of a tokenizer.json adds. Throws a bad_input Error if a component is
/// not supported, and the JSON library's exceptions if members are missing or of another type.
AddedAround added_around(const nlohmann::json& post_processor, const TokenIds& id_of);
/// Returns the end-of-text token: the last one that the post-processor adds after a text, or else the first of the
/// usual names that has an id. Throws a bad_input Error if there is no such token.
std::int32_t end_of_text(const AddedAround& added, const TokenIds& id_of);

}  // namespace lyceum
