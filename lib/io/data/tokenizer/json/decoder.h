#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

namespace lyceum {

/// Changes the texts of tokens on their way to one text.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

/// The `decoder` of a tokenizer.json, in the order in which they are applied; none for null. Throws a bad_input Error
/// that names a component that is not supported, exceptions of the library for one that is not as it should be.
std::vector<Decoder> read_decoders(const nlohmann::json& json);

}  // namespace lyceum
