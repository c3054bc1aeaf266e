#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns the keys of a configuration that have no effect beside the others in any stage: their values are not the
/// defaults, but those of effective() are. Lists are left out, which may only be another notation, and keys that a
/// conversion writes with the values that resolve() derives. `given`: before resolve(); `resolved`: after it.
std::vector<std::string> ineffective_keys(const Config& given, const Config& resolved);

/// Returns a sentence for each setting with which training is possible, but probably not what the user wants: keys
/// without effect, a router that no gradient reaches, weights that begin as zeros, a decay of weights beyond zero.
std::vector<std::string> doubts(const Config& given, const Config& resolved);

}  // namespace lyceum
