#include "parallel/comm/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/comm/carrier.h"

namespace lyceum {
namespace {

/// The rows of several tensors that one rank sends to another, without empty ones: `single` has those that are sent
/// alone, `packed` those that are sent together in one message.
template <class Byte>
struct RowMessages {
  std::vector<std::span<Byte>> single, packed;
};

/// Divides the rows that all tensors have for one rank among messages, in a group of `ranks` ranks.
template <class Byte>
RowMessages<Byte> divide(const std::vector<std::span<Byte>>& tensors, std::size_t ranks) {
  RowMessages<Byte> messages;
  for (const std::span<Byte> rows : tensors) {
    if (rows.empty()) continue;
    const bool small = std::ssize(rows) <= RowExchange::packed_bytes(static_cast<std::int64_t>(ranks));
    (small ? messages.packed : messages.single).push_back(rows);
  }
  if (messages.packed.size() == 1) messages.single.push_back(std::exchange(messages.packed, {}).front());
  return messages;
}

template <class Byte>
std::size_t total_bytes(const std::vector<std::span<Byte>>& all) {
  std::size_t bytes = 0;
  for (const std::span<Byte> rows : all) bytes += rows.size();
  return bytes;
}

/// The rows of each exchange for every rank: [exchanges][ranks].
template <class Byte>
using RowTable = std::vector<std::vector<std::span<Byte>>>;

template <class Byte, class Memory>
RowTable<Byte> row_table(std::span<const ProcessGroup::AllToAll> exchanges, const Memory& memory_and_rows) {
  RowTable<Byte> all;
  for (const ProcessGroup::AllToAll& exchange : exchanges) {
    const auto [memory, rows] = memory_and_rows(exchange);
    const std::vector<std::int64_t> at = row_offsets(rows, exchange.row_bytes);
    auto& by_rank = all.emplace_back();
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      by_rank.push_back({memory + at[rank], static_cast<std::size_t>(rows[rank] * exchange.row_bytes)});
    }
  }
  return all;
}

RowTable<const std::byte> sent_rows(std::span<const ProcessGroup::AllToAll> exchanges) {
  return row_table<const std::byte>(exchanges, [](const ProcessGroup::AllToAll& exchange) {
    return std::pair(static_cast<const std::byte*>(exchange.sent), exchange.send_rows);
  });
}

RowTable<std::byte> received_rows(std::span<const ProcessGroup::AllToAll> exchanges) {
  return row_table<std::byte>(exchanges, [](const ProcessGroup::AllToAll& exchange) {
    return std::pair(static_cast<std::byte*>(exchange.received), exchange.receive_rows);
  });
}

/// Returns the rows of all exchanges for one rank.
template <class Byte>
std::vector<std::span<Byte>> of_rank(const RowTable<Byte>& rows, std::size_t rank) {
  std::vector<std::span<Byte>> all;
  for (const auto& by_rank : rows) all.push_back(by_rank[rank]);
  return all;
}

}  // namespace

RowExchange::RowExchange(std::shared_ptr<Communicator> group, const Operation& operation,
                         std::span<const ProcessGroup::AllToAll> exchanges)
    : Messages(std::move(group), operation) {
  const auto self = static_cast<std::size_t>(communicator().rank()),
             ranks = static_cast<std::size_t>(communicator().size());
  const RowTable<const std::byte> sent = sent_rows(exchanges);
  const RowTable<std::byte> received = received_rows(exchanges);
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (!sent[i][self].empty()) std::memcpy(received[i][self].data(), sent[i][self].data(), sent[i][self].size());
  }
  received_.reserve(ranks);  // messages must not move
  sent_.reserve(ranks);
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t from = (self + ranks - step) % ranks;
    auto [single, packed] = divide(of_rank(received, from), ranks);
    for (const std::span<std::byte> rows : single) {
      receive(rows.data(), std::ssize(rows), static_cast<int>(from), all_to_all_tag);
    }
    if (packed.empty()) continue;
    Packed& one = received_.emplace_back(Packed{std::vector<std::byte>(total_bytes(packed)), std::move(packed)});
    receive(one.message.data(), std::ssize(one.message), static_cast<int>(from), all_to_all_tag);
  }
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks;
    const auto [single, packed] = divide(of_rank(sent, to), ranks);
    for (const std::span<const std::byte> rows : single) {
      send(rows.data(), std::ssize(rows), static_cast<int>(to), all_to_all_tag);
    }
    if (packed.empty()) continue;
    std::vector<std::byte>& message = sent_.emplace_back();
    for (const std::span<const std::byte> rows : packed) message.insert(message.end(), rows.begin(), rows.end());
    send(message.data(), std::ssize(message), static_cast<int>(to), all_to_all_tag);
  }
}

bool RowExchange::next() {
  for (const Packed& packed : received_) {
    const std::byte* from = packed.message.data();
    for (const std::span<std::byte> rows : packed.rows) {
      std::memcpy(rows.data(), from, rows.size());
      from += rows.size();
    }
  }
  received_.clear();
  return false;
}

std::int64_t messages_of_exchange(int rank, std::span<const ProcessGroup::AllToAll> exchanges) {
  const RowTable<const std::byte> sent = sent_rows(exchanges);
  std::int64_t messages = 0;
  for (std::size_t to = 0; !sent.empty() && to < sent[0].size(); ++to) {
    if (std::cmp_equal(to, rank)) continue;
    const auto [single, packed] = divide(of_rank(sent, to), sent[0].size());
    messages += std::ssize(single) + (packed.empty() ? 0 : 1);
  }
  return messages;
}

}  // namespace lyceum
