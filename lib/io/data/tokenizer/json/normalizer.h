#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

namespace lyceum {

/// Changes a text, valid UTF-8 before and after.
using Normalizer = std::function<std::string(std::string)>;

/// The `normalizer` of a tokenizer.json, in the order in which they are applied; none for null. Throws a bad_input
/// Error that names a component that is not supported, exceptions of the library for one that is not as it should be.
std::vector<Normalizer> read_normalizers(const nlohmann::json& json);

}  // namespace lyceum
