// Measures dispatch and combine, forward and backward, of 63 experts with 7 choices per token, for several kinds of
// load and widths of rows:
//   mpirun -n 4 bench_dispatch [TOKENS per rank] [HOSTS that the ranks simulate]
// Columns of the table:
// - rows/token: rows that leave a rank per token in a forward pass, one way;
// - least: the mean number of other ranks that hold experts of a token;
// - MB: bytes that a rank sends in a forward pass, including expert indices and gates; least MB: with the least rows;
// - us/token: time of the slowest rank divided by its number of tokens, median over rounds; spread: the interquartile
//   range relative to that;
// - ideal us: bare all-to-alls of the least rows, two forward and two back;
// - per choice: the same with one row per choice of a token.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/copy.h"
#include "core/random.h"
#include "parallel/comm/mpi_session.h"
#include "parallel/expert/combine.h"
#include "parallel/expert/gather_rows.h"
#include "parallel/expert/token_exchange.h"

namespace {

using namespace lyceum;

constexpr std::int64_t experts = 63, top_k = 7;
constexpr int rounds = 15;

/// A distribution of the experts' load: `weight` is proportional to the probability that an expert is chosen first in a
/// round.
struct Load {
  const char* name;
  std::function<double(std::int64_t expert, int round)> weight;
};

double zipf(std::int64_t rank) { return 1.0 / static_cast<double>(rank % experts + 1); }

std::vector<Load> loads() {
  return {{"even", [](std::int64_t, int) { return 1.0; }},
          {"zipf", [](std::int64_t e, int) { return zipf(e); }},
          {"one hot", [](std::int64_t e, int) { return e == 0 ? 1e3 : 1.0; }},
          {"drifting", [](std::int64_t e, int round) { return zipf(e + 5 * round); }},
          {"alternating", [](std::int64_t e, int round) { return (e + round) % 2 ? 8.0 : 1.0; }},
          {"a host hot", [](std::int64_t e, int) { return 2 * e < experts ? 8.0 : 1.0; }}};
}

/// Returns the experts of a rank's tokens, top_k distinct ones per token. They are those with the largest keys
/// log(weight) + Gumbel noise, which is equivalent to drawing by weight without replacement.
std::vector<std::int32_t> choices(const Load& load, std::int64_t tokens, int rank, int round) {
  const Philox random(11, fmt::format("{} {} {}", load.name, rank, round));
  std::vector<std::int32_t> index;
  std::vector<double> key(experts);
  std::vector<std::int32_t> order(experts);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const double uniform = random.uniform(static_cast<std::uint64_t>(t * experts + e));
      key[static_cast<std::size_t>(e)] = std::log(load.weight(e, round)) - std::log(-std::log(uniform));
    }
    std::iota(order.begin(), order.end(), 0);
    std::ranges::partial_sort(order, order.begin() + top_k, std::greater{},
                              [&](std::int32_t e) { return key[static_cast<std::size_t>(e)]; });
    index.insert(index.end(), order.begin(), order.begin() + top_k);
  }
  return index;
}

/// The rows that this rank sends to and receives from each rank in a round.
struct ExchangedRows {
  std::vector<std::int64_t> sent, arriving;

  /// Collective: the ranks exchange the numbers of rows.
  ExchangedRows(const ProcessGroup& group, std::vector<std::int64_t> to_each)
      : sent(std::move(to_each)), arriving(sent.size()) {
    const std::vector<std::int64_t> ones(sent.size(), 1);
    group.all_to_all(
        ProcessGroup::NumbersToAll{.sent = sent, .send_counts = ones, .received = arriving, .receive_counts = ones});
  }
  std::int64_t most() const {
    return std::max(std::reduce(sent.begin(), sent.end()), std::reduce(arriving.begin(), arriving.end()));
  }
};

/// Returns the number of rows that this rank's tokens send to each rank: with `per_choice`, one per choice of an expert
/// there; otherwise one per token with such a choice, which is the least possible.
std::vector<std::int64_t> rows_to_ranks(const Placement& placement, const std::vector<std::int32_t>& index,
                                        bool per_choice) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(placement.ranks()));
  for (std::size_t first = 0; first < index.size(); first += top_k) {
    std::vector<std::int64_t> led(rows.size());
    for (std::size_t i = first; i < first + top_k; ++i) {
      ++led[static_cast<std::size_t>(placement.owner[static_cast<std::size_t>(index[i])])];
    }
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r] += per_choice ? led[r] : std::min<std::int64_t>(led[r], 1);
  }
  return rows;
}

/// Experts that return copies of their input. Input are tokens; backward sums the gradients of a token's copies.
struct Identity {
  TokenRows copies;
  struct Saved {};
  Tensor forward(const Stream& stream, Saved&, const Tensor& x) const {
    return gather_rows(stream, x, copies.pair_of_row, copies.top_k);
  }
  std::array<Tensor, 1> backward(const Stream& stream, Saved&, const Tensor& dy) const {
    return {copies.sums(stream, dy)};
  }
};

Variable answers(Tape& tape, const ExpertRoute& route, const TokensAndChoices& tokens, std::span<const Hop> hops) {
  if (hops.empty()) {
    const auto rows = rows_of_experts(tape.stream(), route, tokens);
    return tape.apply(Combine{rows}, tape.apply(Identity{rows->copies}, tokens.x), tokens.gates);
  }
  const auto exchange = plan_exchange(tape.stream(), hops.front(), tokens.index);
  return tape.apply(SumAnswers{exchange}, answers(tape, route, dispatched(tape, exchange, tokens), hops.subspan(1)));
}

struct Operands {
  Tensor x, gates, dy;
};

void there_and_back(const Stream& stream, const ExpertRoute& route, const Tensor& index, const Operands& operands) {
  Tape tape(stream);
  const TokensAndChoices tokens{.x = tape.leaf(operands.x), .gates = tape.leaf(operands.gates), .index = index};
  tape.backward({{answers(tape, route, tokens, route.hops), operands.dy}});
}

struct Spread {
  double median, between;  // seconds; interquartile range divided by the median
};

/// Measures the slowest rank's time of work(round) over all rounds. A barrier precedes each round. Collective.
Spread measure(const ProcessGroup& group, const std::function<void(int round)>& work) {
  std::vector<double> times(rounds);
  for (int round = 0; round < 3; ++round) work(round);
  for (int round = 0; round < rounds; ++round) {
    group.barrier();
    const auto begin = Clock::now();
    work(round);
    times[static_cast<std::size_t>(round)] = seconds_since(begin);
  }
  group.all_reduce(times, Reduction::max);
  std::ranges::sort(times);
  return {times[rounds / 2], (times[rounds * 3 / 4] - times[rounds / 4]) / times[rounds / 2]};
}

/// Measures bare all-to-alls of `rows`: two in the forward direction and two back. Collective.
Spread measure_bare(const ProcessGroup& group, const std::vector<ExchangedRows>& rows, std::int64_t row_bytes) {
  const std::int64_t most = std::ranges::max_element(rows, {}, &ExchangedRows::most)->most();
  std::vector<std::byte> from(static_cast<std::size_t>(most * row_bytes)), to(from.size());
  return measure(group, [&](int round) {
    const ExchangedRows& there = rows[static_cast<std::size_t>(round)];
    for (int way = 0; way < 4; ++way) {
      const bool back = way % 2 == 1;
      group.all_to_all({.sent = from.data(),
                        .send_rows = back ? there.arriving : there.sent,
                        .received = to.data(),
                        .receive_rows = back ? there.sent : there.arriving,
                        .row_bytes = row_bytes});
    }
  });
}

/// Returns the mean of `own` over the ranks. Collective.
double mean(const ProcessGroup& group, double own) {
  std::array<double, 1> sum{own};
  group.all_reduce(sum);
  return sum[0] / group.size();
}

struct Ranks {
  const ProcessGroup* group;
  std::vector<const ProcessGroup*> hops;

  std::int64_t sent() const {
    std::int64_t bytes = 0;
    for (const ProcessGroup* hop : hops) bytes += hop->traffic().all_to_all;
    return bytes;
  }
};

void measure_load(const Ranks& ranks, const Load& load, std::int64_t tokens, std::int64_t row_bytes) {
  const ProcessGroup& group = *ranks.group;
  const Stream stream = CpuStream(1);
  const Placement placement = Placement::contiguous(experts, group.size());
  const ExpertRoute route = route_of(placement, ranks.hops, {.k = top_k, .choices = experts});
  const std::int64_t width = row_bytes / static_cast<std::int64_t>(sizeof(float));
  const auto normal = [&](std::int64_t columns, const char* name) {
    const Tensor values = Tensor::empty(stream, DType::f32, {tokens, columns});
    fill_normal(values.span<float>(), 1.0, Philox(1, name), 0);
    return values;
  };
  const Operands operands{normal(width, "x"), normal(top_k, "gates"), normal(width, "dy")};
  std::vector<Tensor> index;
  std::vector<ExchangedRows> least, per_choice;
  std::int64_t leaving = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<std::int32_t> chosen = choices(load, tokens, group.rank(), round);
    index.push_back(tensor_of(stream, {tokens, top_k}, chosen));
    least.emplace_back(group, rows_to_ranks(placement, chosen, false));
    per_choice.emplace_back(group, rows_to_ranks(placement, chosen, true));
    const std::vector<std::int64_t>& sent = least.back().sent;
    leaving += std::reduce(sent.begin(), sent.end()) - sent[static_cast<std::size_t>(group.rank())];
  }
  const Spread time = measure(
      group, [&](int round) { there_and_back(stream, route, index[static_cast<std::size_t>(round)], operands); });
  const Spread ideal = measure_bare(group, least, row_bytes), bare_choices = measure_bare(group, per_choice, row_bytes);
  const std::int64_t before = ranks.sent();
  {  // one forward pass per round, to count its bytes
    for (int round = 0; round < rounds; ++round) {
      Tape tape(stream, Tape::Mode::inference);
      answers(tape, route,
              {.x = {operands.x}, .gates = {operands.gates}, .index = index[static_cast<std::size_t>(round)]},
              route.hops);
    }
  }
  const double scale = 1.0 / static_cast<double>(rounds * tokens);
  const double bytes = mean(group, static_cast<double>(ranks.sent() - before)) * scale;
  const double rows = mean(group, static_cast<double>(leaving)) * scale;
  if (group.rank() != 0) return;
  const double micro = 1e6 / static_cast<double>(tokens);
  fmt::print("{:<12} {:>6} {:>11.2f} {:>7.2f} {:>8.2f} {:>8.2f} {:>9.2f} {:>6.0f}% {:>9.2f} {:>10.2f}\n", load.name,
             row_bytes, bytes / 2 / static_cast<double>(row_bytes), rows, bytes * static_cast<double>(tokens) * 1e-6,
             2 * rows * static_cast<double>(row_bytes * tokens) * 1e-6, time.median * micro, 100 * time.between,
             ideal.median * micro, bare_choices.median * micro);
}

}  // namespace

int main(int arguments, char** argument) {
  const MpiSession session;
  const ProcessGroup world = session.world(120);
  const std::int64_t tokens = arguments > 1 ? std::stoll(argument[1]) : 512;
  const int hosts = arguments > 2 ? std::stoi(argument[2]) : 1, together = world.size() / hosts;
  const ProcessGroup across = world.split([&](int rank) { return rank % together; }, "expert_across");
  const ProcessGroup within = world.split([&](int rank) { return rank / together; }, "expert_within");
  Ranks ranks{.group = &world, .hops = {&world}};
  if (hosts > 1) ranks.hops = {&across, &within};
  if (world.rank() == 0) {
    fmt::print("{} ranks as {} hosts, {} tokens each, experts {}, top {}\n", world.size(), hosts, tokens, experts,
               top_k);
    fmt::print("{:<12} {:>6} {:>11} {:>7} {:>8} {:>8} {:>9} {:>7} {:>9} {:>10}\n", "load", "bytes", "rows/token",
               "least", "MB", "least MB", "us/token", "spread", "ideal us", "per choice");
  }
  for (const std::int64_t row_bytes : {2048, 4096, 8192}) {
    for (const Load& load : loads()) measure_load(ranks, load, tokens, row_bytes);
  }
  return 0;
}
