#include "io/data/tokenizer/sentencepiece/piece_normalizer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// Reads the double array of the library Darts-clone, which is a trie. A node has an offset; its child with a given
/// label is the unit at offset xor label. https://github.com/s-yata/darts-clone
class DoubleArray {
 public:
  explicit DoubleArray(std::string_view bytes) : units_(bytes.size() / sizeof(std::uint32_t)) {
    std::memcpy(units_.data(), bytes.data(), units_.size() * sizeof(std::uint32_t));
  }

  /// Calls found(key, value) for every key. Throws a bad_input Error if the array is damaged.
  template <class Found>
  void each(const Found& found) const {
    struct Node {
      std::size_t children;  // offset of the children: the unit of a child is at `children` xor its label
      std::size_t depth;
      char label;
    };
    std::string key;
    std::vector<Node> open;
    if (!units_.empty()) open.push_back({offset(units_[0]), 0, 0});
    std::size_t visited = 0;
    while (!open.empty()) {
      const Node node = open.back();
      open.pop_back();
      // Keys may share suffixes, so the number of paths can exceed the number of units. A damaged array may have
      // cycles.
      require_input(++visited <= most_ways && node.depth <= longest_key, "its charsmap is damaged");
      key.resize(node.depth > 0 ? node.depth - 1 : 0);
      if (node.depth > 0) key += node.label;
      for (unsigned label = 255; label > 0; --label) {
        const std::size_t at = node.children ^ label;
        if (at >= units_.size() || (units_[at] & (1u << 31 | 0xFFu)) != label) continue;
        const std::size_t children = at ^ offset(units_[at]);
        if ((units_[at] >> 8 & 1u) != 0) {
          require_input(children < units_.size(), "its charsmap is damaged");
          found(key + static_cast<char>(label), units_[children] & 0x7FFFFFFFu);
        }
        open.push_back({children, node.depth + 1, static_cast<char>(label)});
      }
    }
  }

 private:
  static constexpr std::size_t longest_key = 256;  // bytes
  static constexpr std::size_t most_ways = std::size_t{1} << 22;
  static std::size_t offset(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }

  std::vector<std::uint32_t> units_;
};

std::size_t pair_of(char left, char right) {
  return static_cast<std::size_t>(static_cast<unsigned char>(left)) << 8 | static_cast<unsigned char>(right);
}

/// Returns the value of the longest key with which a text begins, and its size; 0 bytes if there is none.
std::pair<std::int32_t, std::size_t> longest_prefix(const Trie& trie, std::string_view text) {
  std::pair<std::int32_t, std::size_t> longest{-1, 0};
  trie.prefixes(text, [&](std::size_t bytes, std::int32_t value) { longest = {value, bytes}; });
  return longest;
}

}  // namespace

PieceNormalizer::PieceNormalizer(const PieceModel::Normalization& normalization, bool space_behind,
                                 const std::vector<std::string_view>& symbols)
    : adds_space_(normalization.adds_space),
      joins_spaces_(normalization.joins_spaces),
      marks_spaces_(normalization.marks_spaces),
      space_behind_(space_behind) {
  std::vector<std::pair<std::string, std::int32_t>> keys;
  for (const std::string_view symbol : symbols) {
    keys.emplace_back(symbol, static_cast<std::int32_t>(keys.size()));
    add_key(symbol);
  }
  symbols_ = Trie(std::move(keys));
  read_charsmap(normalization.charsmap);
  for (std::size_t byte = 0; byte < 0x80; ++byte) unchanged_.set(byte, byte != ' ' && !first_bytes_.test(byte));
}

void PieceNormalizer::read_charsmap(std::string_view charsmap) {
  if (charsmap.empty()) return;
  std::uint32_t bytes = 0;
  require_input(charsmap.size() > sizeof(bytes), "its charsmap is damaged");
  std::memcpy(&bytes, charsmap.data(), sizeof(bytes));
  charsmap.remove_prefix(sizeof(bytes));
  require_input(bytes < charsmap.size(), "its charsmap is damaged");
  const std::string_view texts = charsmap.substr(bytes);  // NUL-terminated
  std::vector<std::pair<std::string, std::int32_t>> keys;
  DoubleArray(charsmap.substr(0, bytes)).each([&](const std::string& key, std::uint32_t at) {
    require_input(at < texts.size(), "its charsmap is damaged");
    keys.emplace_back(key, static_cast<std::int32_t>(replacements_.size()));
    replacements_.emplace_back(texts.substr(at, texts.find('\0', at) - at));
    add_key(key);
  });
  rules_ = Trie(std::move(keys));
}

void PieceNormalizer::add_key(std::string_view text) {
  first_bytes_.set(static_cast<unsigned char>(text.front()));
  if (text.size() > 1) last_bytes_.set(static_cast<unsigned char>(text.back()));
  longest_key_ = std::max(longest_key_, text.size());
  for (std::size_t at = 1; at < text.size(); ++at) inner_pairs_.set(pair_of(text[at - 1], text[at]));
}

std::pair<std::string_view, std::size_t> PieceNormalizer::normalize_prefix(std::string_view text) const {
  if (first_bytes_.test(static_cast<unsigned char>(text.front()))) {
    if (const auto [symbol, bytes] = longest_prefix(symbols_, text); bytes > 0) return {text.substr(0, bytes), bytes};
    if (const auto [rule, bytes] = longest_prefix(rules_, text); bytes > 0) {
      return {replacements_[static_cast<std::size_t>(rule)], bytes};
    }
  }
  const std::size_t bytes = utf8_length(text, 0);
  return bytes > 0 ? std::pair(text.substr(0, bytes), bytes) : std::pair(replacement_character, std::size_t{1});
}

bool PieceNormalizer::separates(std::string_view text, std::size_t at) const {
  const char left = text[at - 1], right = text[at];
  const auto plain = [&](char c) { return static_cast<unsigned char>(c) < 0x80 && (c != ' ' || !joins_spaces_); };
  if (!plain(left) || !plain(right) || text.size() - at < longest_key_) return false;
  if (last_bytes_.test(static_cast<unsigned char>(left)) || inner_pairs_.test(pair_of(left, right))) return false;
  const auto stays = [&](std::string_view from) { return normalize_prefix(from).first == from.substr(0, 1); };
  return stays(text.substr(at - 1, 1)) && stays(text.substr(at));
}

std::string PieceNormalizer::operator()(std::string_view text, TextPart part, std::span<std::size_t> offsets) const {
  const std::string_view space = marks_spaces_ ? space_mark : std::string_view(" ");
  std::string out;
  const std::size_t size = text.size();
  std::size_t moved = 0;  // number of offsets that were already moved
  // Call it before the next `bytes` of the text are replaced, either as a whole or (one_by_one) each by itself.
  const auto move_offsets = [&](std::size_t bytes, bool one_by_one) {
    const std::size_t at = size - text.size();
    for (; moved < offsets.size() && offsets[moved] < at + bytes; ++moved) {
      offsets[moved] = out.size() + (one_by_one && offsets[moved] > at ? offsets[moved] - at : 0);
    }
  };
  if (part.begins && joins_spaces_) {
    while (!text.empty()) {
      const auto [made, bytes] = normalize_prefix(text);
      if (made != " ") break;
      move_offsets(bytes, false);
      text.remove_prefix(bytes);
    }
  }
  move_offsets(1, false);  // an offset of the first character also precedes the space that is added
  const auto finish_offsets = [&] {
    for (; moved < offsets.size(); ++moved) offsets[moved] = out.size();
    for (std::size_t& offset : offsets) offset = std::min(offset, out.size());
  };
  if (text.empty()) {
    finish_offsets();
    return out;
  }
  out.reserve(text.size() + text.size() / 2);
  if (part.begins && adds_space_ && !space_behind_) out += space;
  bool after_space = part.begins && joins_spaces_;
  const bool plain_spaces = !first_bytes_.test(' ');
  while (!text.empty()) {
    std::size_t same = 0;
    while (same < text.size() && unchanged_.test(static_cast<unsigned char>(text[same]))) ++same;
    if (same > 0) {
      move_offsets(same, true);
      out.append(text.data(), same);
      text.remove_prefix(same);
      after_space = false;
      continue;
    }
    // a fast path for the most frequent case, with the same result as the code below
    if (plain_spaces && text.front() == ' ') {
      move_offsets(1, false);
      text.remove_prefix(1);
      if (!after_space) out += space;
      after_space = joins_spaces_;
      continue;
    }
    auto [made, bytes] = normalize_prefix(text);
    move_offsets(bytes, false);
    text.remove_prefix(bytes);
    while (after_space && made.starts_with(' ')) made.remove_prefix(1);
    if (made.empty()) continue;
    for (const char c : made) c == ' ' ? out.append(space) : out.append(1, c);
    after_space = joins_spaces_ && made.ends_with(' ');
  }
  if (part.ends && joins_spaces_) {
    while (out.ends_with(space)) out.resize(out.size() - space.size());
  }
  if (part.ends && adds_space_ && space_behind_) out += space;
  finish_offsets();
  return out;
}

}  // namespace lyceum
