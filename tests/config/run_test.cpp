#include "config/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/check.h"
#include "config/impossible.h"
#include "core/gpu.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ConfigProblems, gpus_are_for_builds_with_cuda) {
  Config config = sparse();
  config.run.device = DeviceKind::cuda;
  const std::vector<std::string> found = problems(config, 4);
  if (built_with_cuda) {
    EXPECT_THAT(found, IsEmpty());
  } else {
    EXPECT_THAT(found, ElementsAre(HasSubstr("this build has no CUDA; set run.device = cpu")));
  }
}

}  // namespace
}  // namespace lyceum
