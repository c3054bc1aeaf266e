#pragma once

#include <cstddef>
#include <string>
#include <vector>

// A feature of the configuration is a pair of files. Its header has a struct of its members with their defaults, its
// enumerations, the functions that derive values from them, and those of the following functions that it needs:
//
//   names_of(E)       returns the names of an enumeration's values, in order
//   declare_keys(…)   adds a key for each member: name, allowed values, help, role, names in other frameworks
//   check_NAME(…)     finds values that contradict each other; the range of a single key is part of its declaration
//   derive_NAME(…)    replaces 0 and auto by derived values; a second call changes nothing
//   simplify_NAME(…)  makes a normal form: keys without effect get their defaults, equivalent notations become one
//
// config.h, keys.cpp, check.cpp and continuation.cpp list the features.
namespace lyceum {

struct Config;
struct ConfigKey;
class Findings;
using ConfigKeys = std::vector<ConfigKey>;

/// The effect of a changed key on a run that continues from its checkpoint.
enum class KeyRole {
  operation,  // does not change training: devices, console, files, checks
  reported,   // does not change training, but readers of the log must know about it
  tuning,     // the run continues and trains differently from now on; after its last step, as identity
  identity    // makes it another run: seed, data, model or objective
};

void names_of() = delete;  // the header of each enumeration declares an overload
/// Returns the name of an enumeration value in configurations.
template <class E>
requires requires(E value) { names_of(value); }
std::string name_of(E value) { return names_of(value).at(static_cast<std::size_t>(value)); }

}  // namespace lyceum
