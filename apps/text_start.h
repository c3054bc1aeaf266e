#pragma once

#include <cstdint>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/data/encoding/choice_tokens.h"
#include "io/data/tokenizer/tokenizer.h"

namespace lyceum {

/// The tokens with which texts begin in the model of a checkpoint. Those of an imported model are chosen as
/// transformers 5 and lm-evaluation-harness choose them (`prefix_token_id` and `tok_encode` of
/// lm_eval/models/huggingface.py).
struct TextStart {
  /// `added`: the tokens that the imported tokenizer adds before a text by default. `prefix`: the imported model's
  /// bos_token, else its eos_token. In other runs every document follows an end-of-text token, which is `prefix`.
  ContextStart context;
  std::int32_t document;  // the first token of a document: the imported model's bos_token, else the end-of-text token
  std::vector<std::int32_t> after = {};  // tokens that the imported tokenizer adds after a text by default
};
TextStart text_start(const CheckpointReader& reader, const Tokenizer& tokenizer);

}  // namespace lyceum
