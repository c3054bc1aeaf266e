#include "io/files/virtual_hdf5.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "io/files/hdf5.h"
#include "io/files/hdf5_checksum.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using hdf5::VirtualFile;
using hdf5::VirtualSource;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

/// A file with views, in a folder with source.h5. Its dataset "flat" has 0, 1, …, 99, "matrix" [4, 6] the same numbers,
/// and "halves" the first ten in bf16.
class VirtualFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<float> numbers(100);
    std::iota(numbers.begin(), numbers.end(), 0.f);
    std::vector<bfloat16> halves(10);
    std::transform(numbers.begin(), numbers.begin() + 10, halves.begin(), [](float x) { return bfloat16(x); });
    hdf5::File file = hdf5::File::create(directory_.path() / "source.h5");
    file.create_dataset("flat", DType::f32, {100}, {.chunk = {7}}).write(numbers.data());
    file.create_dataset("matrix", DType::f32, {4, 6}).write(numbers.data());
    file.create_dataset("halves", DType::bf16, {10}).write(Box::whole({10}), DType::bf16, halves.data());
    file.close();
  }

  std::filesystem::path path() const { return directory_.path() / "views.h5"; }
  std::vector<float> read(const std::string& name) const {
    return hdf5::File::open(path()).dataset(name).read<float>();
  }
  /// Returns the paths of all groups and datasets, as the library finds them.
  std::vector<std::string> objects() const {
    const hid_t file = H5Fopen(path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    std::vector<std::string> names;
    const auto visit = [](hid_t, const char* name, const H5O_info_t* info, void* out) -> herr_t {
      static_cast<std::vector<std::string>*>(out)->push_back((info->type == H5O_TYPE_GROUP ? "+" : "") +
                                                             std::string(name));
      return 0;
    };
    EXPECT_GE(H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &names), 0);
    H5Fclose(file);
    return names;
  }

  TemporaryDirectory directory_;
};

TEST_F(VirtualFiles, ShowWholeDatasetsAndRangesOfFlatOnes) {
  {
    VirtualFile file(path());
    file.add("cube", DType::f32, {2, 2, 3},
             std::vector<VirtualSource>{{"source.h5", "flat", Box::whole({2, 2, 3}), 20}});
    file.add("empty", DType::f32, {0, 3}, {});
    file.add("flat", DType::f32, {100}, std::vector<VirtualSource>{{"source.h5", "flat", Box::whole({100})}});
    file.add("halves", DType::bf16, {2, 2}, std::vector<VirtualSource>{{"source.h5", "halves", Box::whole({2, 2}), 3}});
    file.add("matrix", DType::f32, {6, 6},
             std::vector<VirtualSource>{{"source.h5", "flat", {{0, 0}, {1, 3}}, 50},
                                        {"source.h5", "flat", {{1, 0}, {1, 6}}, 60},
                                        {"source.h5", "matrix", {{2, 0}, {4, 6}}}});
    file.close();
  }
  EXPECT_THAT(read("cube"), ElementsAre(20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
  const hdf5::File file = hdf5::File::open(path());
  EXPECT_EQ(file.dataset("empty").shape(), Shape({0, 3}));
  EXPECT_EQ(file.dataset("flat").read<float>()[99], 99);
  EXPECT_EQ(file.dataset("halves").dtype(), DType::bf16);
  EXPECT_THAT(read("halves"), ElementsAre(3, 4, 5, 6));
  const std::vector<float> matrix = read("matrix");
  EXPECT_THAT(std::vector(matrix.begin(), matrix.begin() + 3), ElementsAre(50, 51, 52));
  EXPECT_THAT(std::vector(matrix.begin() + 3, matrix.begin() + 6), Each(IsNan()));  // no source
  EXPECT_THAT(std::vector(matrix.begin() + 6, matrix.begin() + 14), ElementsAre(60, 61, 62, 63, 64, 65, 0, 1));
  EXPECT_EQ(matrix[35], 23);
  std::array<float, 4> part{};
  file.dataset("cube").read({.offset = {0, 1, 1}, .extent = {2, 1, 2}}, part.data());
  EXPECT_THAT(part, ElementsAre(24, 25, 30, 31));
  file.dataset("matrix").read({.offset = {1, 4}, .extent = {2, 2}}, part.data());
  EXPECT_THAT(part, ElementsAre(64, 65, 4, 5));
}

TEST_F(VirtualFiles, ReadAsNanWithoutTheirSource) {
  {
    VirtualFile file(path());
    for (const DType type : {DType::bf16, DType::f32}) {
      file.add(name_of(type), type, {3}, std::vector<VirtualSource>{{"missing.h5", "x", Box::whole({3})}});
    }
    file.close();
  }
  EXPECT_THAT(read("bf16"), Each(IsNan()));
  EXPECT_THAT(read("f32"), Each(IsNan()));
}

TEST_F(VirtualFiles, HaveTheGroupsOfTheirPaths) {
  const std::vector<std::string> names{"a", "a!/x", "b.c", "b/a/a/a", "b/a/b", "b/b/a", "b0/a", "größe/ü", "z"};
  ASSERT_TRUE(std::ranges::is_sorted(names));
  {
    VirtualFile file(path());
    for (const std::string& name : names) file.add(name, DType::f32, {1}, {});
    file.close();
  }
  EXPECT_THAT(objects(), ElementsAre("+.", "a", "+a!", "a!/x", "+b", "+b/a", "+b/a/a", "b/a/a/a", "b/a/b", "+b/b",
                                     "b/b/a", "b.c", "+b0", "b0/a", "+größe", "größe/ü", "z"));
}

TEST_F(VirtualFiles, AreEmptyWithoutDatasets) {
  VirtualFile(path()).close();
  EXPECT_THAT(objects(), ElementsAre("+."));
}

TEST_F(VirtualFiles, MayBeLarge) {
  constexpr int groups = 20, datasets = 600, sources = 3000;
  const auto name_of = [](int group, int dataset) { return fmt::format("groups/{:03}/{:05}/weight", group, dataset); };
  {
    VirtualFile file(path());
    for (int g = 0; g < groups; ++g) {
      for (int d = 0; d < datasets; ++d) {
        const std::int64_t first = (g * datasets + d) % 98;
        file.add(name_of(g, d), DType::f32, {1, 2},
                 std::vector<VirtualSource>{{"source.h5", "flat", Box::whole({1, 2}), first}});
      }
    }
    std::vector<VirtualSource> many;
    for (int i = 0; i < sources; ++i) many.push_back({"source.h5", "flat", {{i}, {1}}, i % 100});
    file.add("many", DType::f32, {sources}, many);
    file.add("one", DType::f32, {1}, std::vector<VirtualSource>{{"source.h5", "flat", {{0}, {1}}, 5}});
    file.close();
  }
  EXPECT_EQ(objects().size(), 1u + 1 + groups + 2 * groups * datasets + 2);
  for (const auto& [g, d] : {std::pair(0, 0), {7, 311}, {19, 599}}) {
    const auto first = static_cast<float>((g * datasets + d) % 98);
    EXPECT_THAT(read(name_of(g, d)), ElementsAre(first, first + 1)) << g << ' ' << d;
  }
  EXPECT_EQ(read("many")[2999], 99);
  EXPECT_THAT(read("one"), ElementsAre(5));
}

/// The library must understand selections of elements beyond 2^32, which have another form in the file.
TEST_F(VirtualFiles, MayReferToElementsBeyond32Bits) {
  constexpr std::int64_t far = (std::int64_t{1} << 33) + 5;
  {
    VirtualFile file(path());
    file.add("far", DType::f32, {far + 4, 2},
             std::vector<VirtualSource>{{"source.h5", "flat", {{far, 0}, {2, 2}}, far}});
    file.close();
  }
  const hid_t file = H5Fopen(path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), dataset = H5Dopen2(file, "far", H5P_DEFAULT),
              list = H5Dget_create_plist(dataset);
  std::size_t count = 0;
  EXPECT_GE(H5Pget_virtual_count(list, &count), 0);
  EXPECT_EQ(count, 1u);
  std::array<hsize_t, 2> first{}, last{};
  for (const auto& [space, begin, end] :
       {std::tuple(H5Pget_virtual_srcspace(list, 0), std::vector<hsize_t>{far}, std::vector<hsize_t>{far + 3}),
        {H5Pget_virtual_vspace(list, 0), {far, 0}, {far + 1, 1}}}) {
    EXPECT_GE(H5Sget_select_bounds(space, first.data(), last.data()), 0);
    EXPECT_EQ(H5Sget_select_npoints(space), 4);
    EXPECT_TRUE(std::equal(begin.begin(), begin.end(), first.begin()));
    EXPECT_TRUE(std::equal(end.begin(), end.end(), last.begin()));
    H5Sclose(space);
  }
  H5Pclose(list);
  H5Dclose(dataset);
  H5Fclose(file);
}

TEST_F(VirtualFiles, CanBeEdited) {
  {
    VirtualFile file(path());
    file.add("a/b", DType::f32, {2}, std::vector<VirtualSource>{{"source.h5", "flat", {{0}, {2}}, 8}});
    file.close();
  }
  hdf5::File file = hdf5::File::edit(path());
  for (int i = 0; i < 20; ++i) file.set(fmt::format("attribute {}", i), std::string(1000, 'x'));
  for (int i = 0; i < 20; ++i) file.create_dataset(fmt::format("a/{}", i), DType::f32, {1});
  file.close();
  EXPECT_EQ(hdf5::File::open(path()).text("attribute 19"), std::string(1000, 'x'));
  EXPECT_THAT(read("a/b"), ElementsAre(8, 9));
}

TEST_F(VirtualFiles, ErrorsNameTheFile) {
  VirtualFile file(path());
  file.add("b", DType::f32, {1}, {});
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(error_of([&] { file.add(name, DType::f32, {1}, {}); }, ExitCode::failed),
                AllOf(HasSubstr(path().string()), HasSubstr("is not after b")));
  }
  EXPECT_THAT(error_of([&] { VirtualFile("/nowhere/views.h5"); }, ExitCode::failed), HasSubstr("/nowhere/views.h5"));
  const FileSizeLimit limit(100);
  EXPECT_THAT(error_of([&] { file.close(); }, ExitCode::failed),
              AllOf(HasSubstr(path().string()), HasSubstr("File too large")));
}

TEST(Hdf5Checksum, IsThatOfLookup3) {
  EXPECT_EQ(hdf5::checksum(""), 0xdeadbeefu);
  EXPECT_EQ(hdf5::checksum("Four score and seven years ago"), 0x17770551u);
}

}  // namespace
}  // namespace lyceum
