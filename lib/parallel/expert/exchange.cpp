#include "parallel/expert/exchange.h"

#include <numeric>

#include "core/copy.h"
#include "kernels/permute.h"
#include "parallel/expert/segmented_rows.h"

namespace lyceum {

namespace {

/// counts[r · local + e]: rows that source rank r sends for local expert e.
std::vector<std::int64_t> exchange_counts(const ProcessGroup& group, const Placement& placement,
                                          const std::vector<std::int64_t>& begin) {
  const auto ranks = static_cast<std::size_t>(placement.ranks());
  std::vector<std::int64_t> sent(begin.size() - 1);
  for (std::size_t e = 0; e < sent.size(); ++e) sent[e] = begin[e + 1] - begin[e];
  std::vector<std::int64_t> send_counts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) send_counts[r] = placement.first[r + 1] - placement.first[r];
  const std::int64_t local = send_counts[static_cast<std::size_t>(group.rank())];
  const std::vector<std::int64_t> receive_counts(ranks, local);
  std::vector<std::int64_t> received(ranks * static_cast<std::size_t>(local));
  group.all_to_all(ProcessGroup::NumbersToAll{
      .sent = sent, .send_counts = send_counts, .received = received, .receive_counts = receive_counts});
  return received;
}

/// Uninitialised.
Tensor numbers(const Stream& stream, std::int64_t count) { return Tensor::empty(stream, DType::i64, {count}); }

/// through[map[i]], −1 where map[i] is.
Tensor compose(const Stream& stream, const Tensor& map, const Tensor& through) {
  const Tensor y = numbers(stream, map.size());
  launch(stream, ComposeIndices{.map = map.span<const std::int64_t>(),
                                .through = through.span<const std::int64_t>(),
                                .y = y.span<std::int64_t>()});
  return y;
}

/// A group of one sends straight into segments: their order is the sent order.
void send_straight(const Stream& stream, ExpertExchange& exchange, const SegmentedRows& rows) {
  exchange.sent_of_pair = compose(stream, exchange.sent_of_pair, rows.segment_of_arrived);
  exchange.pair_of_sent = compose(stream, rows.arrived_of_segment, exchange.pair_of_sent);
}

/// To and from the ranks of `group`, several of them. begin: where the sorted pairs of each expert begin.
SegmentedRows exchange_rows(const Stream& stream, const Placement& placement, const std::vector<std::int64_t>& begin,
                            ExpertExchange& exchange) {
  const auto ranks = static_cast<std::size_t>(placement.ranks());
  exchange.pair_of_sent = exchange.pair_of_sent.slice(0, begin.back());
  for (std::size_t r = 0; r < ranks; ++r) {
    exchange.send_rows.push_back(begin[static_cast<std::size_t>(placement.first[r + 1])] -
                                 begin[static_cast<std::size_t>(placement.first[r])]);
  }
  const std::vector<std::int64_t> counts = exchange_counts(*exchange.group, placement, begin);
  const std::size_t local = counts.size() / ranks;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto from = counts.begin() + static_cast<std::ptrdiff_t>(r * local);
    exchange.receive_rows.push_back(std::accumulate(from, from + static_cast<std::ptrdiff_t>(local), std::int64_t{0}));
  }
  return into_segments(stream, counts, local);
}

/// Of a group of one.
SegmentedRows own_rows(const Stream& stream, const Tensor& begin, std::int64_t pairs) {
  const std::int64_t experts = begin.size() - 1;
  if (asynchronous(stream)) return into_segments(stream, begin, pairs, experts);
  std::vector<std::int64_t> counts = values_of<std::int64_t>(stream, begin);
  std::adjacent_difference(counts.begin(), counts.end(), counts.begin());
  return into_segments(stream, std::span(counts).subspan(1), static_cast<std::size_t>(experts));
}

/// `group`: none where all experts are on this rank.
std::shared_ptr<const ExpertExchange> planned(const Stream& stream, const ProcessGroup* group,
                                              const Placement& placement, const Tensor& index, std::int64_t others) {
  auto exchange = std::make_shared<ExpertExchange>();
  exchange->group = group;
  exchange->tokens = index.shape()[0];
  exchange->top_k = index.shape()[1];
  exchange->pair_of_sent = numbers(stream, index.size());
  exchange->sent_of_pair = numbers(stream, index.size());
  const Tensor begin = numbers(stream, placement.experts() + 1);
  const Tensor order = tensor_of(stream, {placement.experts()}, placement.order);
  launch(stream, SortByExpert{.index = index.matrix<std::int32_t>(),
                              .order = order.span<const std::int32_t>(),
                              .begin = begin.span<std::int64_t>(),
                              .slot_pair = exchange->pair_of_sent.span<std::int64_t>(),
                              .pair_slot = exchange->sent_of_pair.span<std::int64_t>(),
                              .others = others});
  const SegmentedRows rows = exchange->alone()
                                 ? own_rows(stream, begin, index.size())
                                 : exchange_rows(stream, placement, values_of<std::int64_t>(stream, begin), *exchange);
  exchange->segments = rows.segments;
  if (exchange->alone()) {
    send_straight(stream, *exchange, rows);
  } else {
    exchange->received_of_row = rows.arrived_of_segment;
    exchange->row_of_received = rows.segment_of_arrived;
  }
  return exchange;
}

}  // namespace

std::shared_ptr<const ExpertExchange> plan_exchange(const Stream& stream, const ProcessGroup& group,
                                                    const Placement& placement, const Tensor& index,
                                                    std::int64_t others) {
  require(group.size() == placement.ranks(), "a placement over {} ranks on group {} of {}", placement.ranks(),
          group.name(), group.size());
  return planned(stream, &group, placement, index, others);
}

std::shared_ptr<const ExpertExchange> plan_exchange(const Stream& stream, std::int64_t experts, const Tensor& index) {
  return planned(stream, nullptr, Placement::contiguous(experts, 1), index, 0);
}

Tensor exchange_forward(const Stream& stream, const ExpertExchange& exchange, const Tensor& sent) {
  if (exchange.alone()) return sent;
  const Tensor received = Tensor::empty(stream, sent.dtype(), {exchange.row_of_received.size(), sent.shape()[1]});
  {
    const ProfileScope timed(profile_of(stream), "all-to-all");
    exchange.group->all_to_all({.sent = sent.raw(),
                                .send_rows = exchange.send_rows,
                                .received = received.raw(),
                                .receive_rows = exchange.receive_rows,
                                .row_bytes = sent.shape()[1] * static_cast<std::int64_t>(size_of(sent.dtype()))});
  }
  return gather_rows(stream, received, exchange.received_of_row);
}

Tensor exchange_back(const Stream& stream, const ExpertExchange& exchange, const Tensor& rows) {
  if (exchange.alone()) return rows;
  const Tensor received = gather_rows(stream, rows, exchange.row_of_received);
  const Tensor sent = Tensor::empty(stream, rows.dtype(), {exchange.pair_of_sent.size(), rows.shape()[1]});
  const ProfileScope timed(profile_of(stream), "all-to-all");
  exchange.group->all_to_all({.sent = received.raw(),
                              .send_rows = exchange.receive_rows,
                              .received = sent.raw(),
                              .receive_rows = exchange.send_rows,
                              .row_bytes = rows.shape()[1] * static_cast<std::int64_t>(size_of(rows.dtype()))});
  return sent;
}

}  // namespace lyceum
