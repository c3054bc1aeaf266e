#include "io/data/tokenizer/sentencepiece/byte_pairs.h"

#include <cstddef>
#include <cstdint>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/data/tokenizer/sentencepiece/neighbours.h"
#include "io/data/tokenizer/sentencepiece/piece_table.h"

namespace lyceum {

namespace {

using Tokens = std::vector<std::int32_t>;

/// Byte-pair encoding. Merges the two adjacent symbols whose concatenation is the piece with the highest score (the
/// leftmost ones among equals), until no concatenation is a piece. [Sennrich et al. 2016; SentencePiece, bpe_model.cc]
///
/// If two characters are adjacent in no piece, no merge extends across their boundary, so the parts on either side are
/// encoded separately. A model with unused pieces is an exception: an unused piece in the result is divided again in
/// the way in which it was last merged anywhere in the text. The whole text is therefore one part.
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
  /// A piece that a merge can make.
  struct Merged {
    float score;
    bool unused;
  };

  /// Encodes one part at a time. Keeps its memory between parts.
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
      for (std::int32_t i = 1; i < std::ssize(symbols_); ++i) add_candidate(i - 1, i);
      while (!candidates_.empty()) {
        const Candidate best = candidates_.top();
        candidates_.pop();
        merge(best);
      }
      for (std::int32_t i = 0; i != -1; i = symbol(i).next) append(text_of(symbol(i)), tokens);
    }

   private:
    struct Symbol {
      std::uint32_t begin, bytes;  // bytes: 0 after it was merged into the symbol on its left
      std::int32_t previous, next;
      bool whole;  // a user-defined symbol, which is never merged
    };
    /// A possible merge. It is outdated if the two symbols no longer have `bytes` bytes in total.
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

    void add_candidate(std::int32_t left, std::int32_t right) {
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
      add_candidate(left.previous, best.left);
      add_candidate(best.left, left.next);
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

  PieceTable pieces_;
  std::unordered_map<std::string_view, Merged> merged_;
  Neighbours neighbours_;
};

}  // namespace

std::unique_ptr<PieceSegmentation> make_byte_pairs(const PieceModel& model, const PieceSegmentation::Bytes& bytes) {
  return std::make_unique<BytePairs>(model, bytes);
}

}  // namespace lyceum
