#include "io/files/text_stream.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

TEST(TextStream, APipeIsRefusedAndNotWaitedFor) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_bad_input([&] { TextStream stream(pipe); }, "is not a regular file");
  expect_bad_input([&] { TextStream stream(directory.path()); }, "Is a directory");
}

}  // namespace
}  // namespace lyceum
