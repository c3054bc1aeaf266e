#pragma once

#include <string>
#include <string_view>

#include "io/data/records/record_source.h"

namespace lyceum {

/// The format of plain UTF-8 text, in which a file is one document.
extern const RecordFormat plain_text;

/// Returns in a few words why a file with these first bytes is not UTF-8 text; "" if it is.
std::string why_not_text(std::string_view beginning);

}  // namespace lyceum
