#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "core/random.h"
#include "parallel/comm/mesh.h"
#include "parallel/expert/combine.h"
#include "parallel/expert/token_exchange.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 11, others = 2, choices = experts + others, hidden = 5, top_k = 4;

struct Local {
  std::int64_t tokens;
  std::vector<std::int32_t> index;  // [tokens, k], distinct within a token; some are -1
  std::vector<double> x, gates;
};

/// Returns the tokens of rank r: the numbers of tokens are uneven, and some ranks have none. `crowded`: few experts get
/// most choices.
Local local_of(int rank, bool crowded) {
  Local local{.tokens = rank % 3 == 2 ? 0 : 4 + 3 * rank, .index = {}, .x = {}, .gates = {}};
  const Philox random(9, "dispatch" + std::to_string(rank));
  for (std::int64_t t = 0; t < local.tokens; ++t) {
    const auto first = static_cast<std::int32_t>(random.below(crowded ? 2 : choices, static_cast<std::uint64_t>(t)));
    for (std::int32_t j = 0; j < top_k; ++j) {
      const std::int32_t expert = (first + 2 * j) % static_cast<std::int32_t>(choices);
      local.index.push_back((t + j) % 9 == 8 ? -1 : expert);
    }
  }
  for (std::int64_t i = 0; i < local.tokens * hidden; ++i)
    local.x.push_back(random.normal(1000 + static_cast<std::uint64_t>(i)));
  for (std::int64_t i = 0; i < local.tokens * top_k; ++i)
    local.gates.push_back(random.uniform(5000 + static_cast<std::uint64_t>(i)));
  return local;
}

Tensor tensor_of(const Stream& stream, const Shape& shape, const std::vector<double>& values) {
  const Tensor tensor = Tensor::empty(stream, DType::f64, shape);
  std::copy(values.begin(), values.end(), tensor.data<double>());
  return tensor;
}

/// The factor by which an expert multiplies its rows, so that results can be computed without an exchange.
double factor(std::int64_t expert) { return 1.0 + 0.5 * static_cast<double>(expert); }

/// The fraction of an expert's result that this rank computes. The fractions of ranks that share an expert add up to 1.
double share_of(const Mesh& mesh) {
  if (mesh.shape.expert_tensor == 1) return 1.0;
  return mesh.index.expert_tensor == 0 ? 0.25 : 0.75;
}

/// Applies this rank's experts, or its fractions of them, to the rows of tokens.
struct Scale {
  std::vector<std::int32_t> held;
  double share;
  std::shared_ptr<const ExpertRows> rows;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved&, const Tensor& x) const {
    const Tensor y = Tensor::zeros(stream, DType::f64, {rows->segments->total(), hidden});
    for_rows([&](std::int64_t token, std::int64_t row, double factor) {
      for (std::int64_t h = 0; h < hidden; ++h) {
        y.matrix<double>().row(row)[h] = factor * x.matrix<double>().row(token)[h];
      }
    });
    return y;
  }
  std::array<Tensor, 1> backward(const Stream& stream, Saved&, const Tensor& dy) const {
    const Tensor dx = Tensor::zeros(stream, DType::f64, {rows->tokens(), hidden});
    for_rows([&](std::int64_t token, std::int64_t row, double factor) {
      for (std::int64_t h = 0; h < hidden; ++h) {
        dx.matrix<double>().row(token)[h] += factor * dy.matrix<double>().row(row)[h];
      }
    });
    return {dx};
  }

 private:
  void for_rows(const auto& f) const {
    const Segments segments = rows->segments->view();
    const auto pairs = rows->copies.pair_of_row.span<const std::int64_t>();
    for (std::size_t e = 0; e < held.size(); ++e) {
      for (std::int64_t row = segments.begin[e]; row < segments.begin[e] + segments.rows[e]; ++row) {
        f(pairs[static_cast<std::size_t>(row)] / top_k, row, share * factor(held[e]));
      }
    }
  }
};

/// Returns a placement with a different number of non-consecutive experts on each rank.
Placement scattered(int ranks) {
  std::vector<double> costs;
  for (std::int64_t e = 0; e < experts; ++e) costs.push_back(static_cast<double>(e * e * 7 % 13));
  return Placement::by_cost(costs, ranks);
}

Variable answers(Tape& tape, const Mesh& mesh, const ExpertRoute& route, const std::vector<std::int32_t>& held,
                 const TokensAndChoices& tokens, std::span<const Hop> hops) {
  if (!hops.empty()) {
    const Hop& hop = hops.front();
    const auto exchange = tokens.bounds ? bounded_exchange(tape.stream(), hop, tokens.index, *tokens.bounds)
                                        : plan_exchange(tape.stream(), hop, tokens.index);
    return tape.apply(SumAnswers{exchange},
                      answers(tape, mesh, route, held, dispatched(tape, exchange, tokens), hops.subspan(1)));
  }
  const auto computed = [&](const TokensAndChoices& here) {
    const auto rows = rows_of_experts(tape.stream(), route, here);
    return tape.apply(Combine{rows}, tape.apply(Scale{held, share_of(mesh), rows}, here.x), here.gates);
  };
  if (mesh.expert_tensor.size() == 1) return computed(tokens);
  const auto [shards, all] = gathered(tape, mesh.expert_tensor, tokens);
  return tape.apply(ReduceScatterAllGather{{shards}}, computed(all));
}

using Choices = std::vector<std::int32_t>;  // of one token

/// Simulates the route of all tokens of all ranks: the tokens on a rank before each hop, and the number of rows that it
/// exchanges with other ranks in the last hop.
struct Walk {
  std::vector<std::vector<Choices>> at;  // [ranks][tokens]
  std::vector<std::int64_t> out, in;     // [ranks]: rows sent and received in the last hop

  Walk(int world, bool crowded) : at(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < world; ++rank) {
      const Local local = local_of(rank, crowded);
      for (std::int64_t t = 0; t < local.tokens; ++t) {
        at[static_cast<std::size_t>(rank)].emplace_back(local.index.begin() + t * top_k,
                                                        local.index.begin() + (t + 1) * top_k);
      }
    }
  }
  /// Simulates one hop. together(a, b): true if two ranks share a group. behind(owner, rank): true if rank `owner` is
  /// reached through `rank`.
  void hop(const Placement& placement, const auto& together, const auto& behind) {
    const std::size_t ranks = at.size();
    std::vector<std::vector<Choices>> next(ranks);
    out.assign(ranks, 0);
    in.assign(ranks, 0);
    for (std::size_t from = 0; from < ranks; ++from) {
      for (std::size_t to = 0; to < ranks; ++to) {
        if (!together(from, to)) continue;
        for (const Choices& token : at[from]) {
          const bool goes = std::ranges::any_of(token, [&](std::int32_t e) {
            return e >= 0 && e < experts && behind(placement.owner[static_cast<std::size_t>(e)], to);
          });
          if (!goes) continue;
          next[to].push_back(token);
          out[from] += from != to;
          in[to] += from != to;
        }
      }
    }
    at = std::move(next);
  }
};

/// Returns the bytes that this rank sends in one hop: two numbers to each other rank; in the forward pass rows with
/// index and gates to the experts, and rows back; in the backward pass the same without the index.
std::int64_t bytes_of(std::int64_t ranks, std::int64_t out, std::int64_t in) {
  constexpr std::int64_t row = hidden * 8, index = top_k * 4, gates = top_k * 8;
  return (ranks - 1) * 16 + out * (row + index + gates) + in * row + out * row + in * (row + gates);
}

void expect_bytes(const Mesh& mesh, const Placement& placement, const std::vector<std::int64_t>& counted,
                  bool crowded) {
  const MeshShape& shape = mesh.shape;
  const int world = mesh.world.size(), each = shape.expert / shape.expert_hosts;
  const auto own = static_cast<std::size_t>(mesh.world.rank());
  const auto coordinates = [&](std::size_t rank) { return shape.index_of(static_cast<int>(rank), world); };
  const auto group = [&](std::size_t a, std::size_t b) {
    return coordinates(a).expert_data == coordinates(b).expert_data &&
           coordinates(a).expert_tensor == coordinates(b).expert_tensor;
  };
  const auto host = [&](std::size_t rank) { return coordinates(rank).expert / each; };
  Walk walk(world, crowded);
  std::size_t hop = 0;
  if (shape.expert_hosts > 1) {
    walk.hop(
        placement,
        [&](std::size_t a, std::size_t b) {
          return group(a, b) && coordinates(a).expert % each == coordinates(b).expert % each;
        },
        [&](int owner, std::size_t rank) { return owner / each == host(rank); });
    EXPECT_EQ(counted[hop++], bytes_of(shape.expert_hosts, walk.out[own], walk.in[own])) << "across hosts";
  }
  if (each > 1) {
    walk.hop(
        placement, [&](std::size_t a, std::size_t b) { return group(a, b) && host(a) == host(b); },
        [&](int owner, std::size_t rank) { return owner == coordinates(rank).expert; });
    EXPECT_EQ(counted[hop++], bytes_of(each, walk.out[own], walk.in[own])) << "between ranks";
  }
}

/// The numbers of rows that ranks send each other: as many as counted, or as many as the tokens of the rank with most
/// allow, or as the choices of the expert with most do.
enum class Rows { counted, by_tokens, by_choices };

/// Returns bounds for the tokens of all ranks.
RowBounds bounds_of(int world, bool crowded, Rows rows) {
  RowBounds bounds{.tokens = 0, .choices = 0};
  for (int rank = 0; rank < world; ++rank) {
    const Local local = local_of(rank, crowded);
    bounds.tokens = std::max(bounds.tokens, local.tokens);
    for (std::int32_t e = 0; e < experts; ++e) {
      bounds.choices = std::max<std::int64_t>(bounds.choices, std::ranges::count(local.index, e));
    }
  }
  if (rows == Rows::by_tokens) bounds.choices = bounds.tokens;
  return bounds;
}

/// Expects the bytes of bounded exchanges: rows for every other rank, as many as its experts may get.
void expect_bounded_bytes(const ExpertRoute& route, RowBounds bounds, const std::vector<std::int64_t>& counted) {
  for (std::size_t h = 0; h < counted.size(); ++h) {
    const Hop& hop = route.hops[h];
    const std::int64_t ranks = hop.group->size();
    std::int64_t out = 0, own = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t behind = std::ranges::count(hop.rank_of, rank),
                         rows = std::min(bounds.tokens, behind * bounds.choices);
      (rank == hop.group->rank() ? own : out) += rows;
    }
    EXPECT_EQ(counted[h], bytes_of(ranks, out, (ranks - 1) * own) - (ranks - 1) * 16) << "without counts, hop " << h;
    bounds = {.tokens = ranks * own, .choices = ranks * bounds.choices};
  }
}

void check_exchange(const Mesh& mesh, const Placement& placement, bool crowded, Rows rows = Rows::counted) {
  const Stream stream = CpuStream(1);
  const Local local = local_of(mesh.world.rank(), crowded);
  const ExpertRoute route = route_of(placement, mesh.expert_hops(), {.k = top_k, .choices = choices});
  std::optional<RowBounds> bounds;
  if (rows != Rows::counted && !route.hops.empty()) bounds = bounds_of(mesh.world.size(), crowded, rows);
  std::vector<std::int64_t> bytes;
  for (const Hop& hop : route.hops) bytes.push_back(-hop.group->traffic().all_to_all);
  const Tensor index = i32_tensor(stream, {local.tokens, top_k}, local.index);
  Tape tape(stream);
  const Variable x = tape.leaf(tensor_of(stream, {local.tokens, hidden}, local.x));
  const Variable gates = tape.leaf(tensor_of(stream, {local.tokens, top_k}, local.gates));
  const std::span<const std::int32_t> held = placement.experts_of(mesh.index.expert);
  const Variable y = answers(tape, mesh, route, {held.begin(), held.end()},
                             {.x = x, .gates = gates, .index = index, .bounds = bounds}, route.hops);
  const Tensor dy = Tensor::empty(stream, DType::f64, {local.tokens, hidden});
  for (std::int64_t i = 0; i < dy.size(); ++i) dy.data<double>()[i] = 0.1 * static_cast<double>(i % 7) - 0.2;
  tape.backward({{y, dy}});
  for (std::size_t h = 0; h < bytes.size(); ++h) bytes[h] += route.hops[h].group->traffic().all_to_all;
  if (bounds) {
    expect_bounded_bytes(route, *bounds, bytes);
  } else {
    expect_bytes(mesh, placement, bytes, crowded);
  }

  for (std::int64_t t = 0; t < local.tokens; ++t) {
    double weight = 0;
    for (std::int64_t j = 0; j < top_k; ++j) {
      const auto pair = static_cast<std::size_t>(t * top_k + j);
      const std::int32_t expert = local.index[pair];
      const double scale = expert < 0 || expert >= experts ? 0 : factor(expert);
      weight += local.gates[pair] * scale;
      double d_gate = 0;
      for (std::int64_t h = 0; h < hidden; ++h) {
        d_gate += dy.matrix<double>().row(t)[h] * scale * local.x[static_cast<std::size_t>(t * hidden + h)];
      }
      EXPECT_NEAR(tape.gradient(gates).data<double>()[pair], d_gate, 1e-12);
    }
    for (std::int64_t h = 0; h < hidden; ++h) {
      const auto at = static_cast<std::size_t>(t * hidden + h);
      EXPECT_NEAR(y.value.data<double>()[at], weight * local.x[at], 1e-12);
      EXPECT_NEAR(tape.gradient(x).data<double>()[at], weight * dy.data<double>()[at], 1e-12);
    }
  }
}

/// Returns all meshes of this world, as far as experts are concerned.
std::vector<MeshShape> shapes(int world) {
  std::vector<MeshShape> all;
  for (const int sharers : {1, 2}) {
    for (const int hosts : {1, 2, 4}) {
      const MeshShape shape{.expert = world / sharers, .expert_tensor = sharers, .expert_hosts = hosts};
      if (world % sharers == 0 && shape.problem(world).empty()) all.push_back(shape);
    }
  }
  // two copies of each expert
  if (world >= 4) all.push_back({.expert = world / 2, .expert_hosts = world / 4 > 1 ? 2 : 1});
  return all;
}

TEST(TokenExchange, BringsEveryTokenOnceToEachRankOfItsExpertsAndBack) {
  const int world = test_world().size();
  for (const MeshShape& shape : shapes(world)) {
    SCOPED_TRACE(shape.text(world));
    const Mesh mesh = Mesh::create(test_world(), shape);
    for (const bool crowded : {false, true}) {  // crowded: most experts get no tokens
      for (const bool bounded : {false, true}) {
        check_exchange(mesh, Placement::contiguous(experts, shape.expert), crowded,
                       bounded ? Rows::by_tokens : Rows::counted);
        check_exchange(mesh, scattered(shape.expert), crowded, bounded ? Rows::by_choices : Rows::counted);
      }
    }
  }
}

/// All tokens choose the same expert: there is room for all rows of a rank, but not for those of one expert.
TEST(TokenExchange, RefusesMoreRowsThanTheBounds) {
  const Stream stream = CpuStream(1);
  const ProcessGroup group = test_world();
  Hop hop{.group = &group, .rank_of = {}, .rows = {}, .pairs = {}};
  for (int rank = 0; rank < group.size(); ++rank) hop.rank_of.push_back(rank);
  const Tensor index = i32_tensor(stream, {3, 1}, {0, 0, 0});
  EXPECT_NO_THROW(bounded_exchange(stream, hop, index, {.tokens = 3, .choices = 3}));
  EXPECT_THROW(bounded_exchange(stream, hop, index, {.tokens = 3, .choices = 2}), Error);
  EXPECT_THROW(bounded_exchange(stream, hop, index, {.tokens = 2, .choices = 2}), Error);
  EXPECT_NO_THROW(plan_rows(stream, 2, index, {.bounds = RowBounds{.tokens = 3, .choices = 3}}));
  EXPECT_THROW(plan_rows(stream, 2, index, {.bounds = RowBounds{.tokens = 3, .choices = 2}}), Error);
}

/// Returns x, and calls a function in each direction.
struct Calls {
  std::function<void()> forwards, backwards;

  struct Saved {};
  Tensor forward(const Stream&, Saved&, const Tensor& x) const {
    forwards();
    return x;
  }
  std::array<Tensor, 1> backward(const Stream&, Saved&, const Tensor& dy) const {
    backwards();
    return {dy};
  }
};

/// Rank 0 sends nothing until rank 1 has run the `meanwhile` operations.
TEST(TokenExchange, RanksGoOnWhileTokensTravel) {
  const Mesh mesh = Mesh::create(test_world(), {.expert = test_world().size()});
  const int rank = mesh.world.rank();
  if (mesh.world.size() == 1) GTEST_SKIP() << "one rank";
  const Stream stream = CpuStream(1);
  const Placement placement = Placement::contiguous(experts, mesh.shape.expert);
  const ExpertRoute route = route_of(placement, mesh.expert_hops(), {.k = top_k, .choices = choices});
  const Local local = local_of(rank, false);
  const Tensor message = Tensor::zeros(stream, DType::i64, {1});
  const auto hear = [&] {
    if (rank == 0) mesh.world.receive_async(message, 1).wait();
  };
  const auto tell = [&] {
    if (rank == 1) mesh.world.send_async(message, 0).wait();
  };
  Tape tape(stream);
  const Variable x = tape.leaf(tensor_of(stream, {local.tokens, hidden}, local.x));
  const Variable gates = tape.leaf(tensor_of(stream, {local.tokens, top_k}, local.gates));
  const Tensor index = i32_tensor(stream, {local.tokens, top_k}, local.index);
  const auto exchange = plan_exchange(stream, route.hops.front(), index);
  hear();
  Variable other;
  const TokensAndChoices here = dispatched(tape, exchange, {.x = x, .gates = gates, .index = index}, [&] {
    other = tape.apply(Calls{tell, tell}, x);
  });
  const Variable y = tape.apply(SumAnswers{exchange}, tape.apply(Calls{[] {}, hear}, here.x));
  tape.backward({{y, x.value}, {other, x.value}});
  std::vector<double> ranks_of_token;
  for (std::int64_t t = 0; t < local.tokens; ++t) {
    std::set<int> owners;
    for (std::int64_t j = 0; j < top_k; ++j) {
      const std::int32_t expert = local.index[static_cast<std::size_t>(t * top_k + j)];
      if (expert >= 0 && expert < experts) owners.insert(placement.owner[static_cast<std::size_t>(expert)]);
    }
    ranks_of_token.push_back(static_cast<double>(owners.size()));
  }
  for (std::int64_t i = 0; i < x.value.size(); ++i) {
    const double value = local.x[static_cast<std::size_t>(i)], n = ranks_of_token[static_cast<std::size_t>(i / hidden)];
    EXPECT_NEAR(y.value.data<double>()[i], n * value, 1e-12);
    EXPECT_NEAR(tape.gradient(x).data<double>()[i], (n + 1) * value, 1e-12);
  }
}

TEST(TokenExchange, IsNotNeededInAGroupOfOne) {
  check_exchange(Mesh::create(ProcessGroup::self(), {}), Placement::contiguous(experts, 1), false);
}

}  // namespace
}  // namespace lyceum
