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

/// A stretch of a text: what an added token covers, or what is between two.
struct Stretch {
  std::string_view text;
  std::optional<std::int32_t> token;
};

/// Tokens that are looked for in a text before the model sees it.
class AddedTokens {
 public:
  /// The `added_tokens` of a tokenizer.json. Throws a bad_input Error for an id that is not the one that `tokenizers`
  /// would give, exceptions of the library for what is not as it should be.
  AddedTokens(const nlohmann::json& json, const Vocabulary& model, const std::vector<Normalizer>& normalizers);

  enum class Pass { raw, normalized };  // of the text as it is, then of its normalised stretches
  /// Cuts a text into stretches, none empty.
  std::vector<Stretch> split(std::string_view text, Pass pass) const;

  struct Token {
    std::int32_t id;
    std::string content;  // as the file has it
    std::string decoded;  // as decoders see it
    bool single_word = false, strips_left = false, strips_right = false, normalized = false, special = false;
  };
  const std::vector<Token>& tokens() const { return tokens_; }
  std::optional<std::int32_t> id(std::string_view content) const;

 private:
  std::vector<Token> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  Trie raw_, normalized_;  // values are places in tokens_
};

}  // namespace lyceum
