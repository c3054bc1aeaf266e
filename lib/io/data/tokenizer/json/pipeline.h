#pragma once

#include <nlohmann/json_fwd.hpp>

#include "io/data/tokenizer/json/regex_shape.h"

namespace lyceum {

/// Rejects combinations of a normalizer and a pre-tokenizer whose result in `tokenizers` depends on where in the
/// original text the normalised text comes from, which Lyceum does not track. Throws a bad_input Error that names them.
void require_known_positions(const nlohmann::json& normalizer, const nlohmann::json& pre_tokenizer);

/// Returns the places that a match of a pattern of the normalizer or of the pre-tokenizer may extend over. After a
/// Split that makes every newline a separate word, as DeepSeek's first one, no match extends over a newline.
CutPlaces spans_of_patterns(const nlohmann::json& normalizer, const nlohmann::json& pre_tokenizer,
                            const SpaceForms& forms);

}  // namespace lyceum
