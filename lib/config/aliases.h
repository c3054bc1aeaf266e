#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "config/binding.h"
#include "config/keys.h"

namespace lyceum {

/// The last value of an alias in a configuration, and its origin.
struct GivenAlias {
  bool on = false;
  Origin origin = {};
};
using GivenAliases = std::map<std::string, GivenAlias>;

/// Gives each key with an alias in `aliases` the value that this stands for. `given`: the keys of the same file and
/// command line, in any order. If the key is among them, false has no effect, and true is a mistake unless the key has
/// that value or the one of false.
void apply_aliases(std::span<const ConfigKey> keys, const GivenAliases& aliases, std::span<const std::string> given,
                   LoadedConfig& loaded);

/// Returns the key that other frameworks (Megatron-LM, Hugging Face transformers, DeepSpeed, nanoGPT) call `name`;
/// empty if `name` is none of their names. A section before the last dot is ignored, `-` is `_`: "optim.learning_rate",
/// "num-layers". Only for messages: such a name is reported, not accepted.
std::string key_of_other_name(std::string_view name);

}  // namespace lyceum
