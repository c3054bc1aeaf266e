#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "config/check.h"

namespace lyceum {

/// Returns a configuration that is valid on 1, 2, 4 and 8 ranks.
inline Config sparse() {
  Config config;
  config.moe.experts = 15;
  config.moe.top_k = 3;
  config.moe.shared_experts = 1;
  config.moe.expert_hidden = 64;
  return config;
}

/// A change that makes a configuration impossible, and texts that the one message about it must contain.
struct Impossible {
  std::function<void(Config&)> change;
  std::vector<std::string> texts;
  int world = 4;
};

/// Expects exactly one message in each case, before and after resolve(). `find`: problems() or contradictions().
inline void expect_each_reported(const std::vector<Impossible>& cases,
                                 std::vector<std::string> (*find)(const Config&, int) = problems) {
  for (const Impossible& impossible : cases) {
    Config config = sparse();
    ASSERT_THAT(find(config, impossible.world), testing::IsEmpty());
    impossible.change(config);
    for (const bool resolved : {false, true}) {
      if (resolved) resolve(config, impossible.world);
      const std::vector<std::string> found = find(config, impossible.world);
      ASSERT_EQ(found.size(), 1u) << impossible.texts.front() << " … " << testing::PrintToString(found);
      for (const std::string& text : impossible.texts) EXPECT_THAT(found.front(), testing::HasSubstr(text));
    }
  }
}

}  // namespace lyceum
