#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace lyceum {

/// What other frameworks call a key, and the key.
std::span<const std::pair<std::string_view, std::string_view>> names_of_other_frameworks();

/// Our key for what other frameworks (Megatron-LM, Hugging Face transformers, DeepSpeed, nanoGPT) call otherwise, empty
/// where `name` is none of their names. A section before the last dot does not count, `-` is `_`:
/// "optim.learning_rate", "num-layers". Only for messages: such a key is reported, not accepted.
std::string_view key_of_other_name(std::string_view name);

}  // namespace lyceum
