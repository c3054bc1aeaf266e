#include <gtest/gtest.h>

#include "autograd/routing.h"
#include "model/routing/balance_loss.h"
#include "parallel/tensor/token_layout.h"
#include "support/op_check.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t experts = 5, top_k = 2, sequences = 3;

/// Returns the logits of all tokens, the same on all ranks. Some experts are preferred.
Tensor logits_of(const Stream& stream, std::int64_t tokens) {
  const Philox random(4, "routing");
  std::vector<double> logits(static_cast<std::size_t>(tokens * experts));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = random.normal(i) + (i % experts < 2 ? 1 : 0);
  }
  return tensor_of(stream, {tokens, experts}, logits);
}

struct Results {
  std::vector<double> losses;
  std::vector<double> d_logits;
};

/// Returns the losses of the tokens of range `run`, and the gradient of their weighted sum, with different weights.
Results losses_of(const Stream& stream, const Tensor& all, const TokenLayout& layout, const ProcessGroup* batch,
                  const RunningLoads::Sums& running = {}) {
  const Range run = layout.own();
  const Placement devices = Placement::contiguous(experts, 2);
  Tape tape(stream);
  const Variable logits = tape.leaf(all.slice(run.first, run.count));
  const auto [gates, index, load] = tape.apply(Route{.k = top_k,
                                                     .entropy = true,
                                                     .sequences = layout.sequences(),
                                                     .seq_len = layout.seq_len(),
                                                     .first = run.first},
                                               logits);
  const auto losses = tape.apply(BalanceLoss{.expert_factor = 0.7,
                                             .device_factor = 1.3,
                                             .z_factor = 0.4,
                                             .information_factor = 0.9,
                                             .concentration_factor = 0.6,
                                             .devices = &devices,
                                             .top_k = top_k,
                                             .seq_len = layout.seq_len(),
                                             .batch = batch,
                                             .running = running},
                                 layout.sum_over_ranks(tape, load));
  Results results;
  std::vector<Tape::Seed> seeds;
  for (const Variable& loss : losses) {
    results.losses.push_back(*loss.value.data<double>());
    seeds.push_back(tape.seed(loss, 0.1 * static_cast<double>(seeds.size() + 1)));
  }
  tape.backward(seeds);
  results.d_logits = values_of<double>(stream, tape.gradient(logits));
  return results;
}

/// A rank's range of tokens may end anywhere in a sequence; some ranks have no tokens.
TEST(BalanceLossOnRanks, SharedTokensGiveTheLossOfTheWholeSequences) {
  const ProcessGroup group = test_world(), self = ProcessGroup::self();
  const Stream stream = CpuStream(1);
  for (const std::int64_t seq_len : {7, 2}) {
    for (const ProcessGroup* batch : {static_cast<const ProcessGroup*>(nullptr), &self}) {
      const Tensor logits = logits_of(stream, sequences * seq_len);
      const Results whole = losses_of(stream, logits, {sequences * seq_len, seq_len}, batch);
      const TokenLayout layout(group, seq_len == 7, sequences * seq_len, seq_len);
      const Results run = losses_of(stream, logits, layout, batch);
      for (std::size_t i = 0; i < whole.losses.size(); ++i) EXPECT_NEAR(run.losses[i], whole.losses[i], 1e-13) << i;
      ASSERT_EQ(std::ssize(run.d_logits), layout.own().count * experts);
      for (std::size_t i = 0; i < run.d_logits.size(); ++i) {
        const double expected = whole.d_logits[static_cast<std::size_t>(layout.own().first * experts) + i];
        EXPECT_TRUE(std::abs(run.d_logits[i] - expected) <= 1e-14);
      }
    }
  }
}

/// Counts are summed over the sequences of all data ranks with balance.scope = batch.
TEST(BalanceLossOnRanks, BatchCountsAreOfAllRanks) {
  const ProcessGroup data = test_world(), self = ProcessGroup::self();
  const Stream stream = CpuStream(1);
  const std::int64_t seq_len = 4, own = sequences * seq_len;
  const Tensor logits = logits_of(stream, own * data.size());
  const Results all = losses_of(stream, logits, {own * data.size(), seq_len}, &self);
  const Results part = losses_of(stream, logits.slice(own * data.rank(), own), {own, seq_len}, &data);
  std::vector<double> sums = part.losses;
  data.all_reduce(std::span(sums));
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], all.losses[i], 1e-12) << i;
  for (std::size_t i = 0; i < part.d_logits.size(); ++i) {
    const double expected = all.d_logits[static_cast<std::size_t>(own * data.rank() * experts) + i];
    EXPECT_TRUE(std::abs(part.d_logits[i] - expected) <= 1e-14);
  }
}

/// A pass with balance.scope = global reads the counts and probabilities of the passes before it and of itself, of all
/// data ranks. So it has the gradients that it has in a batch of all these sequences. A pass that is computed again,
/// after later ones, reads the same.
TEST(BalanceLossOnRanks, GlobalCountsAreOfTheStepSoFar) {
  const ProcessGroup data = test_world(), self = ProcessGroup::self();
  const Stream stream = CpuStream(1);
  const std::int64_t seq_len = 4, own = sequences * seq_len, pass = own * data.size(), passes = 3;
  const Tensor logits = logits_of(stream, pass * passes);
  Config config;
  config.balance = {.expert = 0.7, .scope = BalanceScope::global, .mutual_information = 0.9};
  const Mixture mixture{.id = {2}, .k = top_k, .widths = std::vector<std::int64_t>(experts, 8)};
  const RunningLoads loads(stream, config, {&mixture, 1}, passes);
  const auto run = [&](std::int64_t p) {
    return losses_of(stream, logits.slice(pass * p + own * data.rank(), own), {own, seq_len}, &data,
                     loads.at(mixture.id, RunningLoads::Of::router, p));
  };
  std::vector<Results> first;
  for (std::int64_t p = 0; p < passes; ++p) first.push_back(run(p));
  for (std::int64_t p = 0; p < passes; ++p) {
    const Results so_far = losses_of(stream, logits.slice(0, pass * (p + 1)), {pass * (p + 1), seq_len}, &self);
    const Results& mine = first[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < mine.d_logits.size(); ++i) {
      const auto at = static_cast<std::size_t>((pass * p + own * data.rank()) * experts) + i;
      EXPECT_TRUE(std::abs(mine.d_logits[i] - so_far.d_logits[at]) <= 1e-14) << "pass " << p;
    }
  }
  for (const std::int64_t p : {0, 2, 1, 0}) {
    const Results again = run(p);
    EXPECT_EQ(again.losses, first[static_cast<std::size_t>(p)].losses) << "pass " << p;
    EXPECT_EQ(again.d_logits, first[static_cast<std::size_t>(p)].d_logits) << "pass " << p;
  }
  EXPECT_THROW(loads.at({1}, RunningLoads::Of::router, 0), Error);
  EXPECT_THROW(loads.at(mixture.id, RunningLoads::Of::router, passes), Error);
}

}  // namespace
}  // namespace lyceum
