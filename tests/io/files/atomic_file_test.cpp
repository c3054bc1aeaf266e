#include "io/files/atomic_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "core/error.h"
#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

TEST(ReplaceFile, LeavesNothingBehindWhenItFails) {
  const TemporaryDirectory directory;
  const fs::path taken = directory.path() / "taken";
  fs::create_directories(taken / "inside");  // a folder cannot be replaced by a file
  EXPECT_THROW(replace_file(taken, "text"), Error);
  EXPECT_TRUE(fs::is_directory(taken / "inside"));
  EXPECT_FALSE(fs::exists(directory.path() / "taken.partial"));
}

TEST(ReplaceFile, OnlyWriteWholeFileCreatesFolders) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "new" / "file";
  EXPECT_THROW(replace_file(file, "text"), Error);
  EXPECT_FALSE(fs::exists(file.parent_path()));
  write_whole_file(file, "text");
  EXPECT_EQ(read_whole_file(file), "text");
}

}  // namespace
}  // namespace lyceum
