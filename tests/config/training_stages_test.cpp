#include "config/training_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "config/binding.h"
#include "config/check.h"
#include "config/continuation.h"
#include "config/keys.h"
#include "core/error.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Arguments = std::vector<std::string>;

Config load(const Arguments& arguments) { return load_config(arguments).config; }

/// Returns the message of the usage Error for these arguments, before or after the configuration is read.
std::string mistake(const Arguments& arguments, int world = 1) {
  try {
    require_none(problems(load(arguments), world));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

const Arguments ramp{"--run.steps=100",         "--batch.global=8",
                     "--stage.2.from_step=11",  "--stage.2.batch.global=16",
                     "--stage.3.from_step",     "41",
                     "--stage.3.optim.lr=1e-4", "--stage.3.batch.global=32",
                     "--stage.4.from_step=91",  "--stage.4.optim.schedule=wsd"};

TEST(TrainingStages, KeepTheValuesOfTheStageBefore) {
  const Config config = load(ramp);
  EXPECT_EQ(stage_count(config), 4);
  EXPECT_EQ(config_of_stage(config, 1).batch.global, 8);
  EXPECT_EQ(config_of_stage(config, 2).batch.global, 16);
  EXPECT_EQ(config_of_stage(config, 4).batch.global, 32);
  EXPECT_EQ(config_of_stage(config, 2).optim.lr, OptimConfig{}.lr);
  EXPECT_EQ(config_of_stage(config, 4).optim.lr, 1e-4);
  EXPECT_THAT(config_of_stage(config, 3).training_stages, IsEmpty());
  EXPECT_THROW(config_of_stage(config, 5), Error);
  std::vector<int> of_step;
  for (const std::int64_t step : {0, 1, 10, 11, 40, 41, 90, 91, 100}) of_step.push_back(stage_of_step(config, step));
  EXPECT_THAT(of_step, ElementsAre(1, 1, 1, 2, 2, 3, 3, 4, 4));
  EXPECT_EQ(first_step_of(config, 1), 1);
  EXPECT_EQ(last_step_of(config, 1), 10);
  EXPECT_EQ(last_step_of(config, 4), 100);
}

TEST(TrainingStages, AreWrittenAndReadAgain) {
  const LoadedConfig loaded = load_config(ramp);
  const std::string text = to_ini(loaded.config);
  EXPECT_THAT(text, HasSubstr("\n[stage.3]\nfrom_step = 41\nbatch.global = 32\noptim.lr = 0.0001\n"));
  EXPECT_EQ(to_ini(parse_config(text, "a checkpoint").config), text);
  EXPECT_THAT(differences(loaded.config, parse_config(text, "a checkpoint").config), IsEmpty());
  EXPECT_EQ(to_ini(parse_config(to_ini(loaded.config, loaded.config), "a file").config), text);
  EXPECT_EQ(to_ini(parse_config(print_config(loaded), "a list").config), text);
  EXPECT_THAT(print_config(loaded), HasSubstr("# command line\nstage.3.from_step"));
  Config other = loaded.config;
  other.training_stages[1].values.erase("optim.lr");
  const std::vector<Difference> found = differences(loaded.config, other);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "stage.3.optim.lr");
  EXPECT_EQ(found[0].before, "0.0001");
  EXPECT_EQ(found[0].after, "");
  EXPECT_THAT(list_keys(), AllOf(HasSubstr("\n[stage.2]\nfrom_step"), HasSubstr("data.train, batch.global")));
}

TEST(TrainingStages, WithMistakesAreRefused) {
  const std::string allowed = "a stage may set from_step, data.train, batch.global";
  EXPECT_THAT(mistake({"--stage.2.from_step=5", "--stage.2.model.layers=3"}),
              AllOf(HasSubstr("stage.2.model.layers = 3 on the command line: model.layers cannot change during a run"),
                    HasSubstr(allowed)));
  EXPECT_THAT(mistake({"--stage.2.batch.gobal=3"}),
              AllOf(HasSubstr("there is no key batch.gobal"), HasSubstr(allowed)));
  EXPECT_THAT(mistake({"--stage.2.global=3"}), HasSubstr("there is no key global"));
  EXPECT_THAT(mistake({"--stage.1.batch.global=3"}),
              HasSubstr("stage 1 is the configuration itself: set batch.global"));
  EXPECT_THAT(mistake({"--stage.two.batch.global=3"}), HasSubstr("write stage.N.KEY with N = 2, 3"));
  EXPECT_THAT(mistake({"--stage.99999.batch.global=3"}), HasSubstr("write stage.N.KEY with N = 2, 3"));
  EXPECT_THAT(mistake({"--stage.2.batch.global"}), HasSubstr("a value is missing"));
  EXPECT_THAT(mistake({"--stage.2.from_step=0"}), HasSubstr("stage.2.from_step = 0 on the command line: must be >= 2"));
  EXPECT_THAT(mistake({"--stage.2.from_step=1"}), HasSubstr("must be >= 2"));
  EXPECT_THAT(mistake({"--stage.2.from_step=5", "--stage.2.batch.global=0"}), HasSubstr("must be >= 1"));
  EXPECT_THAT(mistake({"--stage.2.batch.global=4"}), HasSubstr("stage.2.from_step is not set"));
  EXPECT_THAT(mistake({"--run.steps=20", "--stage.2.from_step=21"}),
              HasSubstr("stage.2.from_step = 21 is after the last step, run.steps = 20"));
  EXPECT_THAT(mistake({"--stage.2.from_step=9", "--stage.3.from_step=9"}),
              HasSubstr("stage.3.from_step = 9 is not after stage.2.from_step = 9"));
  EXPECT_THAT(mistake({"--stage.3.from_step=9"}), HasSubstr("there is no stage.2 before stage.3"));
}

TEST(TrainingStages, AreCheckedLikeConfigurations) {
  const Arguments stage{"--batch.global=8", "--stage.2.from_step=5", "--stage.2.batch.global=6"};
  EXPECT_THAT(problems(load(stage), 2), IsEmpty());
  EXPECT_THAT(mistake(stage, 4), HasSubstr("stage 2: batch.global = 6 cannot be divided among 4 data-parallel ranks"));
  // A contradiction of the first stage is reported once.
  EXPECT_THAT(problems(load({"--model.heads=3", "--stage.2.from_step=5"}), 1),
              ElementsAre(HasSubstr("model.heads = 3 does not divide")));
  EXPECT_THAT(mistake({"--stage.2.from_step=5", "--stage.2.model.rope_scaling=yarn"}),
              HasSubstr("stage 2: model.rope"));
  EXPECT_THAT(mistake({"--stage.2.from_step=5", "--stage.2.optim.min_lr=1"}), HasSubstr("stage 2: optim.min_lr = 1"));
}

TEST(TrainingStages, OfThePastMayBeImpossibleOnTheseRanks) {
  const Arguments stage{"--batch.global=6", "--stage.2.from_step=5", "--stage.2.batch.global=8",
                        "--stage.3.from_step=9", "--stage.3.batch.global=10"};
  EXPECT_THAT(problems(load(stage), 4), ElementsAre(HasSubstr("batch.global = 6"), HasSubstr("stage 3: batch.global")));
  EXPECT_THAT(problems(load(stage), 4, 2), ElementsAre(HasSubstr("stage 3: batch.global = 10")));
  EXPECT_THAT(problems(load(stage), 2, 3), IsEmpty());
  // A contradiction of all stages is reported once.
  EXPECT_THAT(problems(load({"--model.heads=3", "--stage.2.from_step=5"}), 1, 2),
              ElementsAre(testing::StartsWith("model.heads = 3 does not divide")));
}

TEST(TrainingStages, ShareAWindowForTheLongestSequences) {
  const Arguments stage{"--batch.seq_len=64", "--model.window=128", "--stage.2.from_step=5",
                        "--stage.2.batch.seq_len=256"};
  const Config config = load(stage);
  EXPECT_THAT(problems(config, 1), IsEmpty());
  for (const int each : {1, 2}) {  // also without the other stage, as a checkpoint is read
    EXPECT_EQ(longest_seq_len(config_of_stage(config, each)), 256);
    EXPECT_THAT(problems(config_of_stage(config, each), 1), IsEmpty());
  }
  EXPECT_THAT(problems(load({"--batch.seq_len=64", "--model.window=300", "--stage.2.from_step=5",
                             "--stage.2.batch.seq_len=256"}),
                       1),
              ElementsAre(HasSubstr("model.window = 300 is more than batch.seq_len = 256")));
}

TEST(TrainingStages, ReadSourcesFromFiles) {
  const TemporaryDirectory directory;
  const std::string list = directory.path() / "sources.txt";
  std::ofstream(list) << "3 web\n1 code\n";
  const LoadedConfig loaded =
      load_config(Arguments{"--data.train=a", "--stage.2.from_step=5", "--stage.2.data.train=@" + list});
  EXPECT_EQ(config_of_stage(loaded.config, 2).data.train, "3 web 1 code");
  EXPECT_THAT(to_ini(loaded.config), HasSubstr("[stage.2]\nfrom_step = 5\ndata.train = 3 web 1 code\n"));
  EXPECT_THAT(mistake({"--stage.2.from_step=5", "--stage.2.data.train=@" + list + ".absent"}),
              HasSubstr("stage.2.data.train = @" + list + ".absent on the command line: "));
}

TEST(TrainingStages, DeriveTheMicroBatch) {
  Config config = load({"--batch.global=8", "--stage.2.from_step=5", "--stage.2.batch.global=16",
                        "--stage.3.from_step=6", "--stage.3.batch.global=8", "--stage.4.from_step=7"});
  resolve(config, 2);
  const auto micro = [&](int stage) { return config_of_stage(config, stage).batch.micro; };
  EXPECT_EQ(micro(1), 4);
  EXPECT_EQ(micro(2), 8);
  EXPECT_EQ(micro(3), 4);
  EXPECT_EQ(micro(4), 4);
  const std::string once = to_ini(config);
  resolve(config, 2);
  EXPECT_EQ(to_ini(config), once);
  Config given = load({"--batch.global=8", "--batch.micro=2", "--stage.2.from_step=5", "--stage.2.batch.global=16",
                       "--stage.3.from_step=6", "--stage.3.batch.micro=1"});
  resolve(given, 2);
  EXPECT_EQ(config_of_stage(given, 2).batch.micro, 2);
  EXPECT_EQ(config_of_stage(given, 3).batch.micro, 1);
}

TEST(TrainingStages, StartSchedules) {
  const auto as_list = [](const StageSchedule& schedule) {
    return std::vector{schedule.begin, schedule.steps, schedule.end};
  };
  Config config = load(ramp);
  EXPECT_THAT(as_list(schedule_of_stage(config, 1)), ElementsAre(0, 90, 90));
  EXPECT_THAT(as_list(schedule_of_stage(config, 3)), ElementsAre(0, 90, 90));
  EXPECT_THAT(as_list(schedule_of_stage(config, 4)), ElementsAre(90, 10, 100));
  config.optim.schedule_steps = 70;
  config.optim.warmup_steps = 5;
  config.optim.decay_steps = 7;
  config.optim.warmup_from = 0.5;
  EXPECT_THAT(as_list(schedule_of_stage(config, 2)), ElementsAre(0, 70, 90));
  EXPECT_THAT(as_list(schedule_of_stage(config, 4)), ElementsAre(90, 10, 100));
  EXPECT_EQ(schedule_key(config, 1, "optim.schedule_steps"), "optim.schedule_steps");
  EXPECT_EQ(schedule_key(config, 3, "optim.schedule_steps"), "optim.schedule_steps");
  EXPECT_EQ(schedule_key(config, 4, "optim.schedule_steps"), "stage.4.optim.schedule_steps");
  EXPECT_EQ(config_of_stage(config, 3).optim.warmup_steps, 5);
  EXPECT_EQ(config_of_stage(config, 4).optim.warmup_steps, 0);
  EXPECT_EQ(config_of_stage(config, 4).optim.decay_steps, 0);
  EXPECT_EQ(config_of_stage(config, 3).optim.warmup_from, 0.5);
  EXPECT_EQ(config_of_stage(config, 4).optim.warmup_from, 0);
  config.training_stages[2].values["optim.warmup_steps"] = "3";
  EXPECT_EQ(config_of_stage(config, 4).optim.warmup_steps, 3);
}

/// Returns the keys of changed_past() after `step` steps.
std::vector<std::string> changed(const Arguments& more_before, const Arguments& more_now, std::int64_t step) {
  const auto config = [](const Arguments& more) {
    Arguments all = ramp;
    all.insert(all.end(), more.begin(), more.end());
    Config loaded = load(all);
    resolve(loaded, 1);
    return loaded;
  };
  std::vector<std::string> keys;
  for (const Difference& each : changed_past(config(more_before), config(more_now), step)) keys.push_back(each.key);
  return keys;
}

TEST(TrainingStages, OfThePastMustStay) {
  EXPECT_THAT(changed({}, {}, 100), IsEmpty());
  // Stage 3 begins with step 41, so it may be moved and changed until 40 steps are done.
  EXPECT_THAT(changed({}, {"--stage.3.from_step=42"}, 40), IsEmpty());
  EXPECT_THAT(changed({}, {"--stage.3.from_step=42"}, 41), ElementsAre("stage.3.from_step"));
  EXPECT_THAT(changed({}, {"--stage.3.batch.global=64"}, 40), IsEmpty());
  EXPECT_THAT(changed({}, {"--stage.3.from_step=40"}, 40), ElementsAre("stage.3.from_step"));
  // Values of the present stage are changes from now on, which changes() reports.
  EXPECT_THAT(changed({}, {"--stage.3.batch.global=64"}, 50), IsEmpty());
  EXPECT_THAT(changed({}, {"--stage.3.batch.global=64"}, 95), IsEmpty());  // stage 4 has it, too
  EXPECT_THAT(changed({}, {"--batch.global=4"}, 50), ElementsAre("batch.global"));
  EXPECT_THAT(changed({}, {"--stage.2.batch.global=24"}, 50), ElementsAre("stage.2.batch.global"));
  EXPECT_THAT(changed({}, {"--stage.2.batch.micro=2"}, 50), IsEmpty());
  EXPECT_THAT(changed({}, {"--optim.weight_decay=0"}, 50), IsEmpty());  // a change from now on
  EXPECT_THAT(changed({}, {"--stage.2.optim.warmup_steps=0"}, 50),
              ElementsAre("first step of the learning-rate schedule"));
}

}  // namespace
}  // namespace lyceum
