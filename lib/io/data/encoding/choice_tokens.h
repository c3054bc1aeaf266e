#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "io/data/tokenizer/tokenizer.h"

namespace lyceum {

/// The tokens of a context and of a choice that follows it.
struct ChoiceTokens {
  std::vector<std::int32_t> context, choice;
};

/// The tokens that begin a context.
struct ContextStart {
  std::int32_t prefix;                   // the context of a choice that has none
  std::vector<std::int32_t> added = {};  // precede other contexts, unless they already begin with these or `prefix`
};

/// Returns the tokens of a text. `start.added` precede them, unless they begin with these or with `start.prefix`.
std::vector<std::int32_t> encode_context(const Tokenizer& tokenizer, std::string_view text, const ContextStart& start);

/// Encodes a context and a choice as lm-evaluation-harness does since version 0.4.9.2 (`TemplateLM.loglikelihood` and
/// `_encode_pair` of lm_eval/api/model.py, `HFLM.tok_encode` of lm_eval/models/huggingface.py):
///   1. White space at the end of the context moves to the beginning of the choice.
///   2. The context is encoded with encode_context(), and so are context and choice together.
///   3. If the context has n tokens, the choice's tokens are those of context and choice together, without the first n.
/// If nothing of the context is left after step 1, the context is the token `prefix`, and the choice is encoded alone,
/// without a `prefix` that its text begins with. `choice` is empty if it adds no token to its context. Both texts must
/// be valid UTF-8.
ChoiceTokens encode_choice(const Tokenizer& tokenizer, std::string_view context, std::string_view choice,
                           const ContextStart& start);

/// Returns the text without the white space at its end: the characters that Python's str.rstrip() removes.
std::string_view without_trailing_space(std::string_view text);

}  // namespace lyceum
