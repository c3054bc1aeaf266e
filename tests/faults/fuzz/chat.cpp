#include "io/data/encoding/chat.h"

#include "io/text/utf8.h"
#include "support.h"

/// Parses a line of JSON with a chat, and renders it with every template.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  for (const ChatTemplate& chat : chat_templates()) {
    fuzz::taken_or_refused([&] {
      const std::vector<ChatMessage> messages = messages_of_chat(fuzz::text_of(data, size));
      for (const ChatSegment& stretch : rendered(messages, chat)) {
        fuzz::hold(is_utf8(stretch.text), "a stretch is not valid UTF-8");
        fuzz::hold(!stretch.text.empty() || stretch.ends_text, "a stretch is empty");
        fuzz::hold(stretch.ends_text || !stretch.end_trained, "a missing end is marked as trained");
        std::size_t done = 0;
        for (const TextRange& range : stretch.trained) {
          fuzz::hold(done <= range.begin && range.begin < range.end && range.end <= stretch.text.size(),
                     "ranges overlap or are outside of the text");
          done = range.end;
        }
      }
    });
    fuzz::taken_or_refused([&] {
      const std::vector<ChatMessage> messages = messages_of_prompt(fuzz::text_of(data, size));
      fuzz::hold(is_utf8(render_prompt(messages, chat).back().text), "a prompt is not valid UTF-8");
    });
  }
  return 0;
}
