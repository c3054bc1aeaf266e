#include <gtest/gtest.h>

#include "model/balance_loss.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 5, top_k = 2, sequences = 3;

/// Scores and choices of all tokens, the same on all ranks.
struct Routing {
  Tensor scores, index;
  Routing(const Stream& stream, std::int64_t tokens)
      : scores(Tensor::empty(stream, DType::f64, {tokens, experts})),
        index(Tensor::empty(stream, DType::i32, {tokens, top_k})) {
    const Philox random(4, "routing");
    const auto number = [](std::int64_t i) { return static_cast<std::uint64_t>(i); };
    for (std::int64_t i = 0; i < scores.size(); ++i) scores.data<double>()[i] = random.uniform(number(i));
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto first = static_cast<std::int32_t>(random.below(3, number(1000 + t)));  // some experts are preferred
      index.data<std::int32_t>()[2 * t] = first;
      index.data<std::int32_t>()[2 * t + 1] = (first + 1 + static_cast<std::int32_t>(t % 3)) % experts;
    }
  }
};

struct Results {
  double expert, device, z;
  std::vector<double> d_scores, d_logits;
};

/// Both losses of the tokens `run`, and their gradients with weights of their own.
Results losses_of(const Stream& stream, const Routing& routing, const TokenLayout& layout, const ProcessGroup* batch) {
  const Range run = layout.own();
  const Placement devices = Placement::contiguous(experts, 2);
  Tape tape(stream);
  const Variable scores = tape.leaf(routing.scores.slice(run.first, run.count)), logits = tape.leaf(scores.value);
  const auto [expert, device] = tape.apply(BalanceLoss{.expert_factor = 0.7,
                                                       .device_factor = 1.3,
                                                       .devices = &devices,
                                                       .layout = layout,
                                                       .index = routing.index.slice(run.first, run.count),
                                                       .batch = batch},
                                           scores);
  const Variable z = tape.apply(ZLoss{.factor = 0.4, .layout = layout}, logits);
  tape.backward({tape.seed(expert, 0.3), tape.seed(device, 0.2), tape.seed(z, 0.1)});
  const auto values = [](const Tensor& x) {
    return std::vector<double>(x.data<double>(), x.data<double>() + x.size());
  };
  return {*expert.value.data<double>(), *device.value.data<double>(), *z.value.data<double>(),
          values(tape.gradient(scores)), values(tape.gradient(logits))};
}

void expect_near(const std::vector<double>& run, const std::vector<double>& whole, std::int64_t first) {
  for (std::size_t i = 0; i < run.size(); ++i) {
    EXPECT_TRUE(std::abs(run[i] - whole[static_cast<std::size_t>(first * experts) + i]) <= 1e-14);
  }
}

/// Runs of tokens end anywhere in a sequence, some ranks have none.
TEST(BalanceLossOnRanks, SharedTokensGiveTheLossOfTheWholeSequences) {
  const ProcessGroup group = ProcessGroup::world(60), self = ProcessGroup::self();
  const Stream stream = CpuStream(1);
  for (const std::int64_t seq_len : {7, 2}) {
    for (const ProcessGroup* batch : {static_cast<const ProcessGroup*>(nullptr), &self}) {
      const Routing routing(stream, sequences * seq_len);
      const Results whole = losses_of(stream, routing, {sequences * seq_len, seq_len}, batch);
      const TokenLayout layout(group, seq_len == 7, sequences * seq_len, seq_len);
      const Results run = losses_of(stream, routing, layout, batch);
      EXPECT_NEAR(run.expert, whole.expert, 1e-13);
      EXPECT_NEAR(run.device, whole.device, 1e-13);
      EXPECT_NEAR(run.z, whole.z, 1e-13);
      expect_near(run.d_scores, whole.d_scores, layout.own().first);
      expect_near(run.d_logits, whole.d_logits, layout.own().first);
    }
  }
}

}  // namespace
}  // namespace lyceum
