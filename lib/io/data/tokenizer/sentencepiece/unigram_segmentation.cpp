#include "io/data/tokenizer/sentencepiece/unigram_segmentation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/data/tokenizer/sentencepiece/piece_table.h"
#include "io/data/tokenizer/trie.h"

namespace lyceum {

namespace {

using Tokens = std::vector<std::int32_t>;

/// Finds the segmentation whose scores have the largest sum. [Kudo 2018; SentencePiece, unigram_model.cc]
///
/// Scores are summed in f32 from the beginning of the text, as SentencePiece does. By rounding, the choice between two
/// segmentations can depend on all of the text before it. Therefore a text cannot be cut into parts.
class UnigramSegmentation : public PieceSegmentation {
 public:
  UnigramSegmentation(const PieceModel& model, const Bytes& bytes) : pieces_(model, bytes) {
    float lowest = std::numeric_limits<float>::max();
    std::vector<std::pair<std::string, std::int32_t>> keys;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
      const auto& [text, score, kind] = model.pieces[id];
      require_input(std::isfinite(score), "its piece {} has the score {}", id, score);
      if (kind == PieceModel::normal) lowest = std::min(lowest, score);
      const bool user_defined = kind == PieceModel::user_defined;
      if (kind == PieceModel::normal || user_defined) keys.emplace_back(text, static_cast<std::int32_t>(id));
      // Makes a user-defined symbol better than any other segmentation of its text.
      scores_.push_back(user_defined ? static_cast<float>(0.1 * (static_cast<int>(text.size()) - 1)) : score);
    }
    unknown_score_ = lowest - unknown_penalty;
    trie_ = Trie(std::move(keys));
  }

  void encode(std::string_view text, WordCache*, Tokens& tokens) const override {
    std::vector<Step> best(1);
    std::size_t begin = 0;  // offset in the text that best[0] stands for; all segmentations have a boundary there
    std::size_t reach = 0;  // the last offset that a step has reached
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      if (at == reach && at - begin >= many_bytes) {
        append_best(text.substr(begin, at - begin), best, tokens);
        best.assign(1, {.score = best[at - begin].score});
        begin = at;
      }
      length = piece_character_bytes(text, at);
      if (std::abs(best[at - begin].score) > large_score) {  // keeps the sums precise
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

  /// The last piece of the best segmentation up to an offset in the text.
  struct Step {
    float score = 0;          // sum over the segmentation
    std::uint32_t bytes = 0;  // length of the piece
    std::int32_t id = -1;
  };

  /// Appends the tokens of `text`, of which best[i] describes the first i bytes.
  void append_best(std::string_view text, const std::vector<Step>& best, Tokens& tokens) const {
    std::vector<std::size_t> ends;
    for (std::size_t end = text.size(); end > 0; end -= best[end].bytes) ends.push_back(end);
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      pieces_.append(text.substr(*end - best[*end].bytes, best[*end].bytes), best[*end].id, tokens);
    }
  }

  PieceTable pieces_;
  std::vector<float> scores_;  // indexed by id
  float unknown_score_ = 0;
  Trie trie_;
};

}  // namespace

std::unique_ptr<PieceSegmentation> make_unigram_segmentation(const PieceModel& model,
                                                             const PieceSegmentation::Bytes& bytes) {
  return std::make_unique<UnigramSegmentation>(model, bytes);
}

}  // namespace lyceum
