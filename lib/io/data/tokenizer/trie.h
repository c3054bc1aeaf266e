#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lyceum {

/// A set of keys with values, which finds all keys that a text begins with.
class Trie {
 public:
  Trie() { first_.fill(0); }
  /// `keys`: distinct keys with values ≥ 0. Empty keys are ignored.
  explicit Trie(std::vector<std::pair<std::string, std::int32_t>> keys) : Trie() {
    std::ranges::sort(keys);
    /// A node whose children are yet to be made from keys [begin, end), which share their first `depth` bytes
    struct Open {
      std::size_t node, begin, end, depth;
    };
    nodes_.push_back({});
    std::deque<Open> open{{0, 0, keys.size(), 0}};
    for (; !open.empty(); open.pop_front()) {
      auto [node, at, end, depth] = open.front();
      if (at < end && keys[at].first.size() == depth) {
        if (depth > 0) nodes_[node].value = keys[at].second;
        ++at;
      }
      nodes_[node].children = static_cast<std::uint32_t>(nodes_.size());
      while (at < end) {
        const char label = keys[at].first[depth];
        const std::size_t begin = at;
        while (at < end && keys[at].first[depth] == label) ++at;
        open.push_back({nodes_.size(), begin, at, depth + 1});
        nodes_.push_back({.label = static_cast<unsigned char>(label)});
        ++nodes_[node].child_count;
      }
    }
    for (std::uint32_t child = nodes_[0].children; child < nodes_[0].children + nodes_[0].child_count; ++child) {
      first_[nodes_[child].label] = child;
    }
  }

  /// Calls found(bytes, value) for every key with which `text` begins, in order of length. `bytes`: the length of the
  /// key.
  template <class Found>
  void prefixes(std::string_view text, const Found& found) const {
    if (text.empty()) return;
    std::uint32_t node = first_[static_cast<unsigned char>(text[0])];
    for (std::size_t at = 1; node != 0; ++at) {
      if (nodes_[node].value >= 0) found(at, nodes_[node].value);
      node = at < text.size() ? child(nodes_[node], static_cast<unsigned char>(text[at])) : 0;
    }
  }
  /// True if a key begins with this byte.
  bool begins(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }

 private:
  struct Node {
    /// −1: no key ends here.
    std::int32_t value = -1;
    std::uint32_t children = 0;  // index of the first child; children are consecutive and sorted by label
    std::uint16_t child_count = 0;
    unsigned char label = 0;
  };

  std::uint32_t child(const Node& node, unsigned char label) const {
    const auto begin = nodes_.begin() + node.children, end = begin + node.child_count;
    const auto at = std::ranges::lower_bound(begin, end, label, {}, &Node::label);
    return at != end && at->label == label ? static_cast<std::uint32_t>(at - nodes_.begin()) : 0;
  }

  std::vector<Node> nodes_;               // nodes_[0] is the root
  std::array<std::uint32_t, 256> first_;  // the root's child for each byte; 0: none
};

}  // namespace lyceum
