#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// Remembers the tokens of words that were encoded before: a hash table that is at most half full. It grows up to 2^18
/// slots; when that table is half full, it forgets all words. Not thread-safe: use one per thread.
class WordCache {
 public:
  /// Longest word in bytes that is remembered. Longer words seldom recur.
  static constexpr std::size_t longest_word = 255;

  /// Appends the tokens of a word. Calls encode(word, tokens), which must append them, if the word is not remembered.
  template <class Encode>
  void append(std::string_view word, std::vector<std::int32_t>& tokens, const Encode& encode) {
    if (word.size() > longest_word) return encode(word, tokens);
    const std::size_t hash = std::hash<std::string_view>()(word);
    if (slots_.empty()) slots_.resize(first_slots);
    std::size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].used; at = next(at)) {
      const Slot& slot = slots_[at];
      if (slot.hash != static_cast<std::uint32_t>(hash >> 32) || word_of(slot) != word) continue;
      const auto first = tokens_.begin() + slot.tokens;
      tokens.insert(tokens.end(), first, first + slot.token_count);
      return;
    }
    const std::size_t before = tokens.size();
    encode(word, tokens);
    if (2 * count_ == slots_.size()) {
      grow_or_clear();
      at = free_slot(hash);
    }
    remember(at, hash, word, std::span(tokens).subspan(before));
  }

 private:
  static constexpr std::size_t first_slots = std::size_t{1} << 8, most_slots = std::size_t{1} << 18;

  struct Slot {
    std::uint32_t hash = 0;  // upper 32 bits of the hash
    /// Offsets of the word in words_ and of its tokens in tokens_.
    std::uint32_t begin = 0, tokens = 0;
    std::uint16_t token_count = 0;
    std::uint8_t size = 0;
    bool used = false;
  };

  std::string_view word_of(const Slot& slot) const { return std::string_view(words_).substr(slot.begin, slot.size); }

  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  std::size_t free_slot(std::size_t hash) const {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].used) at = next(at);
    return at;
  }

  /// Doubles the number of slots, or forgets all words if there are already most_slots.
  void grow_or_clear() {
    const bool full = slots_.size() == most_slots;
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(full ? most_slots : 2 * slots_.size()));
    if (full) {
      words_.clear();
      tokens_.clear();
      count_ = 0;
      return;
    }
    for (const Slot& slot : before) {
      if (slot.used) slots_[free_slot(std::hash<std::string_view>()(word_of(slot)))] = slot;
    }
  }

  void remember(std::size_t at, std::size_t hash, std::string_view word, std::span<const std::int32_t> tokens) {
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
  std::string words_;                 // of all slots, concatenated
  std::vector<std::int32_t> tokens_;  // of all slots, concatenated
};

}  // namespace lyceum
