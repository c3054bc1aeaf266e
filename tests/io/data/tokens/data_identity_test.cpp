#include "io/data/tokens/data_identity.h"

#include <gtest/gtest.h>

#include <vector>

namespace lyceum {
namespace {

TEST(DataIdentity, ChangedDataHaveOtherContentsUnderTheSameName) {
  const std::vector<DataIdentity> before{{"data.train", "a", "1"}, {"data.train", "b", "2"}, {"data.valid", "a", "3"}};
  EXPECT_TRUE(changed_data(before, before).empty());
  EXPECT_TRUE(changed_data({}, before).empty());
  const std::vector<DataIdentity> now{{"data.train", "a", "1"}, {"data.train", "b", "9"}, {"data.train", "c", "2"}};
  const std::vector<DataIdentity> changed = changed_data(before, now);
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].prefix, "b");
  EXPECT_EQ(changed[0].fingerprint, "9");
}

TEST(DataIdentity, SourcesAreTheSameByNameOrByContents) {
  const std::vector<DataIdentity> before{{"data.train", "a", "1"}, {"data.train", "b", "2"}};
  const std::vector<DataIdentity> now{{"data.train", "moved/a", "1"}, {"data.train", "b", "7"}};
  EXPECT_TRUE(same_sources("data.train", "a", "a", {}, {}));
  EXPECT_FALSE(same_sources("data.train", "a", "moved/a", {}, {}));
  EXPECT_TRUE(same_sources("data.train", "a", "moved/a", before, now));
  EXPECT_FALSE(same_sources("data.train", "b", "moved/a", before, now));
  EXPECT_TRUE(same_sources("data.train", "0.7 a 0.3 b", "7 moved/a 3 b", before, now));
  EXPECT_FALSE(same_sources("data.train", "0.7 a 0.3 b", "6 moved/a 4 b", before, now));
  EXPECT_FALSE(same_sources("data.train", "0.7 a 0.3 b", "3 b 7 moved/a", before, now));
  EXPECT_FALSE(same_sources("data.train", "a b", "0.5 a 0.5 b", before, now));
  EXPECT_FALSE(same_sources("data.train", "0.7 a b", "a", before, now));  // not a valid value
}

}  // namespace
}  // namespace lyceum
