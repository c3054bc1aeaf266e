#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "core/error.h"
#include "io/text/table.h"
#include "plan/mesh_plan.h"
#include "support/paper_models.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

/// Changes as a message states them ("key = value", separated by commas), and the memory that they need ("61.2 GB").
struct Advice {
  std::string changes, need;
};

std::vector<Advice> advice_of(const std::string& message) {
  static const std::regex single("((?:[a-z_]+\\.[a-z_]+ = [a-z0-9]+)) \\(needs ([0-9.]+ .?B)\\)"),
      combined("is enough; (.*) needs ([0-9.]+ .?B)");
  std::vector<Advice> all;
  for (const std::regex& form : {single, combined}) {
    for (std::sregex_iterator at(message.begin(), message.end(), form), end; at != end; ++at)
      all.push_back({.changes = (*at)[1], .need = (*at)[2]});
  }
  return all;
}

/// Returns the configuration with these changes, as a user would set them.
Config changed(const Config& config, const std::string& changes) {
  static const std::regex change("([a-z_.]+) = ([a-z0-9]+)");
  std::vector<std::string> arguments;
  for (std::sregex_iterator at(changes.begin(), changes.end(), change), end; at != end; ++at)
    arguments.push_back("--" + std::string((*at)[1]) + "=" + std::string((*at)[2]));
  const LoadedConfig loaded = read_config(arguments, {.config = config});
  EXPECT_EQ(loaded.mistakes, std::vector<std::string>()) << changes;
  return loaded.config;
}

/// A mesh of the 16B model that does not fit, with the kind of advice that is expected.
struct Case {
  const char* name;
  std::vector<std::string> given;
  int world;
  double available;
  bool fits;  // true if the advised changes make it fit
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"optimizer states", {"--batch.micro=1"}, 8, 80e9, true},
      {"activations", {"--batch.micro=8", "--parallel.expert=8", "--parallel.zero=1"}, 8, 80e9, true},
      {"experts", {"--batch.micro=1", "--model.recompute=full", "--parallel.zero=3"}, 8, 42e9, true},
      {"a schedule",
       {"--batch.micro=1", "--parallel.pipeline=4", "--parallel.schedule=gpipe", "--parallel.zero=1"},
       8,
       80e9,
       true},
      {"a derived micro-batch", {"--batch.global=64", "--batch.micro=0", "--parallel.zero=3"}, 8, 80e9, true},
      {"several keys", {"--batch.micro=8"}, 8, 60e9, true},
      {"a machine that is too small", {"--batch.micro=1"}, 8, 2e9, false},
      {"one rank", {"--batch.micro=1"}, 1, 80e9, false},
  };
  return all;
}

class Shortage : public testing::TestWithParam<Case> {};

TEST_P(Shortage, AdviceIsTrueOfAPlanMadeAnew) {
  const Case& c = GetParam();
  const Config given = read_config(c.given, {.config = paper("deepseekmoe-16b")}).config;
  const MeshPlan plan = plan_mesh(resolved(given, c.world), c.world, {});
  ASSERT_GT(plan.peak_resident(), c.available);
  const std::string message = shortage(plan, c.available, "a rank");
  const std::vector<Advice> all = advice_of(message);
  if (c.fits) {
    EXPECT_FALSE(all.empty()) << message;
    EXPECT_THAT(message, Not(HasSubstr("use more ranks")));
  } else {
    EXPECT_TRUE(message.ends_with(": use more ranks or a smaller model")) << message;
  }
  for (const auto& [changes, need] : all) {
    const Config config = resolved(changed(given, changes), c.world);
    const double needed = plan_mesh(config, c.world, {}).peak_resident();
    EXPECT_EQ(needed <= c.available, c.fits) << message;
    EXPECT_EQ(human_count(std::floor(needed), "B"), need) << message;
  }
}

TEST(Shortage, FewerReplicasOfExpertsHelp) {
  Config config = paper("deepseekmoe-16b");
  config.batch.micro = 1;
  config.model.recompute = Recompute::full;
  config.parallel = {.expert = 8, .zero = 3};
  const double without = plan_mesh(resolved(config, 8), 8, {}).peak_resident();
  config.parallel.replicas = 3;
  const MeshPlan plan = plan_mesh(resolved(config, 8), 8, {});
  const double available = without + 0.4 * (plan.peak_resident() - without);
  EXPECT_THAT(shortage(plan, available, "a rank"), HasSubstr("set parallel.replicas = 1 (needs "));
}

TEST(Shortage, CountedRowsOfExpertsHelp) {
  Config config = paper("deepseekmoe-16b");
  config.batch.micro = 1;
  config.model.recompute = Recompute::full;
  config.parallel = {.expert = 8, .zero = 3};
  const double counted = plan_mesh(resolved(config, 8), 8, {}).peak_resident();
  config.parallel.expert_exchange = ExpertExchange::bounded;
  const MeshPlan plan = plan_mesh(resolved(config, 8), 8, {});
  ASSERT_GT(plan.peak_resident(), counted);
  EXPECT_THAT(shortage(plan, counted, "a rank"), HasSubstr("set parallel.expert_exchange = counted (needs "));
}

INSTANTIATE_TEST_SUITE_P(Of, Shortage, testing::ValuesIn(cases()));

TEST(Shortage, NothingIsSaidOfWhatFits) {
  Config config = paper("deepseekmoe-2b");
  config.batch.micro = 1;
  const MeshPlan plan = plan_mesh(resolved(config, 8), 8, {});
  EXPECT_EQ(shortage(plan, plan.peak_resident(), "a rank"), "");
  EXPECT_NO_THROW(require_fits(plan, plan.peak_resident(), "a rank"));
}

TEST(Shortage, EndsARunWithTheNeedTheAdviceAndTheTable) {
  Config config = paper("deepseekmoe-16b");
  config.batch.micro = 1;
  const MeshPlan plan = plan_mesh(resolved(config, 8), 8, {});
  try {
    require_fits(plan, 80e9, "a rank of this test");
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("^rank 0 needs .* GB \\(weights .*, activations .*\\), but a rank of "
                                       "this test has only 80.0 GB: set parallel.zero = .*\n"
                                       "row +rank +blocks"));
  }
}

/// Evaluation and generation have no gradients, and no activations to recompute.
TEST(Shortage, OfReadingHasOnlyWhatHelpsReading) {
  Config config = paper("deepseekmoe-16b");
  config.batch.micro = 4;
  const MeshPlan plan = plan_inference(resolved(config, 8), 8, Reading::evaluate);
  const std::string message = shortage(plan, 0.7 * plan.peak_resident(), "a rank");
  EXPECT_THAT(message, HasSubstr("parallel.expert = "));
  EXPECT_THAT(message, Not(HasSubstr("model.recompute")));
  EXPECT_THAT(message, Not(HasSubstr("parallel.zero")));
  for (const auto& [changes, need] : advice_of(message)) {
    const MeshPlan better = plan_inference(resolved(changed(config, changes), 8), 8, Reading::evaluate);
    EXPECT_EQ(human_count(std::floor(better.peak_resident()), "B"), need) << message;
  }
}

/// If only the sequence length matters, a shorter one is advised.
TEST(Shortage, ALongSequenceIsCut) {
  Config config = paper("deepseekmoe-2b");
  config.batch.micro = 1;
  config.batch.seq_len = 1 << 20;
  config.model.recompute = Recompute::full;
  config.model.loss_chunk = 1024;
  config.parallel.zero = 3;
  const MeshPlan plan = plan_mesh(resolved(config, 1), 1, {});
  EXPECT_THAT(shortage(plan, 60e9, "a rank"), HasSubstr(": set batch.seq_len = "));
}

}  // namespace
}  // namespace lyceum
