#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "support/shared_directory.h"
#include "support/tested_world.h"
#include "support/trajectory.h"

namespace lyceum {

/// A run of four steps on all ranks, and one that resumes it from its checkpoint after two steps. Expects that both end
/// with the same bits and have the same losses.
struct Resumption {
  Resumption(const Config& config, DType type) : whole(config, test_world(), type), parts(config, test_world(), type) {
    whole.run(0, 2);
    save(whole, directory.path(), 2);
    expected = whole.run(2, 2);
    resumed = resume(parts, directory.path(), 2, 2);
    EXPECT_EQ(parts.weights(), whole.weights());
    for (std::size_t s = 0; s < expected.size(); ++s) EXPECT_EQ(resumed[s].loss, expected[s].loss);
  }

  const ProcessGroup world = test_world();
  const SharedDirectory directory{world};     // of the checkpoint after step 2
  TinyTraining whole, parts;                  // `parts` resumed
  std::vector<StepResult> expected, resumed;  // of the last two steps
};

}  // namespace lyceum
