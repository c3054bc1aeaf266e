// Training with ZeRO 0 to 3 gives the same results with less memory. Any stage and number of ranks continues from any
// checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <latch>
#include <map>

#include "core/allocator.h"
#include "optim/checkpoint.h"
#include "parallel/data/copies.h"
#include "support/checkpoint_model.h"
#include "support/checkpoint_values.h"
#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/tiny_run.h"
#include "train/step/step.h"

namespace lyceum {
namespace {

/// The objects of a training run, constructed as Trainer does.
struct Training {
  Config config;
  std::unique_ptr<RunSetup> setup;
  TinyData data;
  StagedModel model;
  Zero zero;
  Optimizer optimizer;
  TrainStep step;

  Training(const Config& resolved, ProcessGroup world)
      : config(resolved),
        setup(make_setup(std::move(world), {.expert = config.parallel.expert})),
        data(config.model.vocab),
        model(config, setup->stream, setup->mesh, working_type(config.run), true),
        zero(model.units(), setup->mesh, setup->stream, zero_options(config, setup->mesh)),
        optimizer(config.optim, setup->mesh, setup->stream, zero.shares()),
        step(config, *setup, model, zero, optimizer) {}

  void initialize() {
    zero.initialize(config.run.seed);
    optimizer.adopt_weights();
  }
  std::vector<StepResult> run(int first, int count) {
    const TokenLoader loader = data.loader(config);
    std::vector<StepResult> results;
    for (int s = first; s < first + count; ++s) {
      results.push_back(step.run(loader, s, s * config.batch.global, config.optim.lr));
    }
    return results;
  }
  /// Returns the masters and moments that this rank owns, by logical name and box.
  std::map<std::string, std::vector<float>> owned() const {
    std::map<std::string, std::vector<float>> all;
    for (const CheckpointSlice& slice : checkpoint_slices(optimizer)) {
      all[slice.name + slice.box.text()] = checkpoint_values(slice);
    }
    return all;
  }
};

Config resolved(Config config, int stage, int world) {
  config.parallel.zero = stage;
  resolve(config, world);
  require_none(problems(config, world));
  return config;
}

bool same_bits(const std::map<std::string, std::vector<float>>& a, const std::map<std::string, std::vector<float>>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.size() == y.second.size() &&
                  std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(float)) == 0;
         });
}

void expect_close(const std::vector<StepResult>& run, const std::vector<StepResult>& expected, double tolerance,
                  const std::string& name) {
  for (std::size_t s = 0; s < expected.size(); ++s) {
    EXPECT_TRUE(std::abs(run[s].loss - expected[s].loss) <= tolerance * expected[s].loss) << name << " step " << s;
    EXPECT_TRUE(std::abs(run[s].grad_norm - expected[s].grad_norm) <= 10 * tolerance * expected[s].grad_norm)
        << name << " step " << s << ": " << run[s].grad_norm << " for " << expected[s].grad_norm;
  }
}

/// Expects that the ZeRO stages `first` to `last` give the same bits.
void expect_stages_agree(const Config& config, int first, int last, const std::string& name) {
  constexpr int steps = 3;
  const int world = world_size();
  Training replicated(resolved(config, first, world), test_world());
  replicated.initialize();
  const std::vector<StepResult> expected = replicated.run(0, steps);
  ASSERT_FALSE(expected.back().skipped);
  for (int stage = first + 1; stage <= last; ++stage) {
    Training sharded(resolved(config, stage, world), test_world());
    sharded.initialize();
    const std::vector<StepResult> results = sharded.run(0, steps);
    for (std::size_t s = 0; s < steps; ++s) {
      EXPECT_EQ(results[s].loss, expected[s].loss) << name << " stage " << stage << " step " << s;
      EXPECT_EQ(results[s].grad_norm, expected[s].grad_norm) << name << " stage " << stage << " step " << s;
      EXPECT_EQ(results[s].weight_norm, expected[s].weight_norm) << name << " stage " << stage << " step " << s;
      EXPECT_EQ(results[s].update_norm, expected[s].update_norm) << name << " stage " << stage << " step " << s;
    }
    EXPECT_TRUE(same_bits(sharded.owned(), replicated.owned())) << name << " stage " << stage;
    // Values in the model's precision must be equal, too. Stage 3 holds them only while they are used.
    sharded.zero.await_values();
    for (std::size_t u = 0; u < sharded.model.units().size() && stage < 3; ++u) {
      const Tensor &a = sharded.model.units()[u]->values(), &b = replicated.model.units()[u]->values();
      ASSERT_EQ(a.bytes(), b.bytes());
      EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << name << " stage " << stage << " unit " << u;
    }
  }
}

TEST(ZeroTraining, EveryStageGivesTheSameBits) {
  const int world = world_size();
  for (int expert = 1; expert <= world; expert *= 2) {
    Config config = tiny_config();
    config.parallel.expert = expert;
    expect_stages_agree(config, 0, 3, "ep " + std::to_string(expert));
  }
}

TEST(ZeroTraining, AccumulationRecomputationAndBf16) {
  Config config = tiny_config();
  config.batch.global = 2 * world_size();
  config.batch.micro = 1;
  config.parallel.expert = world_size() > 1 ? world_size() / 2 : 1;
  expect_stages_agree(config, 0, 1, "accumulation");
  expect_stages_agree(config, 2, 3, "accumulation");
  Training once(resolved(config, 1, world_size()), test_world());
  Training each(resolved(config, 2, world_size()), test_world());
  once.initialize();
  each.initialize();
  expect_close(each.run(0, 3), once.run(0, 3), 1e-6, "one sum per step, one sum per micro-batch");
  config.model.recompute = Recompute::full;
  config.run.precision = Precision::bf16;
  expect_stages_agree(config, 0, 1, "accumulation, recomputation, bf16");
  expect_stages_agree(config, 2, 3, "accumulation, recomputation, bf16");
  config.batch.micro = 0;
  config.model.recompute = Recompute::none;
  config.model.tie_embeddings = true;
  expect_stages_agree(config, 0, 3, "bf16, tied");
}

/// The peak of a rank's memory in bytes, computed from the sizes of units.
struct Need {
  std::size_t weights = 0, gradients = 0, optimizer = 0;
};

std::size_t extent(std::int64_t size, int ranks, int rank) {
  const std::int64_t blocks = (size + 1023) / 1024;
  return static_cast<std::size_t>(std::min(size, blocks * (rank + 1) / ranks * 1024) -
                                  std::min(size, blocks * rank / ranks * 1024));
}

Need peak_need(const Training& run, int stage, bool accumulates) {
  const std::size_t value = run.config.run.precision == Precision::bf16 ? 2 : 4, sum = 4;
  const std::size_t states = value == 2 ? 3 : 2;
  Need need;
  std::map<int, std::size_t> layers;  // elements per layer that are gathered and released
  for (const auto& unit : run.model.units()) {
    const ProcessGroup& holders = copies(run.setup->mesh, unit->group());
    // A unit is padded to equal shards if the padding is at most 1/16 of its size.
    const std::int64_t equal = holders.size() * std::int64_t{1024}, padded = (unit->size() + equal - 1) / equal * equal;
    const bool shards = holders.size() > 1;
    const std::int64_t size = shards && padded - unit->size() <= unit->size() / 16 ? padded : unit->size();
    const auto whole = static_cast<std::size_t>(size);
    const std::size_t own = shards ? extent(size, holders.size(), holders.rank()) : whole;
    need.weights += value * (stage == 3 ? own : whole);
    need.gradients += sum * (stage >= 2 ? own : whole);
    need.optimizer += states * 4 * (stage >= 1 ? own : whole);
    layers[unit->layer()] += shards ? whole : 0;
  }
  std::size_t two = 0;
  for (auto layer = layers.begin(); std::next(layer) != layers.end(); ++layer) {
    two = std::max(two, layer->second + std::next(layer)->second);
  }
  // When a backward pass follows another, it begins with the last layer while the gradient sum of the first is pending.
  if (accumulates) two = std::max(two, layers.begin()->second + layers.rbegin()->second);
  if (stage == 3) need.weights += value * two;
  if (stage >= 2) need.gradients += sum * two;
  return need;
}

TEST(ZeroTraining, PeakMemoryIsWhatTheStageNeeds) {
  const int world = world_size();
  for (const bool accumulates : {false, true}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      for (int stage = 0; stage <= 3; ++stage) {
        Config config = tiny_config();
        config.run.precision = precision;
        config.batch.global = 2 * world;
        config.batch.micro = accumulates ? 1 : 2;
        config.parallel.expert = world > 2 ? 2 : 1;
        Training run(resolved(config, stage, world), test_world());
        run.initialize();
        run.run(0, 2);
        const Need need = peak_need(run, stage, accumulates);
        const MemoryUse use = memory_of(run.setup->stream).use();
        const auto peak = [&](MemoryKind kind) { return use.peak[static_cast<std::size_t>(kind)]; };
        const std::string where = name_of(precision) + " stage " + std::to_string(stage);
        EXPECT_EQ(peak(MemoryKind::weights), need.weights) << where;
        EXPECT_EQ(peak(MemoryKind::gradients), need.gradients) << where << (accumulates ? ", accumulation" : "");
        EXPECT_EQ(peak(MemoryKind::optimizer), need.optimizer) << where;
      }
    }
  }
}

TEST(ZeroTraining, TrafficIsWhatTheStageNeeds) {
  const int world = world_size();
  for (int stage = 0; stage <= 3; ++stage) {
    Config config = tiny_config();
    config.batch.global = 2 * world;
    config.batch.micro = 1;
    config.run.precision = Precision::bf16;
    Training run(resolved(config, stage, world), test_world());
    run.initialize();
    run.run(0, 1);
    run.zero.await_values();
    for (const ParameterUnit::Group group : parameter_groups) {
      const auto before = run.zero.traffic(group);
      run.run(1, 1);
      run.zero.await_values();
      std::int64_t whole = 0, own = 0;
      for (const UnitShare& share : run.zero.shares()) {
        if (share.unit->group() != group || world == 1) continue;
        whole += share.unit->size();
        own += share.owned.count;
      }
      const auto after = run.zero.traffic(group);
      EXPECT_EQ(after.reduce_scatter - before.reduce_scatter, (stage < 2 ? 1 : 2) * 4 * whole) << "stage " << stage;
      const std::int64_t gathered = after.all_gather - before.all_gather;
      if (stage < 3) {
        EXPECT_EQ(gathered, (stage == 0 ? 4 : 2) * own) << "stage " << stage;
      } else {  // twice per micro-batch; less for layers that are still gathered when the direction turns
        EXPECT_GE(gathered, 2 * 2 * own);
        EXPECT_LE(gathered, 2 * 4 * own);
      }
    }
  }
}

class ZeroCheckpointTest : public testing::Test {
 protected:
  ProcessGroup world = test_world();
  const SharedDirectory shared{world};
  const std::filesystem::path& root = shared.path();

  CheckpointReader save(const Training& run, std::int64_t step) const {
    const ProcessGroup& group = run.setup->mesh.world;
    write_checkpoint(group, root, {.run_uuid = "test", .step = step, .mesh = "", .config = "", .trainer_state = "{}"},
                     checkpoint_slices(run.optimizer));
    group.barrier();
    return CheckpointReader(root / checkpoint_name(step));
  }
  static void load(Training& run, const CheckpointReader& reader, std::int64_t updates) {
    load_checkpoint(run.optimizer, reader);
    run.zero.values_changed();
    run.optimizer.set_updates(updates);
  }
};

TEST_F(ZeroCheckpointTest, AnyStageGoesOnFromAnyOther) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    Config config = tiny_config();
    config.run.precision = precision;
    config.parallel.expert = world.size() > 1 ? world.size() / 2 : 1;
    Training whole(resolved(config, 0, world.size()), test_world());
    whole.initialize();
    whole.run(0, 4);
    for (int before = 0; before <= 3; ++before) {
      Training first(resolved(config, before, world.size()), test_world());
      first.initialize();
      first.run(0, 2);
      const CheckpointReader reader = save(first, 10 * before + (config.run.precision == Precision::f32 ? 2 : 3));
      EXPECT_EQ(reader.problem(), "");
      const int after = (before + 1) % 4;
      Training second(resolved(config, after, world.size()), test_world());
      load(second, reader, 2);
      second.run(2, 2);
      EXPECT_TRUE(same_bits(second.owned(), whole.owned())) << name_of(precision) << " " << before << " → " << after;
    }
  }
}

TEST_F(ZeroCheckpointTest, ARunThatReturnsToWeightsAloneForgetsItsMoments) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Config config = resolved(tiny_config(), stage, world.size());
    Training run(config, test_world());
    run.initialize();
    std::vector<CheckpointSlice> weights = checkpoint_slices(run.optimizer);
    std::erase_if(weights, [](const CheckpointSlice& slice) { return is_optimizer_state(slice.name); });
    write_checkpoint(run.setup->mesh.world, root,
                     {.run_uuid = "test", .step = stage, .mesh = "", .config = "", .trainer_state = "{}"}, weights);
    run.run(0, 2);
    run.zero.await_values();
    const CheckpointReader reader(root / checkpoint_name(stage));
    load(run, reader, 0);
    run.run(2, 2);
    Training fresh(config, test_world());
    load(fresh, reader, 0);
    fresh.run(2, 2);
    EXPECT_TRUE(same_bits(run.owned(), fresh.owned())) << stage;
  }
}

TEST_F(ZeroCheckpointTest, TrainingGoesOnWhileACheckpointIsWritten) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const int stage : {0, 1, 3}) {
      Config config = tiny_config();
      config.run.precision = precision;
      config.optim.train_only = {"model/layers/1/*"};  // frozen values are stored in run.precision only
      const std::int64_t step = 10 * stage + (config.run.precision == Precision::f32 ? 2 : 3);
      Training run(resolved(config, stage, world.size()), test_world());
      run.initialize();
      run.run(0, 2);
      const CheckpointReader reader = save(run, step);
      std::latch held(1);
      BackgroundCheckpoint checkpoint(
          run.setup->mesh.world, root / "background",
          {.run_uuid = "test", .step = step, .mesh = "", .config = "", .trainer_state = "{}"},
          checkpoint_slices(run.optimizer), [&](std::string_view phase) {
            if (phase == "shard") held.wait();
          });
      const std::vector<StepResult> went_on = run.run(2, 2);
      EXPECT_FALSE(checkpoint.written());
      held.count_down();
      EXPECT_EQ(checkpoint.publish(), "");
      expect_same_checkpoint(root / "background" / checkpoint_name(step), root / checkpoint_name(step));
      Training again(resolved(config, stage, world.size()), test_world());
      load(again, CheckpointReader(root / "background" / checkpoint_name(step)), 2);
      const std::vector<StepResult> resumed = again.run(2, 2);
      for (std::size_t s = 0; s < resumed.size(); ++s) {
        EXPECT_EQ(resumed[s].loss, went_on[s].loss) << name_of(precision) << " " << stage;
        EXPECT_EQ(resumed[s].weight_norm, went_on[s].weight_norm) << name_of(precision) << " " << stage;
        EXPECT_EQ(resumed[s].update_norm, went_on[s].update_norm) << name_of(precision) << " " << stage;
      }
    }
  }
}

TEST_F(ZeroCheckpointTest, AnotherNumberOfRanksReadsTheSameBits) {
  Training run(resolved(tiny_config(), 3, world.size()), test_world());
  run.initialize();
  run.run(0, 1);
  const CheckpointReader reader = save(run, 1);
  // A single rank reads the checkpoint and writes another one, which all ranks read.
  Training alone(resolved(tiny_config(), 2, 1), ProcessGroup::self());
  load(alone, reader, 1);
  for (const auto& [name, values] : alone.owned()) {
    const std::string tensor = name.substr(0, name.find('['));
    const CheckpointReader::Entry* entry = reader.find(tensor);
    ASSERT_NE(entry, nullptr) << tensor;
    std::vector<float> saved(static_cast<std::size_t>(entry->shape.size()));
    reader.read(tensor, Box::whole(entry->shape), saved.data());
    ASSERT_EQ(saved.size(), values.size()) << tensor;
    EXPECT_EQ(std::memcmp(saved.data(), values.data(), saved.size() * sizeof(float)), 0) << tensor;
  }
  if (world.rank() == 0) save(alone, 2);
  world.barrier();
  Training again(resolved(tiny_config(), 3, world.size()), test_world());
  load(again, CheckpointReader(root / checkpoint_name(2)), 1);
  EXPECT_TRUE(same_bits(again.owned(), run.owned()));
}

}  // namespace
}  // namespace lyceum
