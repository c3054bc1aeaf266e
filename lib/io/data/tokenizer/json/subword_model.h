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

/// Tokens and their ids, both without doubles.
class Vocabulary {
 public:
  static constexpr std::int64_t most_ids = 1 << 22;

  /// Throws a bad_input Error for an id that is negative, beyond most_ids or given twice.
  void add(std::string token, std::int64_t id);
  std::optional<std::int32_t> id(std::string_view token) const;
  /// By id; empty for an id without a token.
  const std::vector<std::string>& tokens() const { return tokens_; }
  bool contains(std::int64_t id) const;
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

/// Cuts a piece of text into tokens.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the ids of a piece, which is valid UTF-8 and not empty. Throws a bad_input Error for a character that has
  /// no token where the model needs one for the unknown and names none.
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& ids) const = 0;
  /// Returns where in a piece each of its ids ends. An unknown token extends to the next known one.
  std::vector<std::size_t> ends_of(std::string_view piece, std::span<const std::int32_t> ids) const;

 protected:
  /// The tokens of the bytes of a text, named <0x00> to <0xFF>; nothing unless each has one.
  std::optional<std::vector<std::int32_t>> byte_tokens(std::string_view text) const;

  Vocabulary vocabulary_;

 private:
  /// The bytes that an id covers at the beginning of a text; 0 if the text does not begin with it.
  std::size_t length_at(std::string_view text, std::int32_t id) const;
};

/// The `model` of a tokenizer.json. Throws a bad_input Error that
/// names what is not supported, exceptions of the library for what is not as it should be.
std::unique_ptr<SubwordModel> read_subword_model(const nlohmann::json& json);

}  // namespace lyceum
