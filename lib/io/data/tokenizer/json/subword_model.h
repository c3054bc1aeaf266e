#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lyceum {

/// A one-to-one mapping between tokens and ids.
class Vocabulary {
 public:
  /// Ids are below this.
  static constexpr std::int64_t most_ids = 1 << 22;

  /// Throws a bad_input Error if the token or the id was added before, or if the id is not in [0, most_ids).
  void add(std::string token, std::int64_t id);
  /// Returns the id of a token; nothing if it is not in the vocabulary.
  std::optional<std::int32_t> id(std::string_view token) const;
  /// Returns the tokens, indexed by id; "" for an id without a token.
  const std::vector<std::string>& tokens() const { return tokens_; }
  /// True if a token has this id.
  bool contains(std::int64_t id) const;
  /// Returns the number of tokens.
  std::size_t size() const { return ids_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  std::vector<bool> present_;
};

/// Encodes the words that the pre-tokenizer produces.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the ids of a word, which is valid UTF-8 and not empty. Throws a bad_input Error if a character has no
  /// token and the model requires an unknown token but defines none.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  /// Returns the offset in the word at which each of its ids ends. An unknown token extends up to the next known one.
  std::vector<std::size_t> ends_of(std::string_view word, std::span<const std::int32_t> ids) const;

 protected:
  /// Returns the tokens <0x00> to <0xFF> of the bytes of a text; nothing if one of them is missing.
  std::optional<std::vector<std::int32_t>> byte_tokens(std::string_view text) const;

  Vocabulary vocabulary_;

 private:
  /// Returns how many bytes at the beginning of a text an id represents; 0 if the text does not begin with it.
  std::size_t length_at(std::string_view text, std::int32_t id) const;
};

/// Reads the `model` of a tokenizer.json. Throws a bad_input Error that names what is not supported, and the JSON
/// library's exceptions if members are missing or of another type.
std::unique_ptr<SubwordModel> read_subword_model(const nlohmann::json& json);

}  // namespace lyceum
