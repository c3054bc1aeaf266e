#include "io/files/atomic_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

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

TEST(MakeDirectories, NamesWhatIsInTheWay) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file", link = directory.path() / "link";
  write_whole_file(file, "text");
  fs::create_symlink("nowhere/at-all", link);
  const auto problem = [](const fs::path& path) {
    try {
      make_directories(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(problem(file), testing::HasSubstr("/file: cannot create the directory: a file has this name"));
  EXPECT_THAT(problem(link), testing::HasSubstr("/link: cannot create the directory: it is a link to nowhere/at-all, "
                                                "which is not a directory"));
}

}  // namespace
}  // namespace lyceum
