#include "config/differing_keys.h"

#include <gtest/gtest.h>

#include <array>

namespace lyceum {
namespace {

TEST(DifferingKeys, AreInTheOrderOfTheConfigurationWithoutTheFolder) {
  std::array<Config, 3> configs;
  configs[0].run.dir = "a";
  configs[1].run.dir = "b";
  configs[2].optim.lr = 0.5;
  configs[1].model.layers = 7;
  const std::vector<DifferingKey> keys = differing_keys(configs);
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[0].key, "model.layers");
  EXPECT_EQ(keys[0].values[1], "7");
  EXPECT_EQ(keys[0].values[0], keys[0].values[2]);
  EXPECT_EQ(keys[1].key, "optim.lr");
  EXPECT_EQ(keys[1].values[2], "0.5");
}

TEST(DifferingKeys, OneOrNoConfigurationHasNone) {
  const std::array<Config, 1> one;
  EXPECT_TRUE(differing_keys(one).empty());
  EXPECT_TRUE(differing_keys({}).empty());
}

}  // namespace
}  // namespace lyceum
