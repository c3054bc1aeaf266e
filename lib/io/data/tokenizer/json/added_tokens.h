#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/data/tokenizer/json/normalizer.h"
#include "io/data/tokenizer/json/subword_model.h"
#include "io/data/tokenizer/trie.h"

namespace lyceum {

/// A part of a text: either an added token, whose id is `token`, or the text between two of them. `text` refers to the
/// text that was split.
struct TextSegment {
  std::string_view text;
  std::optional<std::int32_t> token;
};

/// The added tokens of a tokenizer. They are found in a text before the rest of it is passed to the model.
class AddedTokens {
 public:
  /// Reads the `added_tokens` of a tokenizer.json. `model`: the model's vocabulary. `normalizers` are applied to tokens
  /// with `normalized`. Throws a bad_input Error if an id differs from the one that `tokenizers` would assign, and the
  /// JSON library's exceptions if members are missing or of another type.
  AddedTokens(const nlohmann::json& json, const Vocabulary& model, const std::vector<Normalizer>& normalizers);

  /// raw: finds the tokens without `normalized` in the original text. normalized: finds the others in the normalised
  /// rest.
  enum class Pass { raw, normalized };
  /// Splits a text into added tokens and the text between them. No part is empty. Throws a bad_input Error for a text
  /// in which `lstrip` and `rstrip` of two tokens conflict, for which `tokenizers` fails.
  std::vector<TextSegment> split(std::string_view text, Pass pass) const;

  /// An entry of `added_tokens`; see the documentation of the class AddedToken of `tokenizers`.
  struct Token {
    std::int32_t id;
    std::string content;  // as in the file
    std::string decoded;  // `content`, normalised if `normalized` is set; the input of decoders
    bool single_word = false, strips_left = false, strips_right = false, normalized = false, special = false;
  };
  const std::vector<Token>& tokens() const { return tokens_; }
  /// Returns the id of an added token; nothing if there is none with this content.
  std::optional<std::int32_t> id(std::string_view content) const;

 private:
  std::vector<Token> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  Trie raw_, normalized_;  // values are indices of tokens_
};

}  // namespace lyceum
