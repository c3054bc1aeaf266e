#include "io/text/json.h"

#include "io/text/utf8.h"
#include "support.h"

/// Writes the bytes as a string in JSON and reads it again; then parses the bytes as JSON.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string text(fuzz::text_of(data, size));
  const nlohmann::ordered_json json{{text, {text, 1}}};
  for (const int indent : {-1, 2}) {
    const std::string written = json_text(json, indent);
    fuzz::hold(is_utf8(written), "the JSON is not valid UTF-8");
    fuzz::hold(parse_json<nlohmann::ordered_json>(written) == json, "a string changes when it is written and read");
  }
  return fuzz::taken_or_refused([&] {
    require_shallow(text);
    const nlohmann::json read = parse_json<nlohmann::json>(text, false);
    if (!read.is_discarded()) fuzz::hold(parse_json<nlohmann::json>(json_text(read)) == read, "JSON changes");
    const nlohmann::json of_library = nlohmann::json::parse(text, nullptr, false);
    const nlohmann::json of_python = parse_as_python(text);
    if (of_library.is_discarded() || text.find('\0') != std::string::npos) return;
    fuzz::hold(of_python == of_library && read == of_library, "the parsers disagree about a text");
  });
}
