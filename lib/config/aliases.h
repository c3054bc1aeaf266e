#pragma once

#include <string>
#include <string_view>

namespace lyceum {

/// Returns the key that other frameworks (Megatron-LM, Hugging Face transformers, DeepSpeed, nanoGPT) call `name`;
/// empty if `name` is none of their names. A section before the last dot is ignored, `-` is `_`: "optim.learning_rate",
/// "num-layers". Only for messages: such a name is reported, not accepted.
std::string key_of_other_name(std::string_view name);

}  // namespace lyceum
