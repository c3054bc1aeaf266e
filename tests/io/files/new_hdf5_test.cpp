#include "io/files/new_hdf5.h"

#include <gtest/gtest.h>

#include <cstdint>
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

TEST(NewHdf5, OneWriterAtATime) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "x.h5";
  {
    NewHdf5 first(file);
    expect_failure([&] { NewHdf5 second(file); }, "x.h5 cannot be written: another process is writing it");
    hdf5::File::create(first.temporary()).close();
    first.publish();
    EXPECT_TRUE(std::filesystem::exists(file));
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "x.h5.partial"));
  write_hdf5(file, [](hdf5::File& out) { out.set("made", std::int64_t{2}); });
  EXPECT_TRUE(hdf5::File::open(file).has_attribute("made"));
}

}  // namespace
}  // namespace lyceum
