#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/data/tokens/token_meta.h"

namespace lyceum {

/// The result of merge_tokens().
struct MergedTokens {
  std::int64_t documents = 0, tokens = 0;
  std::optional<TokenMeta> meta{};  // the description of the merged files; empty if the sources have none
};

/// Writes the documents of all `prefixes`, in this order, to the token files `output`, with their masks, and the sum of
/// their descriptions to PREFIX.json. A document of more than 4 Mi tokens becomes several sequences of the .idx. Uses
/// constant memory. An error leaves the files `output` as they were, and no temporary files.
///
/// Throws usage Errors if a prefix occurs twice, or refers to the same files as another one or as `output`; bad_input
/// Errors if the sources have different tokenizers or chat templates, if only some have a description, or if a
/// description has other counts than its files; and the errors of TokenSource and MegatronWriter.
MergedTokens merge_tokens(std::span<const std::string> prefixes, const std::string& output);

}  // namespace lyceum
