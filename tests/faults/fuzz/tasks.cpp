#include <algorithm>

#include "io/data/encoding/choice_tokens.h"
#include "io/data/records/task_items.h"
#include "io/text/utf8.h"
#include "support.h"

/// Reads a task and encodes all choices. The tokens of context and choice must be those of both texts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  static const Tokenizer tokenizer(LYCEUM_CORPUS "/tokenizer/small.model");
  return fuzz::taken_or_refused([&] {
    for (const TaskItem& item : read_task(fuzz::input_file("task.jsonl", fuzz::text_of(data, size)))) {
      fuzz::hold(item.answer >= 0 && item.answer < std::ssize(item.choices), "an answer is not a choice");
      fuzz::hold(is_utf8(item.context), "a context is not valid UTF-8");
      fuzz::hold(item.context.starts_with(without_trailing_space(item.context)),
                 "a context is not shortened at its end");
      for (const std::string& choice : item.choices) {
        fuzz::hold(!choice.empty() && is_utf8(choice), "a choice is empty or not valid UTF-8");
        const ChoiceTokens tokens = encode_choice(tokenizer, item.context, choice, {.prefix = 0});
        const std::vector<std::int32_t> both = tokenizer.encode(item.context + choice);
        const std::size_t whole = both.size();
        const bool prefixed = without_trailing_space(item.context).empty();
        const std::size_t left_out = prefixed ? std::size_t{!both.empty() && both.front() == 0} : tokens.context.size();
        fuzz::hold(tokens.choice.size() == whole - std::min(whole, left_out),
                   "a choice has other tokens than its text");
      }
    }
  });
}
