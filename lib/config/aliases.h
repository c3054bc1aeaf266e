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

/// Sets each key whose alias is in `aliases` to the value that the alias stands for. `given`: the keys set in the same
/// file and command line, in any order. If the key itself is among them, an alias of false has no effect, and an alias
/// of true is a mistake unless the key has the value for true or the one for false.
void apply_aliases(std::span<const ConfigKey> keys, const GivenAliases& aliases, std::span<const std::string> given,
                   LoadedConfig& loaded);

/// Returns the key for which other frameworks (Megatron-LM, Hugging Face transformers, DeepSpeed, nanoGPT) use `name`;
/// empty if none of them uses it. Only the part after the last dot counts, and `-` equals `_`: "optim.learning_rate",
/// "num-layers". Used in messages: such a name is not accepted as a key.
std::string key_of_other_name(std::string_view name);

}  // namespace lyceum
