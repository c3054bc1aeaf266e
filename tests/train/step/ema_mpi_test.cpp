// The moving average of the weights (optim.ema) on every mesh, in checkpoints and after skipped steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

constexpr double ema_decay = 0.8;

Config averaged_run(UpdateRuleName rule) {
  Config config = tiny_config();
  config.optim.rule = rule;
  config.optim.lr = rule == UpdateRuleName::muon ? 3e-3 : 1e-2;
  config.optim.ema = ema_decay;
  return config;
}

std::vector<ParallelConfig> averaged_meshes(int world) {
  std::vector<ParallelConfig> all;
  for (int zero = 0; zero <= 3; ++zero) all.push_back({.expert = world, .zero = zero});
  all.push_back({.tensor = 2, .expert = 2, .zero = 2, .sequence = true});
  all.push_back({.pipeline = 2, .expert_tensor = 2, .zero = 1});
  all.push_back({.pipeline = 2, .zero = 3});
  return all;
}

/// This rank's weights or averages, by the name of the weight and its box.
using NamedValues = std::map<std::string, std::vector<double>>;
NamedValues named_values(const TinyTraining& training, std::string_view prefix) {
  NamedValues values;
  for (const Trajectory::Slice& slice : training.weights()) {
    if (!slice.name.starts_with(prefix) || (prefix.empty() && is_optimizer_state(slice.name))) continue;
    values[slice.name.substr(prefix.size()) + slice.box.text()] = {slice.values.begin(), slice.values.end()};
  }
  return values;
}

/// The average, computed from the weights after each step in double.
class AverageOracle {
 public:
  explicit AverageOracle(NamedValues start) : average_(std::move(start)) {}
  void add(const NamedValues& weights) {
    for (auto& [name, average] : average_) {
      const std::vector<double>& now = weights.at(name);
      for (std::size_t i = 0; i < average.size(); ++i) average[i] = ema_decay * average[i] + (1 - ema_decay) * now[i];
    }
  }
  void expect(const NamedValues& averages, const std::string& what) const {
    EXPECT_FALSE(averages.empty()) << what;
    for (const auto& [name, values] : averages) {
      const std::vector<double>& expected = average_.at(name);
      ASSERT_EQ(values.size(), expected.size()) << what << ' ' << name;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(std::abs(values[i] - expected[i]) <= 2e-6 * (1 + std::abs(expected[i])))
            << what << ' ' << name << ": " << values[i] << " for " << expected[i];
      }
    }
  }

 private:
  NamedValues average_;
};

void run_with(AverageOracle& oracle, TinyTraining& training, int first, int count) {
  for (int step = first; step < first + count; ++step) {
    training.run(step, 1);
    oracle.add(named_values(training, ""));
  }
}

TEST(WeightAverage, FollowsTheWeightsOnEveryMesh) {
  const int world = world_size();
  for (const UpdateRuleName rule : {UpdateRuleName::adamw, UpdateRuleName::muon}) {
    for (const ParallelConfig& parallel : averaged_meshes(world)) {
      Config config = averaged_run(rule);
      config.parallel = parallel;
      if (!contradictions(config, world).empty() || half_has_same_axes(parallel, world)) continue;
      TinyTraining training(config, test_world());
      const NamedValues start = named_values(training, "");
      AverageOracle oracle(start);
      run_with(oracle, training, 0, 16);
      const NamedValues averages = named_values(training, average_prefix);
      EXPECT_EQ(averages.size(), start.size());  // no tensor of this model is frozen or a buffer
      oracle.expect(averages, mesh_shape(parallel).text(world) + " zero " + std::to_string(parallel.zero));
    }
  }
}

TEST(WeightAverage, FollowsTheMastersOfABf16Model) {
  Config config = averaged_run(UpdateRuleName::adamw);
  config.parallel = {.zero = 2};
  TinyTraining training(config, test_world(), DType::bf16);
  AverageOracle oracle(named_values(training, ""));
  run_with(oracle, training, 0, 4);
  oracle.expect(named_values(training, average_prefix), "bf16");
}

/// A run continues on another mesh as one that did not stop.
TEST(WeightAverage, ResumesOnAnotherMesh) {
  const int world = world_size();
  const ProcessGroup all = test_world();
  const SharedDirectory directory(all);
  Config config = averaged_run(UpdateRuleName::muon);
  config.parallel = {.expert = world, .zero = 3};
  TinyTraining first(config, test_world());
  first.run(0, 8);
  save(first, directory.path(), 8);
  for (const ParallelConfig& parallel : averaged_meshes(world)) {
    Config own = config;
    own.parallel = parallel;
    if (!contradictions(own, world).empty()) continue;
    TinyTraining second(own, test_world());
    CheckpointReader reader(resolve_checkpoint(directory.path()));
    second.load(reader, 8);
    for (const Trajectory::Slice& slice : second.weights()) {
      std::vector<float> saved(slice.values.size());
      reader.read(slice.name, slice.box, saved.data());
      EXPECT_EQ(slice.values, saved) << slice.name;
    }
    AverageOracle oracle(named_values(second, average_prefix));
    run_with(oracle, second, 8, 8);
    oracle.expect(named_values(second, average_prefix), mesh_shape(parallel).text(world));
  }
}

TEST(WeightAverage, StartsFromTheWeightsIfTheCheckpointHasNone) {
  const ProcessGroup all = test_world();
  const SharedDirectory directory(all);
  Config config = averaged_run(UpdateRuleName::adamw);
  config.parallel = {.expert = world_size(), .zero = 1};
  config.optim.ema = 0;
  TinyTraining without(config, test_world());
  without.run(0, 3);
  save(without, directory.path(), 3);
  EXPECT_TRUE(named_values(without, average_prefix).empty());
  config.optim.ema = ema_decay;
  TinyTraining with(config, test_world());
  with.run(0, 1);  // so that there is an average of other weights
  with.settle();
  with.load(CheckpointReader(resolve_checkpoint(directory.path())), 3);
  EXPECT_EQ(named_values(with, average_prefix), named_values(with, ""));
  AverageOracle oracle(named_values(with, ""));
  run_with(oracle, with, 3, 3);
  oracle.expect(named_values(with, average_prefix), "turned on later");
}

/// Frozen tensors have no average, and frozen rows have their own values as the average, bit for bit.
TEST(WeightAverage, OfFrozenRowsIsTheirValues) {
  Config config = averaged_run(UpdateRuleName::adamw);
  config.optim.train_only = {"model/layers/*/mlp/gate/weight[7:]", "model/layers/2/mlp/experts/8/*"};
  config.parallel = {.zero = 1};
  TinyTraining training(config, ProcessGroup::self());
  training.run(0, 4);
  const NamedValues weights = named_values(training, ""), averages = named_values(training, average_prefix);
  EXPECT_FALSE(averages.contains("lm_head/weight[0:61,0:24]"));
  for (const char* layer : {"1", "2"}) {
    const std::string router = std::string("model/layers/") + layer + "/mlp/gate/weight[0:9,0:24]";
    ASSERT_TRUE(averages.contains(router));
    const std::vector<double>&a = averages.at(router), &w = weights.at(router);
    EXPECT_TRUE(std::equal(a.begin(), a.begin() + 7 * 24, w.begin()));
    EXPECT_FALSE(std::equal(a.begin() + 7 * 24, a.end(), w.begin() + 7 * 24));
  }
}

TEST(WeightAverage, ASkippedStepLeavesIt) {
  Config config = averaged_run(UpdateRuleName::adamw);
  config.run.audit_every = 0;  // the test changes a weight
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world());
  training.run(0, 2);
  const NamedValues before = named_values(training, average_prefix);
  const UnitShare& spoiled = training.optimizer().shares().front();
  training.settle();
  const float kept = spoiled.values.data<float>()[0];
  spoiled.values.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(training.run(2, 1).front().skipped);
  spoiled.values.data<float>()[0] = kept;
  EXPECT_EQ(named_values(training, average_prefix), before);
}

/// Readers that use averages get them under the names of the weights.
TEST(WeightAverage, IsReadInPlaceOfTheWeights) {
  const ProcessGroup all = test_world();
  const SharedDirectory directory(all);
  Config config = averaged_run(UpdateRuleName::adamw);
  config.parallel = {.expert = world_size(), .zero = 1};
  TinyTraining training(config, test_world());
  training.run(0, 2);
  save(training, directory.path(), 2);
  CheckpointReader reader(resolve_checkpoint(directory.path())), plain(resolve_checkpoint(directory.path()));
  reader.use_averages();
  for (const CheckpointReader::Entry& entry : plain.tensors()) {
    if (is_optimizer_state(entry.name)) continue;
    std::vector<float> read(static_cast<std::size_t>(entry.shape.size())), expected(read.size()), weights(read.size());
    const Box whole = Box::whole(entry.shape);
    reader.read(entry.name, whole, read.data());
    plain.read(std::string(average_prefix) + entry.name, whole, expected.data());
    plain.read(entry.name, whole, weights.data());
    EXPECT_EQ(read, expected) << entry.name;
    EXPECT_NE(read, weights) << entry.name;
  }
}

}  // namespace
}  // namespace lyceum
