#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/data/tokenizer/json/regex.h"

namespace lyceum {

/// Changes a text, valid UTF-8 before and after, in steps of a budget, and moves `places`, ascending offsets into the
/// text, to the same places of the result.
using Normalizer =
    std::function<std::string(const std::string& text, RegexBudget& budget, std::span<std::size_t> places)>;

/// The `normalizer` of a tokenizer.json, in the order in which they are applied; none for null. Throws a bad_input
/// Error that names a component that is not supported, exceptions of the library for one that is not as it should be.
std::vector<Normalizer> read_normalizers(const nlohmann::json& json);

}  // namespace lyceum
