#include "io/data/tokenizer/json/bpe.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "core/error.h"
#include "io/text/json.h"
#include "io/text/utf8.h"

namespace lyceum {

namespace {

/// The merge of two adjacent tokens: the token that they become, and its rank. Merges with lower ranks take precedence.
struct Merge {
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t rank = never;
  std::int32_t id = -1;
};

/// Maps two tokens to their merge: a hash table with open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges) : slots_(std::bit_ceil(std::max<std::size_t>(16, 2 * merges))) {}

  void set(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[slot_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }
  Merge find(std::int32_t left, std::int32_t right) const { return slots_[slot_of(key_of(left, right))].merge; }

 private:
  static constexpr std::uint64_t free = std::numeric_limits<std::uint64_t>::max();
  struct Slot {
    std::uint64_t key = free;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  /// Returns the index of the slot with this key, or of the free slot for it.
  std::size_t slot_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
    while (slots_[at].key != key && slots_[at].key != free) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

/// Merges adjacent tokens of ids[begin …] in place until no merge applies: those with the lowest rank first, and of
/// equal ranks the leftmost first.
class Merging {
 public:
  Merging(const MergeTable& merges, std::vector<std::int32_t>& ids, std::size_t begin)
      : merges_(merges), ids_(ids), begin_(begin) {}

  void run() {
    constexpr std::size_t few = 32;
    if (ids_.size() - begin_ <= few) {
      merge_by_search();
    } else {
      merge_by_heap();
    }
  }

 private:
  /// Examines all pairs for each merge, which is fastest for few tokens.
  void merge_by_search() {
    ranks_.clear();
    for (std::size_t i = begin_; i + 1 < ids_.size(); ++i) ranks_.push_back(merges_.find(ids_[i], ids_[i + 1]));
    while (!ranks_.empty()) {
      const auto best = std::ranges::min_element(ranks_, {}, &Merge::rank);
      if (best->rank == Merge::never) return;
      const auto at = static_cast<std::size_t>(best - ranks_.begin());
      ids_[begin_ + at] = best->id;
      ids_.erase(ids_.begin() + static_cast<std::ptrdiff_t>(begin_ + at + 1));
      ranks_.erase(best);
      if (at < ranks_.size()) ranks_[at] = merges_.find(ids_[begin_ + at], ids_[begin_ + at + 1]);
      if (at > 0) ranks_[at - 1] = merges_.find(ids_[begin_ + at - 1], ids_[begin_ + at]);
    }
  }

  struct Node {
    std::int32_t id, previous, next;  // id −1: merged into another node; previous or next −1: none
  };
  /// A possible merge. It is outdated if one of its tokens has changed.
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;  // index of the node of its left token
    std::int32_t left, right, id;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };

  /// Keeps the possible merges in a heap and the tokens in a linked list: O(n log n).
  void merge_by_heap() {
    nodes_.clear();
    for (std::size_t i = begin_; i < ids_.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i - begin_);
      nodes_.push_back({ids_[i], at - 1, i + 1 < ids_.size() ? at + 1 : -1});
    }
    for (std::int32_t at = 0; at < std::ssize(nodes_); ++at) add_candidate(at);
    while (!heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      Node& left = nodes_[static_cast<std::size_t>(best.at)];
      if (left.id != best.left || left.next < 0) continue;  // the candidate is outdated
      Node& right = nodes_[static_cast<std::size_t>(left.next)];
      if (right.id != best.right) continue;
      left.id = best.id;
      left.next = right.next;
      right.id = -1;
      if (left.next >= 0) nodes_[static_cast<std::size_t>(left.next)].previous = best.at;
      add_candidate(left.previous);
      add_candidate(best.at);
    }
    ids_.resize(begin_);
    for (std::int32_t at = 0; at >= 0; at = nodes_[static_cast<std::size_t>(at)].next) {
      ids_.push_back(nodes_[static_cast<std::size_t>(at)].id);
    }
  }

  void add_candidate(std::int32_t at) {
    if (at < 0) return;
    const Node& left = nodes_[static_cast<std::size_t>(at)];
    if (left.next < 0) return;
    const std::int32_t right = nodes_[static_cast<std::size_t>(left.next)].id;
    const Merge merge = merges_.find(left.id, right);
    if (merge.rank != Merge::never) heap_.push({merge.rank, at, left.id, right, merge.id});
  }

  const MergeTable& merges_;
  std::vector<std::int32_t>& ids_;
  std::size_t begin_;
  std::vector<Merge> ranks_;
  std::vector<Node> nodes_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap_;
};

class Bpe : public SubwordModel {
 public:
  explicit Bpe(const nlohmann::json& json) : merges_(json.at("merges").size()) {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const bool given = json.contains(key) && !json.at(key).is_null() && json.at(key) != "";
      require_input(!given, "BPE with a {} is not supported", key);
    }
    const bool drops = json.contains("dropout") && !json.at("dropout").is_null() && json.at("dropout") != 0;
    require_input(!drops, "BPE with dropout is not supported: an encoding would be random");
    for (const auto& [token, id] : json.at("vocab").items()) vocabulary_.add(token, exact_value<std::int64_t>(id));
    read_merges(json.at("merges"));
    const auto flag = [&](const char* key) {
      return json.contains(key) && !json.at(key).is_null() && json.at(key).get<bool>();
    };
    fuse_unknown_ = flag("fuse_unk");
    byte_fallback_ = flag("byte_fallback");
    ignore_merges_ = flag("ignore_merges");
    if (json.contains("unk_token") && !json.at("unk_token").is_null()) {
      unknown_ = token_id(json.at("unk_token").get<std::string>(), "unk_token");
    }
    characters_.assign(0x10000, -1);
    for (std::size_t id = 0; id < vocabulary_.tokens().size(); ++id) {
      const std::string& token = vocabulary_.tokens()[id];
      if (token.empty() || utf8_length(token, 0) != token.size()) continue;
      const char32_t character = character_at(token, 0);
      if (character < characters_.size()) characters_[character] = static_cast<std::int32_t>(id);
    }
  }

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override {
    if (ignore_merges_) {
      if (const std::optional<std::int32_t> whole = vocabulary_.id(word)) return ids.push_back(*whole);
    }
    const std::size_t begin = ids.size();
    add_characters(word, ids);
    Merging(merges_, ids, begin).run();
  }

 private:
  std::int32_t token_id(const std::string& token, const char* what) const {
    const std::optional<std::int32_t> id = vocabulary_.id(token);
    require_input(id.has_value(), "BPE's {} {} is not in its vocabulary", what, excerpt(token));
    return *id;
  }

  void read_merges(const nlohmann::json& list) {
    std::uint32_t rank = 0;
    for (const nlohmann::json& merge : list) {
      std::string left, right;
      if (merge.is_string()) {  // "left right", in files of earlier versions
        const std::string both = merge;
        if (both.starts_with("#version")) continue;
        const std::size_t space = both.find(' ');
        require_input(space != std::string::npos && both.find(' ', space + 1) == std::string::npos,
                      "the merge {} of BPE does not have two tokens", excerpt(both));
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else {
        require_input(merge.is_array() && merge.size() == 2, "a merge of BPE does not have two tokens");
        left = merge[0];
        right = merge[1];
      }
      const std::int32_t merged = token_id(left + right, "merged token");
      merges_.set(token_id(left, "merged token"), token_id(right, "merged token"), {.rank = rank++, .id = merged});
    }
  }

  std::optional<std::int32_t> character_id(std::string_view character) const {
    const char32_t c = character_at(character, 0);
    if (c >= characters_.size()) return vocabulary_.id(character);
    return characters_[c] < 0 ? std::nullopt : std::optional(characters_[c]);
  }

  /// Appends the tokens that are merged afterwards. Each character becomes its own token if the vocabulary has one;
  /// else the tokens of its bytes, if byte_fallback; else the unknown token, if there is one; else nothing.
  void add_characters(std::string_view word, std::vector<std::int32_t>& ids) const {
    bool pending = false;  // an unknown token is yet to be appended
    const auto put_pending = [&] {
      if (std::exchange(pending, false)) ids.push_back(*unknown_);
    };
    for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
      length = utf8_length(word, at);
      const std::string_view character = word.substr(at, length);
      if (const std::optional<std::int32_t> id = character_id(character)) {
        put_pending();
        ids.push_back(*id);
        continue;
      }
      if (const auto bytes = byte_fallback_ ? byte_tokens(character) : std::nullopt) {
        ids.insert(ids.end(), bytes->begin(), bytes->end());  // before a pending unknown token, as in `tokenizers`
      } else if (unknown_) {
        if (!fuse_unknown_) put_pending();
        pending = true;
      }
    }
    put_pending();
  }

  MergeTable merges_;
  std::vector<std::int32_t> characters_;  // the token of each character below U+10000; −1: none
  std::optional<std::int32_t> unknown_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace

std::unique_ptr<SubwordModel> read_bpe(const nlohmann::json& json) { return std::make_unique<Bpe>(json); }

}  // namespace lyceum
