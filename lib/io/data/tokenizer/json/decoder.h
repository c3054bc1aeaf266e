#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

namespace lyceum {

/// One step of decoding: transforms the list of the tokens' texts. After the last step, the texts are concatenated.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

/// Reads the `decoder` of a tokenizer.json: returns its steps in the order of application; none for null. Throws a
/// bad_input Error that names a component that is not supported, and the JSON library's exceptions if members are
/// missing or of another type.
std::vector<Decoder> read_decoders(const nlohmann::json& json);

}  // namespace lyceum
