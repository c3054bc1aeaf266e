#include "kernels/muon.h"

#include <tuple>

#include "core/device_table.h"
#include "support/grid.h"
#include "support/tested_stream.h"

namespace lyceum {
namespace {

constexpr double lr = 3e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, clip = 0.7, mu = 0.9;

/// A tensor of spans with both rules, and the flat memory of its weights and states.
template <class T>
struct Problem {
  using A = Accumulator<T>;
  static constexpr std::int64_t count = 5000;
  // Spans change within blocks, and where AdamW's second state is not aligned.
  const std::vector<UpdateSpan> spans{{.end = 101, .weight_decay = 0.1, .rule = 0, .states = 2, .without = 0},
                                      {.end = 3000, .weight_decay = 0.2, .rule = 1, .states = 1, .without = 0},
                                      {.end = 3003, .weight_decay = 0, .rule = 0, .states = 2, .without = 2899},
                                      {.end = 3004, .weight_decay = 0, .rule = 1, .states = 1, .without = 2899},
                                      {.end = 3200, .weight_decay = 0.1, .rule = 0, .states = 2, .without = 2900},
                                      {.end = count, .weight_decay = 0.1, .rule = 1, .states = 1, .without = 2900}};
  static constexpr std::int64_t second = 101 + 3 + 196;  // elements with a second state

  Stream stream = tested_stream();
  std::int64_t blocks = flat_blocks_of(count);
  Tensor master = table_of(stream, Grid<A>::random(1, count, "weight").values),
         first_state = table_of(stream, Grid<A>::random(1, count, "first").values),
         second_state = table_of(stream, std::vector<A>(second, A(0.5))),
         gradient = table_of(stream, Grid<A>::random(1, count, "gradient").values),
         weight = table_of(stream, std::vector<T>(count)),
         digests = table_of(stream, std::vector<std::uint32_t>(static_cast<std::size_t>(blocks))),
         damaged = table_of(stream, std::vector<std::uint32_t>(1)),
         sums = table_of(stream, std::vector<double>(static_cast<std::size_t>(2 * blocks), poison<double>()));
  Tensor span_table = table_of(stream, spans);
  Tensor rows = table_of(stream, std::vector<UpdatedTensor<T, 2>>{{.master = at<A>(master),
                                                                   .state = {at<A>(first_state), at<A>(second_state)},
                                                                   .gradient = at<A>(gradient),
                                                                   .weight = at<T>(weight),
                                                                   .count = count,
                                                                   .first_block = 0,
                                                                   .first_span = 0}});
  Tensor numbers = table_of(stream, std::vector<AdamW::Numbers>{{lr, lr / (1 - beta1), 1 / (1 - beta2)}});

  template <class X>
  static X* at(const Tensor& memory) {
    return reinterpret_cast<X*>(memory.raw());
  }
  template <class X>
  std::vector<X> read(const Tensor& memory) const {
    std::vector<X> values(memory.bytes() / sizeof(X));
    copy_to_host(stream, values.data(), memory.raw(), memory.bytes());
    return values;
  }
  UpdateDigests watch(bool watched) const {
    if (!watched) return {};
    return {writable_rows_of<std::uint32_t>(digests), writable_rows_of<std::uint32_t>(damaged)};
  }
  Tensor verdict(bool skip) const {
    return table_of(stream, std::vector<StepVerdict>{{.gradient_scale = clip, .skip = skip ? 1.0 : 0.0}});
  }
  void check(bool renew) {
    launch(stream, CheckDigests<T, 2>{.tensors = rows_of<UpdatedTensor<T, 2>>(rows),
                                      .spans = rows_of<UpdateSpan>(span_table),
                                      .blocks = blocks,
                                      .digests = watch(true),
                                      .renew = renew});
  }
  void update_momentum(bool watched = false, bool skip = false) {
    const Tensor judged = verdict(skip);
    launch(stream, UpdateMomentum<T>{.tensors = rows_of<UpdatedTensor<T, 2>>(rows),
                                     .spans = rows_of<UpdateSpan>(span_table),
                                     .blocks = blocks,
                                     .momentum = mu,
                                     .verdict = rows_of<StepVerdict>(judged),
                                     .digests = watch(watched)});
  }
  void update_weights(bool watched = false, bool skip = false) {
    const Tensor judged = verdict(skip), offsets = table_of(stream, std::vector<std::int64_t>{0, blocks});
    const AdamW adamw{.beta1 = beta1, .beta2 = beta2, .eps = eps, .numbers = rows_of<AdamW::Numbers>(numbers)};
    launch(stream, UpdateWeights<T, AdamWOrMuon>{.tensors = rows_of<UpdatedTensor<T, 2>>(rows),
                                                 .spans = rows_of<UpdateSpan>(span_table),
                                                 .blocks = blocks,
                                                 .rule = {adamw, {rows_of<AdamW::Numbers>(numbers)}},
                                                 .verdict = rows_of<StepVerdict>(judged),
                                                 .weight_offsets = rows_of<std::int64_t>(offsets).first(1),
                                                 .update_offsets = rows_of<std::int64_t>(offsets).last(1),
                                                 .sums = writable_rows_of<double>(sums),
                                                 .digests = watch(watched)});
  }
  const UpdateSpan& span_of(std::int64_t i) const {
    return *std::ranges::find_if(spans, [&](const UpdateSpan& span) { return i < span.end; });
  }
};

template <class T>
class MuonTest : public testing::Test {};
using Types = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(MuonTest, Types);

template <class A>
void expect_near(A value, double expected, const char* what, std::int64_t i) {
  EXPECT_TRUE(std::abs(static_cast<double>(value) - expected) <= 1e-6 * (1 + std::abs(expected)))
      << what << " " << i << ": " << static_cast<double>(value) << " for " << expected;
}

TYPED_TEST(MuonTest, UpdatesMomentumOfItsSpansOnly) {
  using A = Accumulator<TypeParam>;
  Problem<TypeParam> problem;
  const auto gradient = problem.template read<A>(problem.gradient),
             before = problem.template read<A>(problem.first_state);
  problem.update_momentum();
  const auto u = problem.template read<A>(problem.gradient), after = problem.template read<A>(problem.first_state);
  for (std::size_t i = 0; i < u.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (problem.span_of(at).rule == 0) {
      EXPECT_EQ(u[i], gradient[i]);
      EXPECT_EQ(after[i], before[i]);
      continue;
    }
    const double g = to_double(gradient[i]) * clip, m = mu * to_double(before[i]) + (1 - mu) * g;
    expect_near(after[i], m, "momentum", at);
    expect_near(u[i], (1 - mu) * g + mu * m, "update", at);
  }
}

TYPED_TEST(MuonTest, UpdatesWeightsOfBothRules) {
  using A = Accumulator<TypeParam>;
  Problem<TypeParam> problem;
  const auto weight = problem.template read<A>(problem.master), gradient = problem.template read<A>(problem.gradient),
             first = problem.template read<A>(problem.first_state);
  problem.update_weights();
  const auto after = problem.template read<A>(problem.master), states = problem.template read<A>(problem.first_state),
             second = problem.template read<A>(problem.second_state);
  const auto rounded = problem.template read<TypeParam>(problem.weight);
  std::vector<double> updates(static_cast<std::size_t>(problem.blocks));
  std::size_t next = 0;  // of the second states
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const UpdateSpan& span = problem.span_of(at);
    const double w = to_double(weight[i]);
    double update = lr * (to_double(gradient[i]) + span.weight_decay * w);
    if (span.rule == 0) {
      const double g = to_double(gradient[i]) * clip, m = beta1 * to_double(first[i]) + (1 - beta1) * g,
                   v = beta2 * 0.5 + (1 - beta2) * g * g;
      update = lr * (m / (1 - beta1) / (std::sqrt(v / (1 - beta2)) + eps) + span.weight_decay * w);
      expect_near(states[i], m, "first moment", at);
      expect_near(second[next++], v, "second moment", at);
    } else {
      EXPECT_EQ(states[i], first[i]);
    }
    expect_near(after[i], w - update, "weight", at);
    EXPECT_EQ(to_double(rounded[i]), to_double(round_to<TypeParam>(after[i])));
    updates[i / flat_block] += update * update;
  }
  EXPECT_EQ(next, second.size());
  const auto sums = problem.template read<double>(problem.sums);
  for (std::size_t b = 0; b < updates.size(); ++b) {
    EXPECT_TRUE(std::abs(sums[updates.size() + b] - updates[b]) <= 1e-3 * updates[b]) << b;
  }
}

TYPED_TEST(MuonTest, ASkippedStepChangesNothing) {
  using A = Accumulator<TypeParam>;
  Problem<TypeParam> problem;
  const auto state = [&] {
    return std::tuple(problem.template read<A>(problem.master), problem.template read<A>(problem.first_state),
                      problem.template read<A>(problem.second_state), problem.template read<A>(problem.gradient));
  };
  const auto before = state();
  problem.update_momentum(false, true);
  problem.update_weights(false, true);
  EXPECT_EQ(state(), before);
}

TYPED_TEST(MuonTest, DigestsFollowBothPartsOfAStep) {
  Problem<TypeParam> problem;
  const auto damaged = [&] { return problem.template read<std::uint32_t>(problem.damaged)[0]; };
  problem.check(true);
  for (int step = 0; step < 2; ++step) {
    problem.update_momentum(true);
    problem.check(false);
    EXPECT_EQ(damaged(), 0u) << "after the first part";
    problem.update_weights(true);
    problem.check(false);
    EXPECT_EQ(damaged(), 0u) << "after the second part";
  }
}

/// A change of the momentum before a step is found at its end, although the first part of the step has changed it
/// since.
TYPED_TEST(MuonTest, FindsAChangeBeforeTheStep) {
  using A = Accumulator<TypeParam>;
  for (const std::int64_t element : {50, 2000, 3003, 4999}) {  // of both rules
    Problem<TypeParam> problem;
    problem.check(true);
    auto momentum = problem.template read<A>(problem.first_state);
    momentum[static_cast<std::size_t>(element)] += A(1);
    copy_to_device(problem.stream, problem.first_state.raw(), momentum.data(), problem.first_state.bytes());
    problem.update_momentum(true);
    problem.update_weights(true);
    EXPECT_EQ(problem.template read<std::uint32_t>(problem.damaged)[0], problem.blocks - element / flat_block)
        << element;
  }
}

}  // namespace
}  // namespace lyceum
