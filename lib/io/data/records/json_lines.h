#pragma once

#include <string_view>

#include "io/data/records/record_source.h"
#include "io/files/text_stream.h"

namespace lyceum {

/// The format with one record per line: a JSON object with a text or a chat. Blank lines are skipped.
extern const RecordFormat json_lines;

/// True if the first line of a text that is not blank is a JSON object. `beginning`: the bytes of the text that were
/// read from `stream` so far. More are read if the line is longer.
bool begins_with_record(std::string beginning, TextStream& stream);
/// True if a text with this beginning is a JSON array of objects.
bool begins_with_list_of_records(std::string_view beginning);

}  // namespace lyceum
