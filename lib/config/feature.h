#pragma once

#include <cstddef>
#include <string>
#include <vector>

// A feature of the configuration is a pair of files. Its header has a struct of its members with their defaults, its
// enumerations, the values that follow from them, and what it needs of these functions:
//
//   names_of(E)       the names of an enumeration's values, in their order
//   declare_keys(…)   adds a key for each member: name, values, help, role when a run continues, names elsewhere
//   check_NAME(…)     finds values that do not go together; each key's own range is checked by its declaration
//   derive_NAME(…)    replaces 0 and auto by the values that they stand for; does nothing the second time
//   simplify_NAME(…)  gives keys without effect their defaults, and of two ways to write the same takes one
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
  tuning,     // the run continues and trains differently from now on; of a finished run, a new run
  identity    // makes it another run: seed, data, model or objective
};

void names_of() = delete;  // the header of each enumeration declares an overload
/// Returns the name of an enumeration value in configurations.
template <class E>
requires requires(E value) { names_of(value); }
std::string name_of(E value) { return names_of(value).at(static_cast<std::size_t>(value)); }

}  // namespace lyceum
