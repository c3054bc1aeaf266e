#include "core/library_on_demand.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

/// Sets a variable of the environment and restores it at the end.
class SetVariable {
 public:
  SetVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~SetVariable() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

/// Puts a copy of a library that every machine has, libz, where only a search of `folder` finds it.
void put_library(const fs::path& folder, const char* file) {
  void* const opened = dlopen("libz.so.1", RTLD_NOW);
  ASSERT_TRUE(opened) << dlerror();
  Dl_info info{};
  ASSERT_TRUE(dladdr(dlsym(opened, "zlibVersion"), &info));
  fs::create_directories(folder);
  fs::copy_file(info.dli_fname, folder / file);
}

TEST(LibraryOnDemand, IsFoundInToolkitsAndInPackagesOfPython) {
  const TemporaryDirectory directory;
  const fs::path toolkit = directory.path() / "cuda", environment = directory.path() / "venv";
  const fs::path package = environment / "lib/python3.12/site-packages/nvidia/probe/lib";
  const SetVariable home("CUDA_HOME", toolkit), venv("VIRTUAL_ENV", environment);
  const char *in_toolkit = "liblyceum_probe.so.1", *in_package = "liblyceum_probe.so.2";
  put_library(toolkit / "lib64", in_toolkit);
  put_library(package, in_package);
  fs::create_directories(environment / "lib/python2.7/site-packages/nvidia/probe/lib");
  const std::vector<std::string> folders = nvidia_library_folders();
  ASSERT_GE(folders.size(), 2u);
  EXPECT_EQ(folders[0], toolkit / "lib64");
  EXPECT_THAT(folders, testing::Contains(package));
  EXPECT_THAT(folders, testing::Each(testing::Not(testing::HasSubstr("python2"))));
  for (const char* file : {in_toolkit, in_package}) {
    const LibraryOnDemand library("the probe", file);
    const auto version = reinterpret_cast<const char* (*)()>(library.symbol("zlibVersion"));
    EXPECT_EQ(version()[0], '1');
    EXPECT_EQ(library.symbol("zlibVersion"), reinterpret_cast<void*>(version));
    expect_failure([&] { library.symbol("zlibVersions"); },
                   std::string(file) + " has no zlibVersions: another version of the probe is needed");
  }
}

TEST(LibraryOnDemand, IsNamedIfItIsMissing) {
  const LibraryOnDemand library("the probe", "liblyceum_probe.so.3");
  expect_failure([&] { library.symbol("zlibVersion"); }, "cannot load the probe (liblyceum_probe.so.3");
  const TemporaryDirectory toolkit;  // with a file that is not a library
  const SetVariable home("CUDA_HOME", toolkit.path());
  fs::create_directories(toolkit.path() / "lib64");
  std::ofstream(toolkit.path() / "lib64/liblyceum_probe.so.3") << "text";
  expect_failure([&] { library.symbol("zlibVersion"); }, "lib64/liblyceum_probe.so.3: ");
}

}  // namespace
}  // namespace lyceum
