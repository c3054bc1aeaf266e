#pragma once

#include <string>

#include "io/text/utf8.h"

namespace lyceum {

/// Returns the value of a key as messages show it: "empty" instead of no text, and an excerpt of a long one, such as a
/// list of thousands of sources.
inline std::string value_text(const std::string& value) { return value.empty() ? "empty" : excerpt(value, 500); }

}  // namespace lyceum
