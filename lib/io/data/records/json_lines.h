#pragma once

#include "io/data/records/record_source.h"
#include "io/files/text_stream.h"

namespace lyceum {

/// One record per line, a JSON object with a text or a chat; blank lines are none.
extern const RecordFormat json_lines;

/// True if a text begins with a JSON object that fills a line. `beginning` is what was read of the text so far; more is
/// read from `stream` if the line goes on.
bool begins_with_record(std::string beginning, TextStream& stream);

}  // namespace lyceum
