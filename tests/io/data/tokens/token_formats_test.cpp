#include "io/data/tokens/token_formats.h"

#include <gtest/gtest.h>

#include <string>

#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

TEST(TokenFormats, TheFilesOfAPrefixDetermineItsFormat) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.path() / "tokens";
  EXPECT_FALSE(has_tokens(prefix));
  EXPECT_EQ(token_path(prefix), prefix + ".bin");  // the file that a message names
  write_whole_file(prefix + ".idx", "");
  EXPECT_TRUE(has_tokens(prefix));
  EXPECT_EQ(token_path(prefix), prefix + ".bin");
  EXPECT_EQ(token_endings(), ".bin/.idx");
}

}  // namespace
}  // namespace lyceum
