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

/// A rank's node in the binomial tree over 0 … ranks − 1 with root 0. A node and its descendants are consecutive ranks.
struct TreeNode {
  TreeNode(int rank, int ranks);

  int parent = -1;              // -1 for the root
  std::vector<int> children{};  // ascending; child c and its descendants are [children[c], end_of(c))
  int end = 0;                  // one past the last descendant
  int end_of(std::size_t child) const { return child + 1 < children.size() ? children[child + 1] : end; }
};

/// True for groups of more than 8 ranks, in which small data is sent along a tree instead of between all pairs.
inline bool large_group(int ranks) { return ranks > 8; }
/// Returns the number of messages that a rank sends in a TreeExchange.
std::int64_t messages_of_tree(int rank, int ranks);

/// Collects the same number of bytes from every rank along a tree and distributes a result from its root. A rank sends
/// at most 1 + ⌈log2(ranks)⌉ messages.
class TreeExchange final : public Messages {
 public:
  /// Computes the result from the collected bytes, which are in rank order.
  using AtRoot = std::function<void(std::span<const std::byte> collected)>;
  /// Starts the exchange. `own` is copied, and may overlap `result`. `at_root` is called on rank 0 of the group and
  /// writes to `result`, which is then distributed to the `result` of every rank.
  TreeExchange(std::shared_ptr<Communicator> communicator, const Operation& operation, std::span<const std::byte> own,
               std::span<std::byte> result, AtRoot at_root);

 private:
  enum class Phase { collecting, awaiting_result, handed_down };
  bool next() override;

  std::span<std::byte> result_;
  AtRoot at_root_;
  int tag_;
  TreeNode node_;
  std::vector<std::byte> collected_;  // bytes of this rank and its descendants
  Phase phase_ = Phase::collecting;
};

/// The texts of several ranks, concatenated.
struct JoinedTexts {
  std::vector<std::int64_t> lengths{};
  std::string bytes{};

  /// Returns the separate texts.
  std::vector<std::string> split() const;
};

/// Collects every rank's text on `root` along a tree. Every rank except the root sends two messages (lengths, texts),
/// and a rank receives at most 2 · ⌈log2(ranks)⌉.
class TextGather final : public Messages {
 public:
  static constexpr std::int64_t messages = 2;  // sent by each rank except the root
  /// Starts the gather. `gathered` becomes the texts of all ranks in rank order on `root`; its contents on other ranks
  /// are unspecified.
  TextGather(std::shared_ptr<Communicator> communicator, const Operation& operation, const std::string& text, int root,
             std::shared_ptr<JoinedTexts> gathered);

 private:
  enum class Phase { lengths, texts, sent };
  bool next() override;
  void receive_texts();
  void send_up();
  void put_in_rank_order();
  /// Returns the rank of the group at a node of the tree, whose node 0 is `root`.
  int rank_at(int node) const { return (node + root_) % communicator().size(); }

  int root_;
  std::shared_ptr<JoinedTexts> gathered_;  // the texts of this rank's node and its descendants
  int self_;                               // this rank's node
  TreeNode node_;
  Phase phase_ = Phase::lengths;
};

}  // namespace lyceum
