#include "io/data/tokenizer/sentencepiece/piece_segmentation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "io/data/tokenizer/trie.h"

namespace lyceum {

namespace {

using Tokens = std::vector<std::int32_t>;

/// The pieces of a model, as models of all types look them up.
class Pieces {
 public:
  Pieces(const PieceModel& model, const PieceSegmentation::Bytes& bytes) : bytes_(bytes) {
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

  /// The id of a whole piece; the unknown one if there is none.
  std::int32_t id(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? unknown_ : found->second;
  }
  /// Returns the bytes of the symbol that begins at text[at]: a user-defined one, or else a character.
  std::size_t symbol_bytes(std::string_view text, std::size_t at, bool& user_defined) const {
    std::size_t longest = 0;
    if (symbols_.begins(text[at])) {
      symbols_.prefixes(text.substr(at), [&](std::size_t bytes, std::int32_t) { longest = bytes; });
    }
    user_defined = longest > 0;
    return user_defined ? longest : piece_character_bytes(text, at);
  }
  void append(std::string_view piece, std::int32_t id, Tokens& tokens) const {
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

/// Bytes that are neighbours in a piece: the last one of a character and the first one of the next. U+2581 counts as a
/// space, since its first byte is that of many other characters.
class Neighbours {
 public:
  void join(std::string_view piece) {
    for (std::size_t at = 0, length = 0, last = 0; at < piece.size(); at += length) {
      length = piece_character_bytes(piece, at);
      if (at > 0) joined_.set(pair_of(end_of(piece.substr(last, at - last)), beginning_of(piece.substr(at, length))));
      last = at;
    }
  }
  void join_all() { joined_.set(); }
  bool joined(char left, char right) const { return joined_.test(pair_of(left, right)); }
  /// The end of the longest part of a text from `begin` on whose characters are joined.
  std::size_t end_of_part(std::string_view text, std::size_t begin) const {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    std::size_t at = begin, length = piece_character_bytes(text, at);
    for (;;) {
      while (length == 1 && at + 1 < text.size() && is_ascii(text[at]) && is_ascii(text[at + 1])) {
        if (!joined(text[at], text[at + 1])) return at + 1;
        ++at;
      }
      const char left = end_of(text.substr(at, length));
      at += length;
      if (at == text.size()) return at;
      length = piece_character_bytes(text, at);
      if (!joined(left, beginning_of(text.substr(at, length)))) return at;
    }
  }

 private:
  static char beginning_of(std::string_view character) { return character == space_mark ? ' ' : character.front(); }
  static char end_of(std::string_view character) { return character == space_mark ? ' ' : character.back(); }
  static std::size_t pair_of(char left, char right) {
    return static_cast<std::size_t>(static_cast<unsigned char>(left)) << 8 | static_cast<unsigned char>(right);
  }

  std::bitset<65536> joined_;
};

/// Byte-pair encoding: the two neighbours whose joint piece has the highest score are merged, the leftmost ones among
/// equals, until no joint piece is left. [Sennrich et al. 2016; SentencePiece, bpe_model.cc]
///
/// No merge reaches across two characters that are neighbours in no piece, so the parts between such places are
/// encoded one by one. Merges that make an unused piece are the exception: such a piece is taken apart as it was last
/// made anywhere in the text, so a model with unused pieces has one part.
class BytePairs : public PieceSegmentation {
 public:
  BytePairs(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const auto& [text, score, kind] = model.pieces[id];
      if (!model.pieces[id].in_text()) continue;
      merged_.emplace(text, Merged{.score = score, .unused = kind == PieceModel::unused});
      neighbours_.join(text);
      if (kind == PieceModel::unused) neighbours_.join_all();
    }
  }

  void encode(std::string_view text, WordCache* words, Tokens& tokens) const override {
    Merging merging(*this);
    const auto encode = [&](std::string_view part, Tokens& out) { merging.run(part, out); };
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = neighbours_.end_of_part(text, at);
      const std::string_view part = text.substr(at, end - at);
      words != nullptr ? words->append(part, tokens, encode) : encode(part, tokens);
    }
  }
  bool separates(char left, char right) const override { return !neighbours_.joined(left, right); }

 private:
  struct Merged {
    float score;
    bool unused;
  };

  /// Merges the symbols of one part after another.
  class Merging {
   public:
    explicit Merging(const BytePairs& model) : model_(model) {}

    void run(std::string_view text, Tokens& tokens) {
      require_input(text.size() < std::size_t{1} << 31, "a text of {} MB cannot be cut into parts", text.size() >> 20);
      text_ = text;
      symbols_.clear();
      taken_apart_.clear();
      for (std::size_t at = 0; at < text.size();) {
        bool whole = false;
        const std::size_t bytes = model_.pieces_.symbol_bytes(text, at, whole);
        const auto index = static_cast<std::int32_t>(symbols_.size());
        at += bytes;
        symbols_.push_back({.begin = static_cast<std::uint32_t>(at - bytes),
                            .bytes = static_cast<std::uint32_t>(bytes),
                            .previous = index - 1,
                            .next = at < text.size() ? index + 1 : -1,
                            .whole = whole});
      }
      for (std::int32_t i = 1; i < std::ssize(symbols_); ++i) consider(i - 1, i);
      while (!candidates_.empty()) {
        const Candidate best = candidates_.top();
        candidates_.pop();
        merge(best);
      }
      for (std::int32_t i = 0; i != -1; i = symbol(i).next) append(text_of(symbol(i)), tokens);
    }

   private:
    struct Symbol {
      std::uint32_t begin, bytes;  // bytes: 0 once it is part of another one
      std::int32_t previous, next;
      bool whole;  // is never merged
    };
    struct Candidate {
      float score;
      std::int32_t left, right;
      std::uint32_t bytes;
      bool operator<(const Candidate& other) const {
        return score < other.score || (score == other.score && left > other.left);
      }
    };

    Symbol& symbol(std::int32_t index) { return symbols_[static_cast<std::size_t>(index)]; }
    std::string_view text_of(const Symbol& symbol) const { return text_.substr(symbol.begin, symbol.bytes); }

    void consider(std::int32_t left, std::int32_t right) {
      if (left < 0 || right < 0) return;
      const Symbol &a = symbol(left), &b = symbol(right);
      if (a.whole || b.whole) return;
      const std::string_view joint = text_.substr(a.begin, a.bytes + b.bytes);
      const auto found = model_.merged_.find(joint);
      if (found == model_.merged_.end()) return;
      candidates_.push({found->second.score, left, right, a.bytes + b.bytes});
      if (found->second.unused) taken_apart_[joint] = {text_of(a), text_of(b)};
    }

    void merge(const Candidate& best) {
      Symbol &left = symbol(best.left), &right = symbol(best.right);
      if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) return;
      left.bytes = best.bytes;
      left.next = right.next;
      if (right.next >= 0) symbol(right.next).previous = best.left;
      right.bytes = 0;
      consider(left.previous, best.left);
      consider(best.left, left.next);
    }

    void append(std::string_view piece, Tokens& tokens) const {
      const auto parts = taken_apart_.find(piece);
      if (parts == taken_apart_.end()) return model_.pieces_.append(piece, model_.pieces_.id(piece), tokens);
      append(parts->second.first, tokens);
      append(parts->second.second, tokens);
    }

    const BytePairs& model_;
    std::string_view text_;
    std::vector<Symbol> symbols_;
    std::priority_queue<Candidate> candidates_;
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> taken_apart_;
  };

  Pieces pieces_;
  std::unordered_map<std::string_view, Merged> merged_;
  Neighbours neighbours_;
};

/// The pieces whose scores have the largest sum. [Kudo 2018; SentencePiece, unigram_model.cc]
///
/// Sums are f32 from the beginning of the text on, as SentencePiece's are: which of two ways is better depends, by
/// rounding, on all that comes before. So a text is never cut.
class Unigram : public PieceSegmentation {
 public:
  Unigram(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {
    float lowest = std::numeric_limits<float>::max();
    std::vector<std::pair<std::string, std::int32_t>> keys;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const auto& [text, score, kind] = model.pieces[id];
      require_input(std::isfinite(score), "its piece {} has the score {}", id, score);
      if (kind == PieceModel::normal) lowest = std::min(lowest, score);
      const bool user_defined = kind == PieceModel::user_defined;
      if (kind == PieceModel::normal || user_defined) keys.emplace_back(text, static_cast<std::int32_t>(id));
      // A user-defined symbol is better than all other ways.
      scores_.push_back(user_defined ? static_cast<float>(0.1 * (static_cast<int>(text.size()) - 1)) : score);
    }
    unknown_score_ = lowest - unknown_penalty;
    trie_ = Trie(std::move(keys));
  }

  void encode(std::string_view text, WordCache*, Tokens& tokens) const override {
    std::vector<Step> best(1);
    std::size_t begin = 0;  // in the text, of best[0], which every way passes
    std::size_t reach = 0;  // the last place that a step leads to
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      if (at == reach && at - begin >= many_bytes) {
        append_best(text.substr(begin, at - begin), best, tokens);
        best.assign(1, {.score = best[at - begin].score});
        begin = at;
      }
      length = piece_character_bytes(text, at);
      if (std::abs(best[at - begin].score) > large_score) {  // so that sums stay precise
        const float lost = best[at - begin].score;
        for (std::size_t i = at - begin; i < best.size(); ++i) {
          if (i == at - begin || best[i].bytes > 0) best[i].score -= lost;
        }
      }
      const float before = best[at - begin].score;
      const auto step = [&](std::size_t bytes, float score, std::int32_t id) {
        const float sum = score + before;
        reach = std::max(reach, at + bytes);
        const std::size_t end = at + bytes - begin;
        if (best.size() <= end) best.resize(end + 1);
        if (best[end].bytes == 0 || sum > best[end].score) {
          best[end] = {sum, static_cast<std::uint32_t>(bytes), id};
        }
      };
      bool single = false;
      trie_.prefixes(text.substr(at), [&](std::size_t bytes, std::int32_t id) {
        step(bytes, scores_[static_cast<std::size_t>(id)], id);
        single = single || bytes == length;
      });
      if (!single) step(length, unknown_score_, pieces_.unknown());
    }
    append_best(text.substr(begin), best, tokens);
  }
  bool separates(char, char) const override { return false; }

 private:
  static constexpr float unknown_penalty = 10, large_score = 100000;
  static constexpr std::size_t many_bytes = 4096;

  /// The last piece of the best way to a place in the text.
  struct Step {
    float score = 0;          // of the whole way
    std::uint32_t bytes = 0;  // of the piece
    std::int32_t id = -1;
  };

  void append_best(std::string_view text, const std::vector<Step>& best, Tokens& tokens) const {
    std::vector<std::size_t> ends;
    for (std::size_t end = text.size(); end > 0; end -= best[end].bytes) ends.push_back(end);
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      pieces_.append(text.substr(*end - best[*end].bytes, best[*end].bytes), best[*end].id, tokens);
    }
  }

  Pieces pieces_;
  std::vector<float> scores_;  // by id
  float unknown_score_ = 0;
  Trie trie_;
};

/// A piece for each word: a space and what follows up to the next one.
class Words : public PieceSegmentation {
 public:
  Words(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {}

  void encode(std::string_view text, WordCache*, Tokens& tokens) const override {
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = std::min(text.find(space_mark, at + 1), text.size());
      const std::string_view word = text.substr(at, end - at);
      pieces_.append(word, pieces_.id(word), tokens);
    }
  }
  bool separates(char, char) const override { return false; }

 private:
  Pieces pieces_;
};

/// A piece for each character and each user-defined symbol.
class Characters : public PieceSegmentation {
 public:
  Characters(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {
    for (const PieceModel::Piece& piece : model.pieces) {
      if (piece.kind == PieceModel::user_defined) neighbours_.join(piece.text);
    }
  }

  void encode(std::string_view text, WordCache*, Tokens& tokens) const override {
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      bool user_defined = false;
      length = pieces_.symbol_bytes(text, at, user_defined);
      const std::string_view symbol = text.substr(at, length);
      pieces_.append(symbol, pieces_.id(symbol), tokens);
    }
  }
  bool separates(char left, char right) const override { return !neighbours_.joined(left, right); }

 private:
  Pieces pieces_;
  Neighbours neighbours_;
};

}  // namespace

std::unique_ptr<PieceSegmentation> make_segmentation(const PieceModel& model, const PieceSegmentation::Bytes& bytes) {
  switch (model.segmentation) {
    case PieceModel::Segmentation::unigram: return std::make_unique<Unigram>(model, bytes);
    case PieceModel::Segmentation::bpe: return std::make_unique<BytePairs>(model, bytes);
    case PieceModel::Segmentation::word: return std::make_unique<Words>(model, bytes);
    case PieceModel::Segmentation::character: return std::make_unique<Characters>(model, bytes);
  }
  fail(ExitCode::bad_input, "its model type {} is not supported", static_cast<int>(model.segmentation));
}

}  // namespace lyceum
