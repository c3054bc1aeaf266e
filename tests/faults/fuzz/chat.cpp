#include "io/data/chat.h"

#include "io/text/utf8.h"
#include "support.h"

/// A line of JSON with a chat, by every template.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  for (const ChatTemplate& chat : chat_templates()) {
    fuzz::taken_or_refused([&] {
      for (const ChatPart& part : parts_of_chat(fuzz::text_of(data, size), chat)) {
        fuzz::hold(is_utf8(part.text), "a part that is no text");
        fuzz::hold(!part.text.empty() || part.ends_text, "a part without tokens");
        fuzz::hold(part.trained || !part.ends_text, "an end that nobody is trained on");
      }
    });
  }
  return 0;
}
