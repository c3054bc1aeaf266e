// Runs with training stages, interrupted after every step, compared with uninterrupted ones and with runs whose stages
// a user makes by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "config/binding.h"
#include "core/error.h"
#include "support/errors.h"
#include "support/shared_directory.h"
#include "support/tiny_run.h"
#include "train/run/starting_point.h"
#include "train/run/trainer.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t steps = 8;

/// A folder with data that all ranks read, and runs in it.
class StagesTest : public testing::Test {
 protected:
  StagesTest() {
    const Config config = tiny_config();
    for (int file = 0; file < 2; ++file) {
      if (world_.rank() == 0) data_.emplace_back(config.model.vocab, 2000 + 700 * file);
      prefixes_.push_back(world_.broadcast(data_.empty() ? "" : data_.back().prefix(), 0));
    }
  }

  /// Stages 2, 3 and 4 begin with steps 3, 5 and 7: a larger batch; longer sequences with other positions and another
  /// mixture; the mixture of stage 1 with a new schedule.
  Config staged() const {
    Config config = tiny_config();
    const std::string &one = prefixes_[0], &other = prefixes_[1];
    config.data.train = "0.75 " + one + " 0.25 " + other;
    config.data.valid_fraction = 0.2;
    config.eval = {.every = 1, .batches = 1};
    config.run.steps = steps;
    config.run.device = DeviceKind::cpu;
    config.run.replay_every = 3;
    config.run.audit_every = 1;
    config.batch.global = 16;
    config.optim.schedule = LearningRateSchedule::cosine;
    config.checkpoint = {.every = 1, .minutes = 0, .keep = 0, .at_start = true};
    config.routing.every = 3;
    config.training_stages = {
        {.from_step = 3, .values = {{"batch.global", "32"}, {"optim.lr", "0.005"}}},
        {.from_step = 5,
         .values = {{"batch.global", "8"},
                    {"batch.seq_len", "20"},
                    {"data.train", "0.5 " + other + " 0.5 " + one},
                    {"model.rope_base", "50000"}}},
        {.from_step = 7,
         .values = {{"batch.seq_len", "12"}, {"data.train", config.data.train}, {"optim.warmup_steps", "2"}}}};
    return config;
  }

  /// Runs to its end, and returns the console output of rank 0.
  std::string train(Config config, const std::string& name) {
    config.run.dir = folder(name);
    resolve(config, world_.size());
    const int first_stage = presumed_stage(config, world_);
    require_none(problems(config, world_.size(), first_stage));
    const auto setup = make_setup(world_, mesh_shape(config.parallel));
    setup->first_stage = first_stage;
    setup->resources.resize(static_cast<std::size_t>(world_.size()));
    std::ostringstream out;
    EXPECT_EQ(Trainer(config, to_ini(config), *setup, out, {}).run(), ExitCode::done);
    world_.barrier();
    return world_.broadcast(out.str(), 0);
  }

  /// Moves the files of a source to another folder. Returns their new prefix.
  std::string move(const std::string& prefix, const std::string& to) {
    world_.barrier();
    if (world_.rank() == 0) {
      const fs::path from = fs::path(prefix).parent_path();
      fs::create_directories(folder(to));
      for (const auto& file : fs::directory_iterator(from)) {
        fs::copy(file.path(), fs::path(folder(to)) / file.path().filename());
        fs::remove(file.path());
      }
    }
    world_.barrier();
    return (fs::path(folder(to)) / fs::path(prefix).filename()).string();
  }

  std::string folder(const std::string& run) const { return (directory_.path() / run).string(); }

  /// Makes the run `part` of a whole one that was killed after step `step`.
  void cut(const std::string& whole, const std::string& part, std::int64_t step) {
    world_.barrier();  // the other ranks have read the last part
    if (world_.rank() == 0) {
      fs::remove_all(folder(part));
      fs::copy(folder(whole), folder(part), fs::copy_options::recursive);
      for (std::int64_t later = step + 1; later <= steps; ++later) {
        fs::remove_all(fs::path(folder(part)) / "checkpoints" / checkpoint_name(later));
      }
      fs::remove(fs::path(folder(part)) / "checkpoints" / "LATEST");
    }
    world_.barrier();
  }

  /// Returns the tensors of the last checkpoint, with optimizer states.
  std::map<std::string, std::vector<float>> weights(const std::string& run) const {
    const CheckpointReader reader(fs::path(folder(run)) / "checkpoints" / checkpoint_name(steps));
    std::map<std::string, std::vector<float>> values;
    for (const auto& entry : reader.tensors()) {
      std::vector<float>& own = values[entry.name];
      own.resize(static_cast<std::size_t>(entry.shape.size()));
      reader.read(entry.name, Box::whole(entry.shape), own.data());
    }
    return values;
  }

  /// Returns the values of a metric at each step; −1 if it is missing.
  std::vector<double> metric(const std::string& run, const std::string& key) const {
    std::vector<double> values;
    std::ifstream file(fs::path(folder(run)) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) values.push_back(nlohmann::json::parse(line).value(key, -1.0));
    return values;
  }

  void expect_same_end(const std::string& one, const std::string& other) {
    EXPECT_EQ(weights(one), weights(other)) << other;
    for (const char* key : {"loss", "lr", "tokens", "stage", "valid_loss", "grad_norm", "load_imbalance"}) {
      EXPECT_EQ(metric(one, key), metric(other, key)) << other << ": " << key;
    }
  }

  const ProcessGroup world_ = test_world();
  const SharedDirectory directory_{world_};
  std::deque<TinyData> data_;
  std::vector<std::string> prefixes_;
};

/// Meshes of the world's ranks.
std::vector<ParallelConfig> meshes(int world) {
  std::vector<ParallelConfig> all{{}};
  if (world >= 2) all.push_back({.expert = 2, .zero = 2});
  if (world >= 2) all.push_back({.pipeline = 2, .zero = 1});
  if (world >= 4) all.push_back({.pipeline = 2, .tensor = 2, .expert = 2, .zero = 3, .sequence = true});
  return all;
}

TEST_F(StagesTest, AResumedRunEqualsAnUninterruptedOne) {
  int number = 0;
  std::vector<ParallelConfig> tried = meshes(world_.size());
  if (world_.size() == 8) tried.erase(tried.begin(), tried.end() - 1);  // fewer ranks cover the others
  for (const ParallelConfig& parallel : tried) {
    Config config = staged();
    config.parallel = parallel;
    if (parallel.pipeline > 1) config.batch.micro = 1;
    if (number == 1) config.model.recompute = Recompute::selective;
    const std::string name = "whole-" + std::to_string(number++);
    const std::string out = train(config, name);
    EXPECT_THAT(out, HasSubstr("from step 5 on: batch.global = 8"));
    EXPECT_THAT(out, HasSubstr("validation after step 4 (stage 2)"));
    EXPECT_EQ(metric(name, "stage"), (std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4}));
    EXPECT_EQ(metric(name, "tokens"), (std::vector<double>{192, 384, 768, 1152, 1312, 1472, 1568, 1664}));
    // Every step on the first mesh; on the others one between two stages and one within a stage.
    const std::vector<std::int64_t> cuts =
        number == 1 ? std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7} : std::vector<std::int64_t>{2, 5};
    for (const std::int64_t step : cuts) {
      const std::string part = name + "-part";
      cut(name, part, step);
      train(config, part);
      expect_same_end(name, part);
    }
  }
}

/// A user who continues the run with another configuration after each stage gets the same weights.
TEST_F(StagesTest, EqualRunsThatAreContinuedByHand) {
  Config config = staged();
  config.training_stages.resize(2);
  config.training_stages[1].values = {{"model.rope_base", "50000"}};
  config.optim.schedule = LearningRateSchedule::constant;
  train(config, "stages");

  Config hand = config;
  hand.training_stages.clear();
  hand.run.steps = 2;
  hand.optim.schedule_steps = steps;
  train(hand, "hand");
  hand.run.steps = 4;
  hand.batch.global = 32;
  hand.optim.lr = 0.005;
  EXPECT_THAT(train(hand, "hand"), HasSubstr("batch.global = 32 from now on (was 16)"));
  hand.run.steps = steps;
  hand.model.rope_base = 50000;  // another model, so a new run that begins with the checkpoint
  hand.checkpoint.resume = (fs::path(folder("hand")) / "checkpoints" / checkpoint_name(4)).string();
  train(hand, "positions");
  EXPECT_EQ(weights("stages"), weights("positions"));
}

TEST_F(StagesTest, OfThePastCannotChange) {
  const Config config = staged();
  train(config, "whole");
  const auto refused = [&](std::int64_t step, const std::function<void(Config&)>& change) {
    cut("whole", "part", step);
    Config changed = config;
    change(changed);
    return error_of([&] { train(changed, "part"); }, ExitCode::usage);
  };
  EXPECT_THAT(refused(5, [](Config& c) { c.training_stages[0].from_step = 4; }),
              HasSubstr("stage.2.from_step = 4 (was 3)"));
  EXPECT_THAT(refused(5, [](Config& c) { c.training_stages[0].values["batch.global"] = "16"; }),
              HasSubstr("stage.2.batch.global = 16 (was 32)"));
  EXPECT_THAT(refused(3, [](Config& c) { c.training_stages[1].from_step = 3; }),  // in place of stage 2
              testing::AnyOf(HasSubstr("from_step"), HasSubstr("is not after")));
  // Later stages may change.
  cut("whole", "part", 5);
  Config later = config;
  later.training_stages[2] = {.from_step = 8, .values = {{"optim.lr", "0.001"}}};
  train(later, "part");
  EXPECT_EQ(metric("part", "stage"), (std::vector<double>{1, 1, 2, 2, 3, 3, 3, 4}));
}

/// Stage 1 reads data that are gone, with a batch for fewer data ranks than the resumed run has.
TEST_F(StagesTest, OnlyThoseToComeMustSuitTheRanksAndHaveData) {
  const int world = world_.size();
  Config config = staged();
  config.data.valid_fraction = 0;
  config.data.valid = prefixes_[1];
  config.data.train = prefixes_[0];
  config.training_stages = {{.from_step = 3, .values = {{"batch.global", "16"}, {"data.train", prefixes_[1]}}},
                            {.from_step = 6, .values = {{"batch.global", "8"}}}};
  config.batch.global = std::max(1, world / 2);
  if (world > 1) config.parallel.pipeline = 2;
  train(config, "whole");
  move(prefixes_[0], "gone");
  config.parallel.pipeline = 1;
  EXPECT_EQ(problems(config, world).empty(), world == 1);
  for (const std::int64_t step : {3, 6}) {
    cut("whole", "part", step);
    train(config, "part");
    const std::vector<double> whole = metric("whole", "loss"), part = metric("part", "loss");
    ASSERT_EQ(part.size(), whole.size());
    for (std::size_t s = 0; s < whole.size(); ++s) EXPECT_TRUE(std::abs(part[s] - whole[s]) <= 1e-4 * whole[s]) << s;
    EXPECT_EQ(metric("part", "tokens"), metric("whole", "tokens"));
    if (world == 1) {
      EXPECT_EQ(weights("whole"), weights("part"));
    }
  }
  cut("whole", "part", 2);  // the last step of stage 1
  EXPECT_THROW(train(config, "part"), Error);
}

/// If the newest checkpoint is damaged, the run starts in the stage of an older one, which is checked, too.
TEST_F(StagesTest, AreThoseOfTheCheckpointThatIsChosen) {
  const Config config = staged();
  train(config, "whole");
  cut("whole", "part", 3);
  if (world_.rank() == 0) {
    const fs::path newest = fs::path(folder("part")) / "checkpoints" / checkpoint_name(3);
    for (const auto& file : fs::directory_iterator(newest)) {
      if (file.path().extension() == ".h5" && file.path().filename() != "index.h5") fs::resize_file(file.path(), 100);
    }
  }
  world_.barrier();
  EXPECT_THAT(train(config, "part"), HasSubstr("is skipped"));
  expect_same_end("whole", "part");
}

/// Stage 2 reads the second source alone; the first one is moved meanwhile, and continues in stage 3 where stage 1 has
/// left it.
TEST_F(StagesTest, RecogniseMovedData) {
  Config config = staged();
  config.data.valid_fraction = 0;
  config.data.valid = prefixes_[1];
  config.training_stages = {
      {.from_step = 3, .values = {{"data.train", prefixes_[1]}}},
      {.from_step = 5, .values = {{"data.train", "0.5 " + prefixes_[0] + " 0.5 " + prefixes_[1]}}},
      {.from_step = 7, .values = {{"data.train", prefixes_[0]}, {"batch.seq_len", "20"}}}};
  train(config, "whole");
  const std::string moved = move(prefixes_[0], "moved");
  Config later = config, all = config;
  later.training_stages[1].values["data.train"] = "0.5 " + moved + " 0.5 " + prefixes_[1];
  later.training_stages[2].values["data.train"] = moved;
  all.training_stages = later.training_stages;
  all.data.train = "0.75 " + moved + " 0.25 " + prefixes_[1];
  int number = 0;
  for (const Config& renamed : {later, all}) {
    const std::string part = "part-" + std::to_string(number++);
    cut("whole", part, 4);
    train(renamed, part);
    expect_same_end("whole", part);
    cut(part, part + "-again", 5);  // its configuration has the new name
    train(renamed, part + "-again");
    expect_same_end("whole", part + "-again");
  }
  // Another source under the name of a past one is not the same.
  cut("whole", "part", 4);
  Config other = later;
  other.data.train = "0.75 " + prefixes_[1] + " 0.25 " + moved;
  EXPECT_THAT(error_of([&] { train(other, "part"); }, ExitCode::usage),
              testing::AllOf(HasSubstr("data.train = "), HasSubstr("data.changed = warn")));
  // Other contents of a source that stage 1 has read and stage 3 reads again.
  if (world_.rank() == 0) {
    const TinyData changed(config.model.vocab, 2100);
    const fs::path from = fs::path(changed.prefix()).parent_path();
    for (const auto& file : fs::directory_iterator(from)) {
      fs::copy(file.path(), fs::path(moved).parent_path() / file.path().filename(),
               fs::copy_options::overwrite_existing);
    }
  }
  world_.barrier();
  cut("part-0", "part", 5);
  EXPECT_THAT(error_of([&] { train(later, "part"); }, ExitCode::bad_input), HasSubstr("the files have changed"));
}

TEST_F(StagesTest, ANewSourceHasTheSameOrderBesideMovedData) {
  Config config = staged();
  config.data.train = prefixes_[0];
  config.data.valid = prefixes_[1];
  config.data.valid_fraction = 0;
  const auto read_later = [&](const std::string& first) {
    config.training_stages = {{.from_step = 3, .values = {{"data.train", first}}},
                              {.from_step = 5, .values = {{"data.train", "0.5 " + first + " 0.5 " + prefixes_[1]}}}};
  };
  read_later(prefixes_[0]);
  train(config, "whole");
  read_later(move(prefixes_[0], "moved"));
  cut("whole", "part", 4);
  train(config, "part");
  expect_same_end("whole", "part");
}

TEST_F(StagesTest, ChangeTheLearningRateByTheirSchedules) {
  Config config = staged();
  config.optim.lr = 0.01;
  train(config, "rates");
  const std::vector<double> lr = metric("rates", "lr");
  ASSERT_EQ(lr.size(), 8u);
  EXPECT_DOUBLE_EQ(lr[0], 0.01);
  EXPECT_LT(lr[2], 0.005);     // the cosine of stage 1 goes on, with another maximum
  EXPECT_DOUBLE_EQ(lr[5], 0);  // it ends before stage 4 starts a new one
  EXPECT_DOUBLE_EQ(lr[6], 0.0025);
  EXPECT_DOUBLE_EQ(lr[7], 0.005);
}

}  // namespace
}  // namespace lyceum
