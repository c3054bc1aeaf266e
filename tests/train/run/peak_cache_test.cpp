#include "train/run/peak_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "support/temporary_directory.h"

namespace lyceum {
namespace {

class PeakCacheTest : public testing::Test {
 protected:
  void SetUp() override { setenv("LYCEUM_CACHE", (directory_.path() / "cache").c_str(), 1); }
  void TearDown() override { unsetenv("LYCEUM_CACHE"); }
  TemporaryDirectory directory_;
};

TEST_F(PeakCacheTest, HoldForOneBuildAndOneWayOfMeasuring) {
  const PeakCache kept("n1", "build 1");
  EXPECT_FALSE(kept.find("cpu, 2 ranks"));
  kept.keep("cpu, 2 ranks", {.flops = 3.5e11, .date = "2026-11-22"});
  kept.keep("cpu, 4 ranks", {.flops = 5e11, .date = "2026-11-23"});
  ASSERT_TRUE(kept.find("cpu, 2 ranks"));
  EXPECT_EQ(kept.find("cpu, 2 ranks")->flops, 3.5e11);
  EXPECT_EQ(kept.find("cpu, 2 ranks")->date, "2026-11-22");
  EXPECT_EQ(kept.find("cpu, 4 ranks")->flops, 5e11);
  EXPECT_FALSE(kept.find("cpu, 1 rank"));
  EXPECT_FALSE(PeakCache("n1", "build 2").find("cpu, 2 ranks"));
  EXPECT_FALSE(PeakCache("n2", "build 1").find("cpu, 2 ranks"));
}

TEST_F(PeakCacheTest, AreNoneWhereTheFileIsDamagedOrCannotBe) {
  const PeakCache kept("n1", "build 1");
  std::filesystem::create_directories(kept.file().parent_path());
  for (const char* text :
       {"", "{", "[]", R"({"cpu": 1})", R"({"cpu": {"flops": "x", "date": 1, "build": 2}})",
        R"({"cpu": {"flops": 5.2e13, "date": "2026-11-22", "build": "build 1"}})",  // no method: an older version wrote
                                                                                    // it
        R"({"cpu": {"flops": 5.2e13, "date": "", "method": 1, "build": "build 1"}})",
        R"({"cpu": {"flops": -1, "date": "", "method": 2, "build": "build 1"}})"}) {
    std::ofstream(kept.file()) << text;
    EXPECT_FALSE(kept.find("cpu")) << text;
  }
  kept.keep("cpu", {.flops = 1, .date = "2026-11-22"});
  EXPECT_TRUE(kept.find("cpu"));

  std::ofstream(directory_.path() / "file") << "no folder";
  setenv("LYCEUM_CACHE", (directory_.path() / "file").c_str(), 1);
  const PeakCache nowhere("n1", "build 1");
  nowhere.keep("cpu", {.flops = 1, .date = "2026-11-22"});
  EXPECT_FALSE(nowhere.find("cpu"));
}

}  // namespace
}  // namespace lyceum
