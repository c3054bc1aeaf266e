#include "apps/text_start.h"

#include <optional>
#include <string>
#include <utility>

#include "convert/hugging_face/side_files.h"

namespace lyceum {

TextStart text_start(const CheckpointReader& reader, const Tokenizer& tokenizer) {
  const std::int32_t end = tokenizer.end_of_document();
  const hugging_face::Json side_files = hugging_face::side_files_of(reader);
  if (side_files.empty()) return {.context = {.prefix = end}, .document = end};
  const auto token = [&](const std::optional<std::string>& name) {
    return name ? tokenizer.token(*name) : std::nullopt;
  };
  const std::optional<std::int32_t> bos = token(hugging_face::bos_token_of(side_files));
  const std::optional<std::int32_t> eos = token(hugging_face::eos_token_of(side_files));
  TextStart start{.context = {.prefix = bos.value_or(eos.value_or(end))}, .document = bos.value_or(end)};
  if (tokenizer.is_json()) {
    AddedAround around = tokenizer.added_around();
    start.context.added = std::move(around.before);
    start.after = std::move(around.after);
  } else {
    if (bos && hugging_face::adds_bos_token(side_files)) start.context.added = {*bos};
    if (eos && hugging_face::adds_eos_token(side_files)) start.after = {*eos};
  }
  return start;
}

}  // namespace lyceum
