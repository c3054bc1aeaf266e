#include "io/data/records/json_record.h"
#include "io/text/utf8.h"
#include "support.h"

/// Parses a line of JSON with a text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  return fuzz::taken_or_refused([&] {
    const std::string text = text_of_record(fuzz::text_of(data, size), "text");
    fuzz::hold(is_utf8(text), "a record is not valid UTF-8");
  });
}
