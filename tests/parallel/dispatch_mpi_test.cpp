#include <gtest/gtest.h>

#include "core/random.h"
#include "parallel/expert/dispatch.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 11, hidden = 5, top_k = 3;

struct Local {
  std::int64_t tokens;
  std::vector<std::int32_t> index;  // [tokens, k], distinct within a token
  std::vector<double> x, gates;
};

/// What rank r holds: uneven numbers of tokens, some ranks with none, choices crowded on few experts.
Local local_of(int rank, bool crowded) {
  Local local{.tokens = rank % 3 == 2 ? 0 : 4 + 3 * rank, .index = {}, .x = {}, .gates = {}};
  const Philox random(9, "dispatch" + std::to_string(rank));
  for (std::int64_t t = 0; t < local.tokens; ++t) {
    const auto first = static_cast<std::int32_t>(random.below(crowded ? 2 : experts, static_cast<std::uint64_t>(t)));
    for (std::int32_t j = 0; j < top_k; ++j) local.index.push_back((first + j) % static_cast<std::int32_t>(experts));
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

/// Every expert multiplies its rows by its own factor: the answer can be worked out without any exchange.
double factor(std::int64_t expert) { return 1.0 + 0.5 * static_cast<double>(expert); }

struct Scale {
  std::vector<std::int32_t> local_experts;
  std::shared_ptr<const SegmentTable> segments;
  struct Saved {};
  Tensor forward(const Stream& stream, Saved&, const Tensor& x) const {
    const Tensor y = Tensor::zeros(stream, DType::f64, x.shape());
    const Segments rows = segments->view();
    for (std::size_t e = 0; e < local_experts.size(); ++e) {
      for (std::int64_t r = rows.begin[e]; r < rows.begin[e] + rows.rows[e]; ++r) {
        for (std::int64_t h = 0; h < hidden; ++h) {
          y.matrix<double>().row(r)[h] = factor(local_experts[e]) * x.matrix<double>().row(r)[h];
        }
      }
    }
    return y;
  }
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
    return {forward(stream, saved, dy)};
  }
};

/// Experts scattered over the ranks, unequally many on each.
Placement scattered(int ranks) {
  std::vector<double> costs;
  for (std::int64_t e = 0; e < experts; ++e) costs.push_back(static_cast<double>(e * e * 7 % 13));
  return Placement::by_cost(costs, ranks);
}

void check_exchange(const ProcessGroup& group, const Placement& placement, bool crowded) {
  const Stream stream = CpuStream(1);
  const Local local = local_of(group.rank(), crowded);
  const Tensor index = i32_tensor(stream, {local.tokens, top_k}, local.index);
  const auto exchange = plan_exchange(stream, group, placement, index);
  Tape tape(stream);
  const Variable x = tape.leaf(tensor_of(stream, {local.tokens, hidden}, local.x));
  const Variable gates = tape.leaf(tensor_of(stream, {local.tokens, top_k}, local.gates));
  const Variable rows = tape.apply(Dispatch{exchange}, x);
  const std::span<const std::int32_t> held = placement.experts_of(group.rank());
  const Variable answers = tape.apply(Scale{{held.begin(), held.end()}, exchange->segments}, rows);
  const Variable y = tape.apply(Combine{exchange}, answers, gates);
  const Tensor dy = Tensor::empty(stream, DType::f64, {local.tokens, hidden});
  for (std::int64_t i = 0; i < dy.size(); ++i) dy.data<double>()[i] = 0.1 * static_cast<double>(i % 7) - 0.2;
  tape.backward({{y, dy}});

  for (std::int64_t t = 0; t < local.tokens; ++t) {
    double weight = 0;
    for (std::int64_t j = 0; j < top_k; ++j) {
      const auto pair = static_cast<std::size_t>(t * top_k + j);
      weight += local.gates[pair] * factor(local.index[pair]);
      double d_gate = 0;
      for (std::int64_t h = 0; h < hidden; ++h) {
        d_gate += dy.matrix<double>().row(t)[h] * factor(local.index[pair]) *
                  local.x[static_cast<std::size_t>(t * hidden + h)];
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

TEST(ExpertExchange, BringsEveryTokenToItsExpertsAndBack) {
  const ProcessGroup world = ProcessGroup::world(30);
  for (const bool crowded : {false, true}) {  // crowded: most experts get nothing
    check_exchange(world, Placement::contiguous(experts, world.size()), crowded);
    check_exchange(world, scattered(world.size()), crowded);
  }
}
TEST(ExpertExchange, NeedsNoMessagesInAGroupOfOne) {
  check_exchange(ProcessGroup::self(), Placement::contiguous(experts, 1), false);
}

}  // namespace
}  // namespace lyceum
