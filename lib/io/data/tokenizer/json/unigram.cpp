#include "io/data/tokenizer/json/unigram.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "io/data/tokenizer/trie.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

class Unigram : public SubwordModel {
 public:
  explicit Unigram(const nlohmann::json& json) {
    std::vector<std::pair<std::string, std::int32_t>> keys;
    double lowest = std::numeric_limits<double>::infinity();
    for (const nlohmann::json& entry : json.at("vocab")) {
      require_input(entry.is_array() && entry.size() == 2,
                    "an entry of Unigram's vocabulary is not a token with a score");
      const double score = entry[1];
      require_input(std::isfinite(score), "a score of Unigram's vocabulary is {}", score);
      keys.emplace_back(entry[0].get<std::string>(), static_cast<std::int32_t>(keys.size()));
      vocabulary_.add(keys.back().first, keys.back().second);
      scores_.push_back(score);
      lowest = std::min(lowest, score);
    }
    unknown_score_ = lowest - unknown_penalty;
    if (json.contains("unk_id") && !json.at("unk_id").is_null()) {
      unknown_ = exact_value<std::int32_t>(json.at("unk_id"));
      require_input(vocabulary_.contains(*unknown_), "Unigram's unk_id {} is not in its vocabulary of {}", *unknown_,
                    keys.size());
    }
    const bool says = json.contains("byte_fallback") && !json.at("byte_fallback").is_null();
    byte_fallback_ = says && json.at("byte_fallback").get<bool>();
    trie_ = Trie(std::move(keys));
  }

  /// Appends the tokens whose scores have the largest sum, found by the Viterbi algorithm. Adjacent unknown tokens are
  /// joined.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    const std::vector<Step> best = best_paths(word);
    std::vector<std::string_view> tokens;  // in reverse order
    bool follows_unknown = false;          // the token after this one is unknown
    for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
      const bool unknown = best[end].id == unknown_;
      const bool joins = unknown && follows_unknown;
      follows_unknown = unknown;
      const std::size_t begin = best[end].begin;
      if (joins) {
        tokens.back() = std::string_view(word.data() + begin, tokens.back().size() + end - begin);
      } else {
        tokens.push_back(word.substr(begin, end - begin));
      }
    }
    for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) append(*token, ids);
  }

 private:
  static constexpr double unknown_penalty = 10;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// The last token of the best segmentation up to an offset in the text.
  struct Step {
    std::size_t begin = none;
    double score = 0;  // sum over the segmentation
    std::int32_t id = -1;
  };

  std::vector<Step> best_paths(std::string_view word) const {
    std::vector<Step> best(word.size() + 1);
    const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
      const double sum = score + best[begin].score;
      if (best[end].begin == none || sum > best[end].score) best[end] = {begin, sum, id};
    };
    for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
      length = utf8_length(word, at);
      bool single = false;
      trie_.prefixes(word.substr(at), [&](std::size_t bytes, std::int32_t id) {
        offer(at, at + bytes, scores_[static_cast<std::size_t>(id)], id);
        single = single || bytes == length;
      });
      if (single) continue;
      require_input(unknown_.has_value(), "Unigram has no token for {} and no unk_id", word.substr(at, length));
      offer(at, at + length, unknown_score_, *unknown_);
    }
    return best;
  }

  void append(std::string_view token, std::vector<std::int32_t>& ids) const {
    if (const std::optional<std::int32_t> id = vocabulary_.id(token)) return ids.push_back(*id);
    if (const auto bytes = byte_fallback_ ? byte_tokens(token) : std::nullopt) {
      ids.insert(ids.end(), bytes->begin(), bytes->end());
    } else {
      ids.push_back(*unknown_);
    }
  }

  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<std::int32_t> unknown_;
  bool byte_fallback_ = false;
  Trie trie_;
};

}  // namespace

std::unique_ptr<SubwordModel> read_unigram(const nlohmann::json& json) { return std::make_unique<Unigram>(json); }

}  // namespace lyceum
