#include "io/files/hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/files/virtual_hdf5.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Hdf5, DatasetsOfEveryTypeComeBackBitwise) {
  TemporaryDirectory directory;
  const auto path = directory.path() / "a.h5";
  const std::vector<float> f32 = {1.5f, -0.0f, std::numeric_limits<float>::quiet_NaN(), 1e-45f, 7, 8};
  const std::vector<double> f64 = {1.0 / 3, -1e300};
  const std::vector<std::int64_t> i64 = {std::numeric_limits<std::int64_t>::min(), -1, 0};
  const std::vector<std::uint8_t> u8 = {0, 255};
  const std::vector<bfloat16> bf16 = {bfloat16(1.5f), bfloat16(-3e38f), bfloat16(0.f)};
  {
    hdf5::File file = hdf5::File::create(path);
    file.create_dataset("deep/er/f32", DType::f32, {2, 3}).write(f32.data());
    file.create_dataset("f64", DType::f64, {2}).write(f64.data());
    file.create_dataset("i64", DType::i64, {3}).write(i64.data());
    file.create_dataset("u8", DType::u8, {2}).write(u8.data());
    file.create_dataset("bf16", DType::bf16, {3}).write(bf16.data());
    file.create_dataset("none", DType::f32, {0, 4});
    file.close();
  }
  const hdf5::File file = hdf5::File::open(path);
  const std::vector<float> back = file.dataset("deep/er/f32").read<float>();
  ASSERT_EQ(back.size(), f32.size());
  EXPECT_EQ(std::memcmp(back.data(), f32.data(), f32.size() * sizeof(float)), 0);
  EXPECT_EQ(file.dataset("f64").read<double>(), f64);
  EXPECT_EQ(file.dataset("i64").read<std::int64_t>(), i64);
  EXPECT_EQ(file.dataset("u8").read<std::uint8_t>(), u8);
  EXPECT_EQ(file.dataset("bf16").dtype(), DType::bf16);
  EXPECT_THAT(file.dataset("bf16").read<float>(), ElementsAre(1.5f, static_cast<float>(bfloat16(-3e38f)), 0.f));
  EXPECT_EQ(file.dataset("none").shape(), (Shape{0, 4}));
  EXPECT_THAT(file.children("deep"), ElementsAre("er"));
  EXPECT_TRUE(file.has("deep/er/f32"));
  EXPECT_FALSE(file.has("deep/no/f32"));
}

TEST(Hdf5, BoxesAreReadAndWritten) {
  TemporaryDirectory directory;
  hdf5::File file = hdf5::File::create(directory.path() / "a.h5");
  hdf5::Dataset data = file.create_dataset("x", DType::i32, {4, 5});
  std::vector<std::int32_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  data.write(all.data());
  std::vector<std::int32_t> part(6);
  data.read({{1, 2}, {3, 2}}, part.data());
  EXPECT_THAT(part, ElementsAre(7, 8, 12, 13, 17, 18));
  data.write({{0, 0}, {1, 2}}, std::vector<std::int32_t>{-1, -2}.data());
  EXPECT_EQ(data.read<std::int32_t>()[1], -2);
}

TEST(Hdf5, WhatIsWrittenInSlicesComesBack) {
  TemporaryDirectory directory;
  hdf5::File file = hdf5::File::create(directory.path() / "a.h5");
  int number = 0;
  // In order: many slices of rows; rows that are larger than a slice; the same after an axis of extent 1; a dataset
  // smaller than a chunk.
  for (const Shape& shape : {Shape{5003, 700}, Shape{3, 1'500'001}, Shape{1, 2, 1300, 1100}, Shape{3'000'000}}) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(shape.size()));
    std::iota(values.begin(), values.end(), ++number);
    hdf5::Dataset data = file.create_dataset(std::to_string(number), DType::i32, shape);
    data.write(values.data());
    EXPECT_EQ(data.read<std::int32_t>(), values) << shape.text();
    if (number > 1) continue;
    // A box that begins within a chunk.
    const Box part{{777, 3}, {4001, 690}};
    std::vector<std::int32_t> negative(static_cast<std::size_t>(part.extent.size()), -1);
    data.write(part, negative.data());
    for (std::int64_t row = 777; row < 777 + 4001; ++row) {
      std::fill_n(values.begin() + row * 700 + 3, 690, -1);
    }
    EXPECT_EQ(data.read<std::int32_t>(), values);
  }
}

TEST(Hdf5, ThreadsWriteFilesOfTheirOwn) {
  TemporaryDirectory directory;
  constexpr int files = 4;
  const auto path = [&](int file) { return directory.path() / (std::to_string(file) + ".h5"); };
  const auto values_of = [](int file, int dataset) { return std::vector<std::int32_t>(20'000, 100 * file + dataset); };
  {
    std::vector<std::jthread> threads;
    for (int f = 0; f < files; ++f) {
      threads.emplace_back([&, f] {
        hdf5::File file = hdf5::File::create(path(f));
        for (int d = 0; d < 50; ++d) {
          file.create_dataset("group/" + std::to_string(d), DType::i32, {20'000}).write(values_of(f, d).data());
          file.set("last", d);
        }
        EXPECT_THROW(file.dataset("none"), Error);
        file.close();
      });
    }
  }
  for (int f = 0; f < files; ++f) {
    const hdf5::File file = hdf5::File::open(path(f));
    EXPECT_EQ(file.integer("last"), 49);
    EXPECT_EQ(file.children("group").size(), 50u);
    for (int d = 0; d < 50; ++d) {
      EXPECT_EQ(file.dataset("group/" + std::to_string(d)).read<std::int32_t>(), values_of(f, d));
    }
  }
}

TEST(Hdf5, AttributesAndScales) {
  TemporaryDirectory directory;
  const auto path = directory.path() / "a.h5";
  const std::string big(200000, 'x');  // more than the 64 KB limit of an attribute in compact storage
  {
    hdf5::File file = hdf5::File::create(path);
    file.set("text", "größe");
    file.set("text", "replaced");
    file.set("big", big);
    file.set("step", 7);
    file.set("rate", 0.1);
    file.set("sizes", std::vector<std::int64_t>{3, 4});
    hdf5::Dataset steps = file.create_dataset("step", DType::i64, {0}, {.growing = true});
    hdf5::Dataset counts = file.create_dataset("counts", DType::i64, {0, 2}, {.growing = true});
    steps.make_scale("step");
    counts.attach_scale(0, steps);
    counts.label(1, "k");
    counts.set("units", "tokens");
    file.close();
  }
  {
    hdf5::File file = hdf5::File::edit(path);
    hdf5::Dataset counts = file.dataset("counts");
    counts.resize({3, 2});
    counts.write({{2, 0}, {1, 2}}, std::vector<std::int64_t>{5, 6}.data());
    file.close();
  }
  const hdf5::File file = hdf5::File::open(path);
  EXPECT_EQ(file.text("text"), "replaced");
  EXPECT_EQ(file.text("big"), big);
  EXPECT_EQ(file.integer("step"), 7);
  EXPECT_EQ(file.number("rate"), 0.1);
  EXPECT_THAT(file.integers("sizes"), ElementsAre(3, 4));
  EXPECT_FALSE(file.has_attribute("none"));
  EXPECT_THAT(file.dataset("counts").read<std::int64_t>(), ElementsAre(0, 0, 0, 0, 5, 6));
  EXPECT_EQ(file.dataset("counts").text("units"), "tokens");
  EXPECT_THAT(error_of([&] { file.integer("text"); }, ExitCode::bad_input), HasSubstr("an unexpected type"));
}

TEST(Hdf5, ErrorsNameFileAndCause) {
  TemporaryDirectory directory;
  const auto path = directory.path() / "a.h5";
  EXPECT_THAT(error_of([&] { hdf5::File::open(path); }, ExitCode::bad_input),
              testing::AllOf(HasSubstr(path.string()), HasSubstr("No such file")));
  std::ofstream(path) << "this is not HDF5";
  EXPECT_THAT(error_of([&] { hdf5::File::open(path); }, ExitCode::bad_input),
              testing::AllOf(HasSubstr(path.string()), HasSubstr("signature")));
  EXPECT_THAT(error_of([&] { hdf5::File::create(directory.path() / "no" / "a.h5"); }, ExitCode::failed),
              HasSubstr("No such file"));
  // HDF5 tries to open a new file before it creates it, but the reason is that of creating it.
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0555));
  const bool root = geteuid() == 0;
  if (!root || seteuid(65534) == 0) {  // root may write anywhere
    EXPECT_THAT(error_of([&] { hdf5::File::create(directory.path() / "new.h5"); }, ExitCode::failed),
                HasSubstr("Permission denied"));
    if (root) {
      ASSERT_EQ(seteuid(0), 0);
      prctl(PR_SET_DUMPABLE, 1);  // seteuid() clears it, and LeakSanitizer needs it
    }
  }
  std::filesystem::permissions(directory.path(), std::filesystem::perms::owner_all);
  hdf5::File::create(path).close();
  EXPECT_THAT(error_of([&] { hdf5::File::open(path).dataset("x"); }, ExitCode::bad_input), HasSubstr("dataset x"));
}

TEST(Hdf5, DatasetsThatClaimMoreThanTheFileHoldsAreRefused) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "a.h5";
  {
    hdf5::File file = hdf5::File::create(path);
    const float one = 1;
    file.create_dataset("vast", DType::f32, {1 << 28}, {.chunk = {4}}).write(Box{{0}, {1}}, &one);
    file.create_dataset("never_written", DType::f32, {4});
    file.create_dataset("empty", DType::f32, {0, 4});
    file.close();
  }
  const hdf5::File file = hdf5::File::open(path);
  for (const char* name : {"vast", "never_written"}) {
    EXPECT_THAT(error_of([&] { file.dataset(name); }, ExitCode::bad_input), HasSubstr("too small for it")) << name;
  }
  EXPECT_EQ(file.dataset("empty").shape(), Shape({0, 4}));
}

TEST(Hdf5, DatasetsWhoseNumbersLieInOtherFoldersAreRefused) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "a.h5", secret = directory.path() / "secret";
  std::ofstream(secret) << "16 secret bytes.";
  {
    hdf5::File file = hdf5::File::create(directory.path() / "beside.h5");
    file.create_dataset("x", DType::f32, {4}).write(std::vector<float>{1, 2, 3, 4}.data());
    file.close();
  }
  {
    hdf5::VirtualFile file(path);
    for (const auto& [name, source] :
         {std::pair("above", "../beside.h5"), {"absolute", "/beside.h5"}, {"beside", "beside.h5"}}) {
      file.add(name, DType::f32, {4}, std::vector<hdf5::VirtualSource>{{source, "x", {{0}, {4}}}});
    }
    file.close();
  }
  {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hsize_t count = 4;
    const hid_t space = H5Screate_simple(1, &count, nullptr), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(list, secret.c_str(), 0, 16);
    H5Dclose(H5Dcreate2(file, "external", H5T_IEEE_F32LE, space, H5P_DEFAULT, list, H5P_DEFAULT));
    H5Lcreate_external((directory.path() / "beside.h5").c_str(), "x", file, "linked", H5P_DEFAULT, H5P_DEFAULT);
    H5Pclose(list);
    H5Sclose(space);
    H5Fclose(file);
  }
  const hdf5::File file = hdf5::File::open(path);
  EXPECT_THAT(file.dataset("beside").read<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(error_of([&] { file.dataset("external"); }, ExitCode::bad_input),
              testing::AllOf(HasSubstr(path.string()),
                             HasSubstr("external files, and groups of HDF5 before 1.8, are not supported")));
  for (const char* name : {"above", "absolute", "linked"}) {
    EXPECT_THAT(error_of([&] { file.dataset(name); }, ExitCode::bad_input),
                testing::AllOf(HasSubstr(path.string()), HasSubstr(name), HasSubstr("outside of this file's folder")));
  }
}

TEST(Hdf5, AFullDiskIsAnErrorAndTheLibraryLivesOn) {
  TemporaryDirectory directory;
  const std::vector<float> values(100000, 1.f);
  for (const rlim_t limit : {0, 10, 1000, 100000, 400000, 420000, 800000}) {
    const auto save = [&] {
      const FileSizeLimit full(limit);
      hdf5::File file = hdf5::File::create(directory.path() / "full.h5");
      for (int i = 0; i < 3; ++i) {
        const std::string name = "group" + std::to_string(i) + "/x";
        file.create_dataset(name, DType::f32, {100, 1000}, {.chunk = {7, 100}}).write(values.data());
      }
      file.close();
    };
    EXPECT_THAT(error_of(save, ExitCode::failed), HasSubstr("File too large")) << limit;
  }
  const auto path = directory.path() / "fine.h5";
  hdf5::File file = hdf5::File::create(path);
  file.create_dataset("x", DType::f32, {100000}).write(values.data());
  file.close();
  EXPECT_EQ(hdf5::File::open(path).dataset("x").read<float>(), values);
}

}  // namespace
}  // namespace lyceum
