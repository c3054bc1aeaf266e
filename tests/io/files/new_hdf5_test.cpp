#include "io/files/new_hdf5.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

TEST(NewHdf5, AFileThatFailsIsNotThere) {
  const TemporaryDirectory directory;
  expect_failure([&] { write_hdf5(directory.path() / "x.h5", [](hdf5::File&) { fail(ExitCode::failed, "no more"); }); },
                 "no more");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace lyceum
