#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/data/tokenizer/sentencepiece/piece_model.h"
#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"
#include "io/data/tokenizer/trie.h"

namespace lyceum {

/// Looks up the pieces of a model. Used by the segmentations of all types.
class PieceTable {
 public:
  /// Keeps references to `bytes` and to the serialised model, which must outlive it.
  PieceTable(const PieceModel& model, const PieceSegmentation::Bytes& bytes) : bytes_(bytes) {
    std::vector<std::pair<std::string, std::int32_t>> symbols;
    for (std::size_t i = 0; i < model.pieces.size(); ++i) {
      const auto& [text, score, kind] = model.pieces[i];
      const auto id = static_cast<std::int32_t>(i);
      if (kind == PieceModel::unknown) unknown_ = id;
      if (kind == PieceModel::user_defined) symbols.emplace_back(text, id);
      if (kind == PieceModel::normal || kind == PieceModel::user_defined) ids_.emplace(text, id);
    }
    symbols_ = Trie(std::move(symbols));
  }

  /// Returns the id of a normal or user-defined piece with this text; unknown() if there is none.
  std::int32_t id(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? unknown_ : found->second;
  }
  /// Returns the size in bytes of the symbol that begins at text[at]: the longest user-defined symbol, or else a
  /// character. Sets `user_defined` accordingly.
  std::size_t symbol_bytes(std::string_view text, std::size_t at, bool& user_defined) const {
    std::size_t longest = 0;
    if (symbols_.begins(text[at])) {
      symbols_.prefixes(text.substr(at), [&](std::size_t bytes, std::int32_t) { longest = bytes; });
    }
    user_defined = longest > 0;
    return user_defined ? longest : piece_character_bytes(text, at);
  }
  /// Appends `id`, or the tokens of the bytes of `piece` if `id` is unknown().
  void append(std::string_view piece, std::int32_t id, std::vector<std::int32_t>& tokens) const {
    if (id != unknown_) return tokens.push_back(id);
    for (const char c : piece) tokens.push_back(bytes_[static_cast<unsigned char>(c)]);
  }
  std::int32_t unknown() const { return unknown_; }

 private:
  const PieceSegmentation::Bytes& bytes_;
  std::int32_t unknown_ = -1;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  Trie symbols_;
};

}  // namespace lyceum
