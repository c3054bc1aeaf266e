#include "parallel/expert/token_exchange.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/copy.h"
#include "kernels/choices.h"
#include "kernels/permute.h"
#include "parallel/comm/turns.h"
#include "parallel/expert/gather_rows.h"

namespace lyceum {

namespace {

/// Multiplies the averages per token by the number of tokens.
std::vector<double> of_all(std::vector<double> averages, std::int64_t tokens) {
  for (double& average : averages) average *= static_cast<double>(tokens);
  return averages;
}

/// The number of rows and of pairs (token, choice) for each rank: [ranks], on the host.
struct Counts {
  std::vector<std::int64_t> rows, pairs;
};

/// Collective. Sends each rank the two counts of this rank for it, and returns those of all ranks for this one.
Counts swapped(const ProcessGroup& group, const Counts& own) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> sent, received(2 * ranks);
  for (std::size_t r = 0; r < ranks; ++r) sent.insert(sent.end(), {own.rows[r], own.pairs[r]});
  const std::vector<std::int64_t> two(ranks, 2);
  group.all_to_all(
      ProcessGroup::NumbersToAll{.sent = sent, .send_counts = two, .received = received, .receive_counts = two});
  Counts theirs;
  for (std::size_t r = 0; r < ranks; ++r) {
    theirs.rows.push_back(received[2 * r]);
    theirs.pairs.push_back(received[2 * r + 1]);
  }
  return theirs;
}

std::int64_t sum(std::span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

/// Returns y[t, j] = destination[index[t, j]].
Tensor mapped(const Stream& stream, const Tensor& index, const std::vector<std::int32_t>& destination) {
  const Tensor y = Tensor::empty(stream, DType::i32, index.shape());
  launch(stream,
         MapChoices{.index = index.matrix<const std::int32_t>(),
                    .destination = tensor_of(stream, {std::ssize(destination)}, destination).span<const std::int32_t>(),
                    .y = y.matrix<std::int32_t>()});
  return y;
}

/// Sorts the rows of tokens by the rank that they are sent to, without gaps. Writes the first row of each rank, and the
/// number of rows, to `begin` i64 [ranks + 1], and the number of choices behind each rank to `pairs` i64 [ranks] if it
/// is defined. The maps have one element per choice, so rows that no token needs are at the end.
TokenRows sorted_by_rank(const Stream& stream, const Hop& hop, const Tensor& index, const Tensor& begin,
                         const Tensor& pairs) {
  const std::int64_t tokens = index.shape()[0], ranks = hop.group->size();
  const Tensor rank_of_choice = Tensor::empty(stream, DType::i32, index.shape());
  const Tensor rank_of = tensor_of(stream, {std::ssize(hop.rank_of)}, hop.rank_of);
  const std::vector<double> expected_pairs = of_all(hop.pairs, tokens), expected_rows = of_all(hop.rows, tokens);
  launch(stream, MapChoices{.index = index.matrix<const std::int32_t>(),
                            .destination = rank_of.span<const std::int32_t>(),
                            .y = rank_of_choice.matrix<std::int32_t>(),
                            .once = true,
                            .count = pairs.defined() ? pairs.span<std::int64_t>() : std::span<std::int64_t>(),
                            .expected = expected_pairs});
  const Tensor pair_of_row = Tensor::empty(stream, DType::i64, {index.size()});
  const Tensor row_of_pair = Tensor::empty(stream, DType::i64, {index.size()});
  std::vector<std::int32_t> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  launch(stream, SortByExpert{.index = rank_of_choice.matrix<const std::int32_t>(),
                              .order = tensor_of(stream, {ranks}, order).span<const std::int32_t>(),
                              .begin = begin.span<std::int64_t>(),
                              .slot_pair = pair_of_row.span<std::int64_t>(),
                              .pair_slot = row_of_pair.span<std::int64_t>(),
                              .expected = expected_rows});
  return {pair_of_row, row_of_pair, index.shape()[1]};
}

}  // namespace

RowsInFlight::RowsInFlight(const Stream& stream, const ProcessGroup& group, std::vector<Tensor> tensors,
                           std::span<const std::int64_t> send_rows, std::span<const std::int64_t> receive_rows)
    : group_(&group), sent_(std::move(tensors)) {
  std::vector<ProcessGroup::AllToAll> exchanges;
  for (const Tensor& sent : sent_) {
    const Tensor& received =
        received_.emplace_back(Tensor::empty(stream, sent.dtype(), {sum(receive_rows), sent.shape()[1]}));
    exchanges.push_back({.sent = sent.raw(),
                         .send_rows = send_rows,
                         .received = received.raw(),
                         .receive_rows = receive_rows,
                         .row_bytes = sent.shape()[1] * static_cast<std::int64_t>(size_of(sent.dtype())),
                         .owner = std::make_shared<std::pair<Tensor, Tensor>>(sent, received)});
  }
  const ProfileScope timed(profile_of(stream), "all-to-all");
  pending_ = group.all_to_all_async(exchanges);
  group.turns().note_start();
}

void RowsInFlight::wait(const Stream& stream) {
  const ProfileScope timed(profile_of(stream), "all-to-all");
  pending_.wait();
}

std::vector<Tensor> RowsInFlight::all_arrived(const Stream& stream, bool ends_turn) {
  if (ends_turn) group_->turns().before_wait();
  wait(stream);
  sent_.clear();
  return std::exchange(received_, {});
}

RowsInFlight TokenExchange::send(const Stream& stream, std::span<const Tensor> tensors) const {
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) rows.push_back(gather_rows(stream, x, copies.pair_of_row, copies.top_k));
  RowsInFlight in_flight(stream, *group, std::move(rows), send_rows, receive_rows);
  if (!overlaps) in_flight.wait(stream);
  return in_flight;
}

RowsInFlight TokenExchange::answer(const Stream& stream, std::vector<Tensor> tensors) const {
  RowsInFlight rows(stream, *group, std::move(tensors), receive_rows, send_rows);
  if (!overlaps) rows.wait(stream);
  return rows;
}

std::shared_ptr<const TokenExchange> plan_exchange(const Stream& stream, const Hop& hop, const Tensor& index,
                                                   bool overlaps) {
  const std::int64_t ranks = hop.group->size();
  // one tensor, so that the host waits only once
  const Tensor counts = Tensor::empty(stream, DType::i64, {2 * ranks + 1});
  const TokenRows sorted =
      sorted_by_rank(stream, hop, index, counts.slice(0, ranks + 1), counts.slice(ranks + 1, ranks));
  const std::vector<std::int64_t> known = values_of<std::int64_t>(stream, counts);
  const auto behind_begin = known.begin() + ranks + 1;
  Counts own{.rows = {}, .pairs = {behind_begin, known.end()}};
  std::adjacent_difference(known.begin() + 1, behind_begin, std::back_inserter(own.rows));
  Counts theirs = swapped(*hop.group, own);
  const std::int64_t sent = known[static_cast<std::size_t>(ranks)];
  return std::make_shared<TokenExchange>(
      TokenExchange{.group = hop.group,
                    .copies = {sorted.pair_of_row.slice(0, sent), sorted.row_of_pair, sorted.top_k},
                    .send_rows = std::move(own.rows),
                    .receive_rows = std::move(theirs.rows),
                    .pairs = sum(theirs.pairs),
                    .overlaps = overlaps});
}

std::shared_ptr<const TokenExchange> bounded_exchange(const Stream& stream, const Hop& hop, const Tensor& index,
                                                      const RowBounds& bounds, bool overlaps) {
  const std::int64_t ranks = hop.group->size(), tokens = index.shape()[0];
  require(tokens <= bounds.tokens, "{} tokens in an exchange of at most {}", tokens, bounds.tokens);
  std::vector<std::int64_t> send_rows, first{0};
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    send_rows.push_back(bounds.rows(std::ranges::count(hop.rank_of, rank)));
    first.push_back(first.back() + send_rows.back());
  }
  const auto numbers = [&](std::int64_t count) { return Tensor::empty(stream, DType::i64, {count}); };
  const Tensor begin = numbers(ranks + 1);
  const TokenRows sorted = sorted_by_rank(stream, hop, index, begin, {});
  const Tensor sorted_of_sent = numbers(first.back()), sent_of_sorted = numbers(index.size());
  launch(stream, PlaceInSegments{.arrived = begin.span<const std::int64_t>(),
                                 .begin = numbers(ranks + 1).span<std::int64_t>(),
                                 .rows = numbers(ranks).span<std::int64_t>(),
                                 .arrived_of_segment = sorted_of_sent.span<std::int64_t>(),
                                 .segment_of_arrived = sent_of_sorted.span<std::int64_t>(),
                                 .fixed = tensor_of(stream, {ranks + 1}, first).span<const std::int64_t>()});
  const std::int64_t own = send_rows[static_cast<std::size_t>(hop.group->rank())];
  return std::make_shared<TokenExchange>(
      TokenExchange{.group = hop.group,
                    .copies = reordered(stream, sorted, sorted_of_sent, sent_of_sorted),
                    .send_rows = std::move(send_rows),
                    .receive_rows = std::vector<std::int64_t>(static_cast<std::size_t>(ranks), own),
                    .pairs = -1,
                    .bounds = RowBounds{.tokens = ranks * own, .choices = ranks * bounds.choices},
                    .overlaps = overlaps});
}

std::array<Tensor, 2> SendTokens::forward(const Stream& stream, Saved&, const Tensor& x, const Tensor& gates) const {
  RowsInFlight& rows = in_flight->rows;
  rows = exchange->send(stream, std::array{x, gates, std::exchange(in_flight->index, {})});
  return {rows.destination(0), rows.destination(1)};
}

std::array<Tensor, 2> SendTokens::backward(const Stream& stream, Saved&, const Tensor& d_sent,
                                           const Tensor& d_sent_gates) const {
  const std::vector<Tensor> answers = in_flight->rows.all_arrived(stream);
  auto next = answers.begin();
  const auto sums = [&](const Tensor& sent) { return sent.defined() ? exchange->sums(stream, *next++) : Tensor(); };
  return {sums(d_sent), sums(d_sent_gates)};  // in this order
}

std::array<Tensor, 2> TakeTokens::forward(const Stream& stream, Saved&, const Tensor&, const Tensor&) const {
  std::vector<Tensor> received = in_flight->rows.all_arrived(stream, ends_turn);
  in_flight->index = std::move(received[2]);
  return {std::move(received[0]), std::move(received[1])};
}

std::array<Tensor, 2> TakeTokens::backward(const Stream& stream, Saved&, const Tensor& d_received,
                                           const Tensor& d_received_gates) const {
  const std::array gradients{d_received, d_received_gates};
  const auto needed = [&](std::size_t i) { return gradients[i].defined() && in_flight->differentiable[i]; };
  std::vector<Tensor> sent;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (needed(i)) sent.push_back(gradients[i]);
  }
  in_flight->rows = exchange->answer(stream, std::move(sent));
  std::array<Tensor, 2> destinations;
  std::size_t next = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (needed(i)) destinations[i] = in_flight->rows.destination(next++);
  }
  return destinations;
}

Tensor SendTokensAgain::forward(const Stream& stream, Saved&, const Tensor& x) const {
  return exchange->send(stream, x).arrived(stream, false);
}

Tensor SumAnswers::forward(const Stream& stream, Saved&, const Tensor& answers) const {
  return exchange->sums(stream, exchange->answer(stream, answers).arrived(stream, ends_turn));
}

std::array<Tensor, 1> SumAnswers::backward(const Stream& stream, Saved&, const Tensor& dy) const {
  return {exchange->send(stream, dy).arrived(stream)};
}

TokensAndChoices dispatched(Tape& tape, const std::shared_ptr<const TokenExchange>& exchange,
                            const TokensAndChoices& tokens, const std::function<void()>& meanwhile) {
  const auto needed = [](const Variable& variable) { return variable.id != Variable::no_gradient; };
  const auto in_flight = std::make_shared<TokensInFlight>(
      TokensInFlight{.index = tokens.index, .differentiable = {needed(tokens.x), needed(tokens.gates)}});
  const auto [sent_x, sent_gates] = tape.apply(SendTokens{exchange, in_flight}, tokens.x, tokens.gates);
  meanwhile();
  auto [x, gates] = tape.apply(TakeTokens{exchange, in_flight, !tape.replaying()}, sent_x, sent_gates);
  return {.x = std::move(x),
          .gates = std::move(gates),
          .index = std::exchange(in_flight->index, {}),
          .pairs = exchange->pairs,
          .bounds = exchange->bounds};
}

GatheredTokens gathered(Tape& tape, const ProcessGroup& group, const TokensAndChoices& tokens) {
  const std::array<std::int64_t, 2> own{tokens.index.shape()[0], tokens.pairs};
  const auto ranks = static_cast<std::size_t>(group.size());
  RowShards shards{.group = &group, .rows = {}, .routed = true};
  std::int64_t pairs = 0;
  std::optional<RowBounds> bounds;
  if (tokens.bounds) {
    shards.rows.assign(ranks, own[0]);
    bounds = RowBounds{.tokens = group.size() * own[0], .choices = group.size() * tokens.bounds->choices};
  } else {
    std::vector<std::int64_t> numbers(own.size() * ranks);
    group.all_gather(own, numbers);
    for (std::size_t i = 0; i < numbers.size(); i += own.size()) {
      shards.rows.push_back(numbers[i]);
      pairs += numbers[i + 1];
    }
  }
  const AllGatherReduceScatter gather{{shards}};
  return {.shards = shards,
          .all = {.x = tape.apply(gather, tokens.x),
                  .gates = tape.apply(gather, tokens.gates),
                  .index = all_gather(tape.stream(), shards, tokens.index),
                  .pairs = tokens.pairs < 0 ? -1 : pairs,
                  .bounds = bounds}};
}

std::shared_ptr<const ExpertRows> rows_of_experts(const Stream& stream, const ExpertRoute& route,
                                                  const TokensAndChoices& tokens, std::span<const std::int64_t> known) {
  if (route.hops.empty()) {
    return plan_rows(stream, route.local, tokens.index, {.others = std::ssize(route.local_of) - route.local});
  }
  return plan_rows(stream, route.local, mapped(stream, tokens.index, route.local_of),
                   {.pairs = tokens.pairs, .bounds = tokens.bounds, .rows = known});
}

}  // namespace lyceum
