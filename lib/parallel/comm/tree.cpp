#include "parallel/comm/tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lyceum {

TreeNode::TreeNode(int rank, int ranks) : end(ranks) {
  for (int step = 1; step < ranks; step *= 2) {
    if (rank & step) {
      parent = rank - step;
      end = std::min(rank + step, ranks);
      break;
    }
    if (rank + step < ranks) children.push_back(rank + step);
  }
}

std::int64_t messages_of_tree(int rank, int ranks) {
  const TreeNode node(rank, ranks);
  return std::ssize(node.children) + (node.parent >= 0 ? 1 : 0);
}

TreeExchange::TreeExchange(std::shared_ptr<Communicator> of, const Operation& operation, std::span<const std::byte> own,
                           std::span<std::byte> result, AtRoot at_root)
    : Messages(std::move(of), operation),
      result_(result),
      at_root_(std::move(at_root)),
      tag_(communicator().next_reduce_tag()),
      node_(communicator().rank(), communicator().size()),
      collected_(static_cast<std::size_t>(node_.end - communicator().rank()) * own.size()) {
  std::ranges::copy(own, collected_.begin());
  const std::int64_t bytes = std::ssize(own);
  for (std::size_t c = 0; c < node_.children.size(); ++c) {
    const int child = node_.children[c];
    receive(collected_.data() + (child - communicator().rank()) * bytes, (node_.end_of(c) - child) * bytes, child,
            tag_);
  }
  if (node_.children.empty()) next();
}

bool TreeExchange::next() {
  if (phase_ == Phase::collecting) {
    phase_ = Phase::awaiting_result;
    if (node_.parent >= 0) {
      send(collected_.data(), std::ssize(collected_), node_.parent, tag_);
      receive(result_.data(), std::ssize(result_), node_.parent, tag_);
      return true;
    }
    at_root_(collected_);
  }
  if (phase_ == Phase::handed_down) return false;
  phase_ = Phase::handed_down;
  for (const int child : node_.children) send(result_.data(), std::ssize(result_), child, tag_);
  return pending();
}

std::vector<std::string> JoinedTexts::split() const {
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t length : lengths) {
    texts.push_back(bytes.substr(begin, static_cast<std::size_t>(length)));
    begin += static_cast<std::size_t>(length);
  }
  return texts;
}

TextGather::TextGather(std::shared_ptr<Communicator> of, const Operation& operation, const std::string& text, int root,
                       std::shared_ptr<JoinedTexts> gathered)
    : Messages(std::move(of), operation),
      root_(root),
      gathered_(std::move(gathered)),
      self_((communicator().rank() - root + communicator().size()) % communicator().size()),
      node_(self_, communicator().size()) {
  gathered_->bytes = text;
  gathered_->lengths.assign(static_cast<std::size_t>(node_.end - self_), std::ssize(text));
  for (std::size_t c = 0; c < node_.children.size(); ++c) {
    const int child = node_.children[c], below = node_.end_of(c) - child;
    receive(&gathered_->lengths[static_cast<std::size_t>(child - self_)], below * std::int64_t{sizeof(std::int64_t)},
            rank_at(child), gather_tag);
  }
  if (node_.children.empty()) send_up();
}

bool TextGather::next() {
  if (phase_ == Phase::lengths) {
    receive_texts();
  } else if (phase_ == Phase::texts) {
    send_up();
  } else {
    return false;
  }
  return pending();
}

void TextGather::receive_texts() {
  phase_ = Phase::texts;
  const auto begin = gathered_->lengths.begin();
  const auto bytes_before = [&](int node) { return std::accumulate(begin, begin + (node - self_), std::int64_t{0}); };
  gathered_->bytes.resize(static_cast<std::size_t>(bytes_before(node_.end)));
  for (std::size_t c = 0; c < node_.children.size(); ++c) {
    const int child = node_.children[c];
    const std::int64_t first = bytes_before(child), bytes = bytes_before(node_.end_of(c)) - first;
    receive(gathered_->bytes.data() + first, bytes, rank_at(child), gather_tag);
  }
}

void TextGather::send_up() {
  phase_ = Phase::sent;
  if (self_ == 0) return put_in_rank_order();
  const int parent = rank_at(node_.parent);
  send(gathered_->lengths.data(), std::ssize(gathered_->lengths) * std::int64_t{sizeof(std::int64_t)}, parent,
       gather_tag);
  send(gathered_->bytes.data(), std::ssize(gathered_->bytes), parent, gather_tag);
}

void TextGather::put_in_rank_order() {
  const auto zero = gathered_->lengths.end() - root_;  // the length of rank 0's text
  const std::int64_t bytes_before = std::accumulate(gathered_->lengths.begin(), zero, std::int64_t{0});
  std::ranges::rotate(gathered_->bytes, gathered_->bytes.begin() + bytes_before);
  std::ranges::rotate(gathered_->lengths, zero);
}

}  // namespace lyceum
