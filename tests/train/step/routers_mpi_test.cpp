#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"
#include "train/eval/evaluator.h"

namespace lyceum {
namespace {

Config biased_config(RouterKind router) {
  Config config = tiny_config();
  config.moe.router = router;
  config.moe.gates = Gates::renormalized;
  config.balance.z_loss = 0;
  config.balance.bias_rate = 0.03;
  return config;
}

/// Returns the values of this rank's tensors whose names end in `ending`. The keys are the names.
std::map<std::string, std::vector<float>> tensors_of(const TinyTraining& training, const std::string& ending) {
  std::map<std::string, std::vector<float>> all;
  for (const Trajectory::Slice& slice : training.weights()) {
    if (slice.name.ends_with(ending)) all[slice.name] = slice.values;
  }
  return all;
}

class BiasedRouter : public testing::TestWithParam<RouterKind> {};

TEST_P(BiasedRouter, BiasGoesByTheCountsOfTheWholeBatch) {
  Config config = biased_config(GetParam());
  config.parallel.expert = world_size();
  config.batch.micro = 1;
  TinyTraining training(config, test_world());
  std::map<std::string, std::vector<double>> expected;
  for (int step = 0; step < 3; ++step) {
    const StepResult result = training.run(step, 1).front();
    for (const RoutingSums& layer : result.routing) {
      const std::string name = "model/layers/" + std::to_string(layer.id.layer) + "/mlp/gate/e_score_correction_bias";
      std::vector<double>& bias = expected[name];
      bias.resize(static_cast<std::size_t>(layer.experts), 0.0);
      std::vector<std::int64_t> load(bias.size(), 0);
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < layer.counts.size(); ++i) {
        load[i % load.size()] += layer.counts[i];
        sum += layer.counts[i];
      }
      for (std::size_t e = 0; e < load.size(); ++e) {
        const std::int64_t own = load[e] * layer.experts;
        bias[e] += own < sum ? 0.03 : own > sum ? -0.03 : 0;
      }
    }
  }
  ASSERT_EQ(expected.size(), 2u);
  const auto found = tensors_of(training, "mlp/gate/e_score_correction_bias");
  for (const auto& [name, values] : found) {  // empty on some ranks
    ASSERT_EQ(values.size(), expected.at(name).size());
    for (std::size_t e = 0; e < values.size(); ++e) EXPECT_NEAR(values[e], expected.at(name)[e], 1e-6) << name;
  }
  std::array<std::int64_t, 1> owners{std::ssize(found)};
  training.setup().mesh.world.all_reduce(std::span(owners));
  EXPECT_EQ(owners[0], 2);
}

TEST_P(BiasedRouter, AStepThatIsLeftOutMovesNoBias) {
  Config config = biased_config(GetParam());
  config.run.audit_every = 0;  // an audit would find the changed weight
  TinyTraining training(config, ProcessGroup::self());
  training.run(0, 1);
  const auto before = tensors_of(training, "bias");
  float& weight = training.model().units().back()->values().data<float>()[0];
  const float good = std::exchange(weight, NAN);
  EXPECT_TRUE(training.run(1, 1).front().skipped);
  weight = good;
  EXPECT_EQ(tensors_of(training, "bias"), before);
  EXPECT_FALSE(training.run(2, 1).front().skipped);
  EXPECT_NE(tensors_of(training, "bias"), before);
}

INSTANTIATE_TEST_SUITE_P(All, BiasedRouter, testing::Values(RouterKind::sigmoid, RouterKind::sqrt_softplus),
                         [](const auto& info) { return name_of(info.param); });

/// Parameters without gradients are in checkpoints, but have no moments and are not part of norms.
TEST(UntrainedParameters, AreValuesAlone) {
  Config config = tiny_config();
  config.moe.router = RouterKind::random;
  config.optim.weight_decay = 0.5;
  TinyTraining training(config, ProcessGroup::self());
  const auto before = tensors_of(training, "mlp/gate/weight");
  ASSERT_EQ(before.size(), 2u);
  const std::vector<StepResult> steps = training.run(0, 2);
  const auto after = tensors_of(training, "mlp/gate/weight");
  EXPECT_EQ(after, before);
  double squares = 0;
  for (const Trajectory::Slice& slice : training.weights()) {
    EXPECT_FALSE(slice.name.starts_with("optimizer/") && slice.name.ends_with("mlp/gate/weight")) << slice.name;
    if (slice.name.starts_with("optimizer/") || slice.name.ends_with("mlp/gate/weight")) continue;
    for (const float value : slice.values) squares += static_cast<double>(value) * value;
  }
  expect_close(steps.back().weight_norm, std::sqrt(squares), 1e-9, "weight norm");
  // Their initial values are those of a trained router.
  config.moe.router = RouterKind::softmax;
  EXPECT_EQ(tensors_of(TinyTraining(config, ProcessGroup::self()), "layers/1/mlp/gate/weight").begin()->second,
            before.begin()->second);
}

/// Returns, for each layer, the number of tokens that have a first, second, … choice [k].
std::vector<std::vector<std::int64_t>> tokens_by_rank(const std::vector<RoutingSums>& routing) {
  std::vector<std::vector<std::int64_t>> all;
  for (const RoutingSums& layer : routing) {
    std::vector<std::int64_t>& ranks = all.emplace_back(static_cast<std::size_t>(layer.top_k), 0);
    for (std::size_t i = 0; i < layer.counts.size(); ++i) {
      ranks[i / static_cast<std::size_t>(layer.experts)] += layer.counts[i];
    }
  }
  return all;
}

TEST(TopKStart, GrowsFromStepToStepAndIsNotForValidation) {
  Config config = tiny_config();
  config.parallel.expert = world_size();
  config.moe.top_k_start = 1;
  config.run.steps = 3;
  TinyTraining training(config, test_world());
  const std::int64_t tokens = config.batch.global * config.batch.seq_len;
  const auto expect_choices = [&](const std::vector<RoutingSums>& routing, std::size_t chosen, std::int64_t all) {
    std::vector<std::int64_t> expected(3, 0);
    std::fill_n(expected.begin(), chosen, all);
    const auto found = tokens_by_rank(routing);
    ASSERT_EQ(found.size(), 2u);
    for (const auto& ranks : found) EXPECT_EQ(ranks, expected) << chosen;
  };
  const std::vector<StepResult> results = training.run(0, 3);
  for (std::size_t step = 0; step < results.size(); ++step) expect_choices(results[step].routing, step + 1, tokens);
  TinyTraining fresh(config, test_world());
  fresh.run(0, 1);
  fresh.settle();
  const Evaluation evaluation = evaluate(fresh.model(), fresh.setup(), fresh.config(), fresh.loader(), 1);
  expect_choices(evaluation.routing, 3, evaluation.tokens);
}

/// Choices beyond an expert's capacity are dropped, and counted both among all choices and separately. Validation drops
/// none.
TEST(CapacityFactor, LeavesOutWhatExpertsHaveNoRoomFor) {
  Config config = tiny_config();
  config.parallel.expert = world_size();
  config.moe.capacity_factor = 0.5;  // ⌈0.5 · 3 · 12 / 9⌉ = 2 tokens of a sequence
  TinyTraining training(config, test_world());
  const StepResult result = training.run(0, 1).front();
  ASSERT_EQ(result.routing.size(), 2u);
  for (const RoutingSums& layer : result.routing) {
    ASSERT_EQ(layer.dropped.size(), layer.counts.size());
    std::vector<std::int64_t> taken(static_cast<std::size_t>(layer.experts), 0);
    std::int64_t counted = 0, dropped = 0;
    for (std::size_t i = 0; i < layer.counts.size(); ++i) {
      taken[i % taken.size()] += layer.counts[i] - layer.dropped[i];
      counted += layer.counts[i];
      dropped += layer.dropped[i];
    }
    EXPECT_EQ(counted, config.batch.global * config.batch.seq_len * config.moe.top_k);
    EXPECT_GT(dropped, 0);
    for (const std::int64_t tokens : taken) EXPECT_LE(tokens, 2 * config.batch.global);
  }
  training.settle();
  const Evaluation evaluation = evaluate(training.model(), training.setup(), training.config(), training.loader(), 1);
  for (const RoutingSums& layer : evaluation.routing) {
    EXPECT_EQ(layer.dropped, std::vector<std::int64_t>(layer.counts.size(), 0));
  }
}

struct RouterCase {
  const char* name;
  RouterKind kind;
  bool limited = false, attention = false;
};

/// A run resumes with the same bits on the same mesh, and within rounding on another one.
TEST(Routers, ResumeWithTheSameBits) {
  const int world = world_size();
  for (const auto& [name, kind, limited, attention] :
       {RouterCase{"sigmoid", RouterKind::sigmoid}, RouterCase{"sqrt_softplus", RouterKind::sqrt_softplus},
        RouterCase{"random", RouterKind::random}, RouterCase{"noisy", RouterKind::noisy},
        RouterCase{"mlp", RouterKind::mlp}, RouterCase{"hash", RouterKind::hash},
        RouterCase{"sigmoid, limited", RouterKind::sigmoid, true},
        RouterCase{"noisy, limited", RouterKind::noisy, true},
        RouterCase{"noisy, with attention experts", RouterKind::noisy, false, true}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      Config config = scores_of(kind) != Scores::softmax ? biased_config(kind) : tiny_config();
      config.moe.router = kind;
      config.moe.router_hidden = 10;
      if (kind == RouterKind::hash) {
        config.moe.top_k = 1;
        config.balance = {};
      }
      if (kind == RouterKind::sqrt_softplus) {  // also covers experts without weights
        config.moe.zero_experts = config.moe.copy_experts = 2;
        config.moe.latent_hidden = 10;
      }
      if (attention) {
        config.model.attention = AttentionKind::experts;
        config.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
      }
      if (limited) {
        config.run.steps = 4;
        config.moe.top_k_start = 1;
        config.moe.capacity_factor = 0.8;
      }
      config.parallel.zero = 3;
      config.parallel.expert = world;
      const ProcessGroup all = test_world();
      const SharedDirectory directory(all);
      TinyTraining whole(config, test_world(), type);
      whole.run(0, 2);
      save(whole, directory.path(), 2);
      const std::vector<StepResult> expected = whole.run(2, 2);
      TinyTraining parts(config, test_world(), type);
      const std::vector<StepResult> resumed = resume(parts, directory.path(), 2, 2);
      EXPECT_EQ(parts.weights(), whole.weights()) << name;
      for (std::size_t s = 0; s < expected.size(); ++s) {
        EXPECT_EQ(resumed[s].loss, expected[s].loss) << name;
        EXPECT_EQ(resumed[s].routing[0].dropped, expected[s].routing[0].dropped) << name;
      }
      if (type == DType::bf16) continue;
      Config other = config;
      other.parallel = {.tensor = std::min(world, 2)};
      TinyTraining elsewhere(other, test_world());
      expect_same_steps(resume(elsewhere, directory.path(), 2, 2), expected, name);
    }
  }
}

}  // namespace
}  // namespace lyceum
