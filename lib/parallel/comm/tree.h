#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/pending_state.h"

namespace lyceum {

/// A rank's place in the binomial tree over 0 … ranks − 1 whose top is 0. A rank and those below it are consecutive.
struct TreePlace {
  TreePlace(int rank, int ranks);

  int parent = -1;              // of the top: none
  std::vector<int> children{};  // in order; the one at `c` and those below it are [children[c], end_of(c))
  int end = 0;                  // behind the last below this rank
  int end_of(std::size_t child) const { return child + 1 < children.size() ? children[child + 1] : end; }
};

/// Whether messages between all ranks of a group are too many where they are small: of more than 8 ranks.
bool large_group(const Communicator& communicator);

/// Collects as many bytes of every rank along a tree, and hands a result down from its top: a rank sends at most
/// 1 + ⌈log2(ranks)⌉ messages.
class TreeExchange final : public Messages {
 public:
  /// Makes the result of what was collected, in rank order.
  using AtTop = std::function<void(std::span<const std::byte> collected)>;
  /// Starts it. `own` is copied, and may lie where `result` does. `at_top` is called on the group's rank 0 and writes
  /// to `result`, which then becomes that of every rank.
  TreeExchange(std::shared_ptr<Communicator> communicator, const Operation& operation, std::span<const std::byte> own,
               std::span<std::byte> result, AtTop at_top);

 private:
  enum class Phase { collecting, awaiting_result, handed_down };
  bool next() override;

  std::span<std::byte> result_;
  AtTop at_top_;
  int tag_;
  TreePlace place_;
  std::vector<std::byte> collected_;  // of this rank and those below it
  Phase phase_ = Phase::collecting;
};

/// Texts of all ranks, one behind the other.
struct JoinedTexts {
  std::vector<std::int64_t> lengths{};
  std::string bytes{};

  std::vector<std::string> parted() const;
};

/// Brings every rank's text to `root` along a tree: a rank sends two messages and receives at most 2 · ⌈log2(ranks)⌉.
class TextGather final : public Messages {
 public:
  /// Starts it. `gathered` becomes all texts in rank order on `root`, and something unspecified on the others.
  TextGather(std::shared_ptr<Communicator> communicator, const Operation& operation, const std::string& text, int root,
             std::shared_ptr<JoinedTexts> gathered);

 private:
  enum class Phase { lengths, texts, sent };
  bool next() override;
  void receive_texts();
  void send_up();
  void put_in_rank_order();
  /// The rank of the group at a place of the tree, whose top is the root.
  int rank_at(int place) const { return (place + root_) % communicator().size(); }

  int root_;
  std::shared_ptr<JoinedTexts> gathered_;  // from this rank's place in the tree on
  int self_;                               // that place
  TreePlace place_;
  Phase phase_ = Phase::lengths;
};

}  // namespace lyceum
