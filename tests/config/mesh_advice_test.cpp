#include "config/mesh_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/check.h"
#include "config/impossible.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Every value that a message proposes is valid.
TEST(ConfigProblems, advice_names_values_that_work) {
  const auto problem = [](const Config& config, int world) {
    const std::vector<std::string> found = problems(config, world);
    EXPECT_EQ(found.size(), 1u) << testing::PrintToString(found);
    return found.empty() ? std::string() : found.front();
  };
  Config config = sparse();
  config.parallel.expert = 3;
  EXPECT_THAT(problem(config, 4), testing::EndsWith("the 4 ranks of a stage: set parallel.expert = 1, 2 or 4"));
  for (const int expert : {1, 2, 4}) {
    Config other = config;
    other.parallel.expert = expert;
    EXPECT_THAT(problems(other, 4), IsEmpty()) << expert;
  }
  EXPECT_THAT(problem(config, 8), HasSubstr("parallel.expert = 3"));
  config.batch.global = 12;
  EXPECT_THAT(problem(config, 4),
              testing::EndsWith(": start 3 ranks (mpirun -n 3), or set parallel.expert = 1, 2 or 4"));
  EXPECT_THAT(problems(config, 3), IsEmpty());
  EXPECT_THAT(problem(config, 1), testing::EndsWith(": start 3 ranks (mpirun -n 3)"));
  config.batch.global = 8;
  EXPECT_THAT(problem(config, 1), testing::EndsWith(": start 3 ranks (mpirun -n 3) with batch.global = 9"));
  config.batch.global = 9;
  EXPECT_THAT(problems(config, 3), IsEmpty());

  config = sparse();
  config.batch.global = 6;
  EXPECT_THAT(problem(config, 4), testing::EndsWith("4 data-parallel ranks: set a multiple of 4"));
  config.batch.micro = 3;
  EXPECT_THAT(problem(config, 4), testing::EndsWith("4 data-parallel ranks: set a multiple of 12"));
  config.batch.global = 12;
  EXPECT_THAT(problems(config, 4), IsEmpty());
  config.batch.micro = 2;
  EXPECT_THAT(problem(config, 4), testing::EndsWith(": set batch.micro = 1 or 3"));
  config = sparse();
  config.parallel.virtual_stages = 2;
  // There is only one rank in the pipeline.
  EXPECT_THAT(problem(config, 4), testing::EndsWith("1f1b: set parallel.virtual_stages = 1"));
  config.parallel.pipeline = 2;
  EXPECT_THAT(problem(config, 4),
              testing::EndsWith("set parallel.schedule = interleaved, or parallel.virtual_stages = 1"));
}

}  // namespace
}  // namespace lyceum
