#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// The tokens of words that a thread has met. It forgets all of them when it is full.
class WordCache {
 public:
  /// Words up to this many bytes are worth remembering: longer ones seldom come again.
  static constexpr std::size_t longest_word = 64;

  /// Appends the tokens of a word, which `encode(word, tokens)` does for one that is new.
  template <class Encode>
  void append(std::string_view word, std::vector<std::int32_t>& tokens, const Encode& encode) {
    if (word.size() > longest_word) return encode(word, tokens);
    const std::size_t hash = std::hash<std::string_view>()(word);
    if (slots_.empty()) slots_.resize(slot_count);
    std::size_t at = hash & (slot_count - 1);
    for (; slots_[at].used; at = (at + 1) & (slot_count - 1)) {
      const Slot& slot = slots_[at];
      if (slot.hash != static_cast<std::uint32_t>(hash >> 32) || word_of(slot) != word) continue;
      const auto first = tokens_.begin() + slot.tokens;
      tokens.insert(tokens.end(), first, first + slot.token_count);
      return;
    }
    const std::size_t before = tokens.size();
    encode(word, tokens);
    remember(at, hash, word, std::span(tokens).subspan(before));
  }

 private:
  static constexpr std::size_t slot_count = std::size_t{1} << 18;
  static constexpr std::size_t most_words = slot_count / 2;

  struct Slot {
    std::uint32_t hash = 0;  // upper half
    std::uint32_t begin = 0, tokens = 0;
    std::uint16_t token_count = 0;
    std::uint8_t size = 0;
    bool used = false;
  };

  std::string_view word_of(const Slot& slot) const { return std::string_view(words_).substr(slot.begin, slot.size); }

  void remember(std::size_t at, std::size_t hash, std::string_view word, std::span<const std::int32_t> tokens) {
    if (count_ == most_words) {
      slots_.assign(slot_count, {});
      words_.clear();
      tokens_.clear();
      count_ = 0;
      at = hash & (slot_count - 1);
    }
    slots_[at] = {.hash = static_cast<std::uint32_t>(hash >> 32),
                  .begin = static_cast<std::uint32_t>(words_.size()),
                  .tokens = static_cast<std::uint32_t>(tokens_.size()),
                  .token_count = static_cast<std::uint16_t>(tokens.size()),
                  .size = static_cast<std::uint8_t>(word.size()),
                  .used = true};
    words_ += word;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ++count_;
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  std::string words_;                 // one after another
  std::vector<std::int32_t> tokens_;  // of the words, one after another
};

}  // namespace lyceum
