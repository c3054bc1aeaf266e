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

/// Applies the aliases that were given, `aliases`, to their keys. `keys`: keys_of(loaded.config). `given`: the names of
/// the keys that the same file or command line set, in any order.
/// - A key that is not in `given` is set to the value that the alias stands for, with the origin of the alias.
/// - If the key is in `given`, an alias of false has no effect. An alias of true replaces the value for false; for any
///   other value except the one for true, a message is added to loaded.mistakes.
void apply_aliases(std::span<const ConfigKey> keys, const GivenAliases& aliases, std::span<const std::string> given,
                   LoadedConfig& loaded);

/// Returns the key for which other frameworks (Megatron-LM, Hugging Face transformers, DeepSpeed, nanoGPT) use `name`;
/// empty if none of them uses it. Only the part after the last dot counts, and `-` equals `_`: "optim.learning_rate",
/// "num-layers". Used in messages: such a name is not accepted as a key.
std::string key_of_other_name(std::string_view name);

}  // namespace lyceum
