#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

#include "io/data/tokenizer/json/regex.h"
#include "io/text/text_range.h"

namespace lyceum {

/// A text in valid UTF-8 and the words into which it is split (`tokenizers` calls them splits). The words are in order
/// and not empty, and the model encodes each of them separately. They need not be words of a language or cover the
/// text.
struct WordList {
  std::string text;
  std::vector<TextRange> words;
  bool at_start;                    // the first word is at the beginning of the whole input
  RegexBudget& budget;              // the budget of the document
  std::vector<TextRange> marked{};  // marked ranges of `text`; sorted, disjoint; each step adjusts them
};

/// One step of pre-tokenization: changes the text or splits its words further.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(WordList& list) const = 0;
};

/// A pre-tokenizer, as a list of steps.
struct PreTokenization {
  std::vector<std::unique_ptr<PreTokenizer>> steps;  // in the order of application
  /// True if the last step is ByteLevel: the model encodes byte_characters() of each word instead of the word.
  bool to_bytes = false;
};
/// Reads the `pre_tokenizer` of a tokenizer.json; no steps for null. Throws a bad_input Error that names a component
/// that is not supported, and the JSON library's exceptions if members are missing or of another type.
PreTokenization read_pre_tokenizer(const nlohmann::json& json);

}  // namespace lyceum
