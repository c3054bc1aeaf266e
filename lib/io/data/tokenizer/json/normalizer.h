#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/data/tokenizer/json/regex.h"

namespace lyceum {

/// One step of normalisation: returns the changed text, which is valid UTF-8 as its input is. The steps of regular
/// expressions are taken from `budget`. Replaces each of `offsets`, which are ascending offsets in `text`, by the
/// offset of the same position in the result.
using Normalizer =
    std::function<std::string(const std::string& text, RegexBudget& budget, std::span<std::size_t> offsets)>;

/// Reads the `normalizer` of a tokenizer.json: returns its steps in the order of application; none for null. Throws a
/// bad_input Error that names a component that is not supported, and the JSON library's exceptions if members are
/// missing or of another type.
std::vector<Normalizer> read_normalizers(const nlohmann::json& json);

}  // namespace lyceum
