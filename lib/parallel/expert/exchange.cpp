#include "parallel/expert/exchange.h"

#include <numeric>

#include "kernels/permute.h"

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

/// Fills the segment orders from the counts of every source and local expert.
void arrange(ExpertExchange& exchange, const std::vector<std::int64_t>& counts, std::size_t ranks) {
  const std::size_t local = counts.size() / ranks;
  std::vector<std::int64_t> rows(local, 0);
  for (std::size_t r = 0; r < ranks; ++r) {
    exchange.receive_rows.push_back(0);
    for (std::size_t e = 0; e < local; ++e) {
      rows[e] += counts[r * local + e];
      exchange.receive_rows.back() += counts[r * local + e];
    }
  }
  auto segments = std::make_shared<SegmentTable>(std::move(rows));
  std::vector<std::int64_t> next(segments->view().begin.begin(), segments->view().begin.end());
  exchange.received_of_row.assign(static_cast<std::size_t>(segments->total()), -1);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t e = 0; e < local; ++e) {
      for (std::int64_t i = 0; i < counts[r * local + e]; ++i) {
        exchange.received_of_row[static_cast<std::size_t>(next[e])] = exchange.received();
        exchange.row_of_received.push_back(next[e]++);
      }
    }
  }
  exchange.segments = std::move(segments);
}

/// Makes the segments' order the sent order, for a group of one.
void send_straight(ExpertExchange& exchange) {
  for (std::int64_t& sent : exchange.sent_of_pair) sent = exchange.row_of_received[static_cast<std::size_t>(sent)];
  std::vector<std::int64_t> pair_of_row = std::move(exchange.received_of_row);
  for (std::int64_t& row : pair_of_row) {
    if (row >= 0) row = exchange.pair_of_sent[static_cast<std::size_t>(row)];
  }
  exchange.pair_of_sent = std::move(pair_of_row);
}

Tensor gather(const Stream& stream, const Tensor& x, const std::vector<std::int64_t>& source) {
  const Tensor y = Tensor::empty(stream, x.dtype(), {static_cast<std::int64_t>(source.size()), x.shape()[1]});
  dispatch_float(x.dtype(), [&]<class T>() {
    launch(stream, GatherRows<T>{.x = x.matrix<T>(), .source = source, .y = y.matrix<T>()});
  });
  return y;
}

}  // namespace

std::shared_ptr<const ExpertExchange> plan_exchange(const Stream& stream, const ProcessGroup& group,
                                                    const Placement& placement, const Tensor& index) {
  require(group.size() == placement.ranks(), "a placement over {} ranks on group {} of {}", placement.ranks(),
          group.name(), group.size());
  auto exchange = std::make_shared<ExpertExchange>();
  exchange->group = &group;
  exchange->tokens = index.shape()[0];
  exchange->top_k = index.shape()[1];
  exchange->pair_of_sent.resize(static_cast<std::size_t>(index.size()));
  exchange->sent_of_pair.resize(static_cast<std::size_t>(index.size()));
  std::vector<std::int64_t> begin(placement.owner.size() + 1);
  launch(stream, SortByExpert{.index = index.matrix<std::int32_t>(),
                              .order = placement.order,
                              .begin = begin,
                              .slot_pair = exchange->pair_of_sent,
                              .pair_slot = exchange->sent_of_pair});
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    exchange->send_rows.push_back(begin[static_cast<std::size_t>(placement.first[r + 1])] -
                                  begin[static_cast<std::size_t>(placement.first[r])]);
  }
  arrange(*exchange, exchange_counts(group, placement, begin), ranks);
  if (ranks == 1) send_straight(*exchange);
  return exchange;
}

Tensor exchange_forward(const Stream& stream, const ExpertExchange& exchange, const Tensor& sent) {
  if (exchange.group->size() == 1) return sent;
  const Tensor received = Tensor::empty(stream, sent.dtype(), {exchange.received(), sent.shape()[1]});
  {
    const ProfileScope timed(profile_of(stream), "all-to-all");
    exchange.group->all_to_all({.sent = sent.raw(),
                                .send_rows = exchange.send_rows,
                                .received = received.raw(),
                                .receive_rows = exchange.receive_rows,
                                .row_bytes = sent.shape()[1] * static_cast<std::int64_t>(size_of(sent.dtype()))});
  }
  return gather(stream, received, exchange.received_of_row);
}

Tensor exchange_back(const Stream& stream, const ExpertExchange& exchange, const Tensor& rows) {
  if (exchange.group->size() == 1) return rows;
  const Tensor received = gather(stream, rows, exchange.row_of_received);
  const auto pairs = static_cast<std::int64_t>(exchange.pair_of_sent.size());
  const Tensor sent = Tensor::empty(stream, rows.dtype(), {pairs, rows.shape()[1]});
  const ProfileScope timed(profile_of(stream), "all-to-all");
  exchange.group->all_to_all({.sent = received.raw(),
                              .send_rows = exchange.receive_rows,
                              .received = sent.raw(),
                              .receive_rows = exchange.send_rows,
                              .row_bytes = rows.shape()[1] * static_cast<std::int64_t>(size_of(rows.dtype()))});
  return sent;
}

}  // namespace lyceum
