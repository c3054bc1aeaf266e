#include "io/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <tuple>

#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum::safetensors {
namespace {

using testing::ElementsAre;

class SafetensorsFile : public testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "model.safetensors"; }

  /// Writes a file with this header, followed by the given number of bytes 0, 1, 2, ….
  void write(const std::string& header, std::size_t bytes = 0) const {
    const std::uint64_t length = header.size();
    std::string text(sizeof(length), '\0');
    std::memcpy(text.data(), &length, sizeof(length));
    text += header;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(i);
    write_bytes(text);
  }
  void write_bytes(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }

  void expect_refused(const std::string& words) const {
    expect_bad_input([&] { Reader{file()}; }, words);
    expect_bad_input([&] { Reader{file()}; }, "model.safetensors");
  }
  std::vector<float> values(std::size_t tensor) const {
    const Reader reader(file());
    std::vector<float> read(static_cast<std::size_t>(reader.tensors().at(tensor).shape.size()));
    reader.read(reader.tensors().at(tensor), read);
    return read;
  }

 private:
  TemporaryDirectory folder_;
};

TEST_F(SafetensorsFile, HoldsWhatWasWritten) {
  Writer writer(file(), {{"b", Type::f32, {2, 2}}, {"a", Type::bf16, {3}}, {"empty", Type::f32, {0, 4}}});
  writer.write(std::vector<float>{1, 2.5f, -3, 1e-30f});
  // 1.00390625 is halfway between two bf16 numbers and is rounded to even.
  writer.write(std::vector<float>{1, 1.00390625f, -0.1f});
  writer.write({});
  writer.finish();
  const Reader reader(file());
  ASSERT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[1].shape, (Shape{2, 2}));
  EXPECT_THAT(values(0), ElementsAre(1, 1, -0.10009765625f));
  EXPECT_THAT(values(1), ElementsAre(1, 2.5f, -3, 1e-30f));
  EXPECT_EQ(reader.tensors()[2].shape.size(), 0);
  EXPECT_EQ(reader.tensors()[1].begin % 8, 0u);
}

TEST_F(SafetensorsFile, ReadsHalfPrecision) {
  std::string data;
  for (const std::uint16_t bits : {0x3c00, 0xc000, 0x0001, 0x8000, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e00}) {
    data += static_cast<char>(bits & 0xff);
    data += static_cast<char>(bits >> 8);
  }
  const std::string header = R"({"h":{"dtype":"F16","shape":[10],"data_offsets":[0,20]}})";
  write(header);
  std::ofstream(file(), std::ios::binary | std::ios::app) << data;
  const std::vector<float> read = values(0);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(std::vector<float>(read.begin(), read.end() - 1),
              ElementsAre(1, -2, 0x1p-24f, 0, 1023 * 0x1p-24f, 0x1p-14f, 65504, infinity, -infinity));
  EXPECT_TRUE(std::signbit(read[3]));
  EXPECT_TRUE(std::isnan(read[9]));
}

TEST_F(SafetensorsFile, ReadsNumbersOfEightBits) {
  std::string data;
  for (const int bits : {0x38, 0xb8, 0x00, 0x80, 0x01, 0x07, 0x08, 0x7e, 0xfe, 0x45, 0x7f, 0xff}) {
    data += static_cast<char>(bits);
  }
  write(R"({"h":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[0,12]}})");
  std::ofstream(file(), std::ios::binary | std::ios::app) << data;
  const std::vector<float> read = values(0);
  EXPECT_THAT(std::vector<float>(read.begin(), read.end() - 2),
              ElementsAre(1, -1, 0, 0, 0x1p-9f, 7 * 0x1p-9f, 0x1p-6f, 448, -448, 3.25f));
  EXPECT_TRUE(std::signbit(read[3]));
  EXPECT_TRUE(std::isnan(read[10]) && std::isnan(read[11]));
}

TEST_F(SafetensorsFile, ReadsBytes) {
  write(R"({"u":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}})", 6);
  EXPECT_THAT(values(0), ElementsAre(0, 1, 2, 3, 4, 5));
  const Reader reader(file());
  std::vector<std::uint8_t> bytes(2);
  reader.read_bytes(reader.tensors()[0], 3, bytes);
  EXPECT_THAT(bytes, ElementsAre(3, 4));
  expect_failure([&] { reader.read_bytes(reader.tensors()[0], 5, bytes); }, "u [2, 3] does not have elements 5 to 7");
}

TEST_F(SafetensorsFile, IsWrittenAndReadInParts) {
  Writer writer(file(), {{"a", Type::f32, {2, 3}}, {"b", Type::bf16, {4}}});
  writer.write(std::vector<float>{1, 2});
  writer.write(std::vector<float>{3, 4, 5, 6});
  writer.write(std::vector<float>{7});
  expect_failure([&] { writer.finish(); }, "1 of 2 tensors");
  writer.write(std::vector<float>{8, 9, 10});
  writer.finish();
  const Reader reader(file());
  for (const auto& [tensor, first, count] : {std::tuple{0, 2, 3}, {1, 1, 2}, {1, 4, 0}}) {
    std::vector<float> part(static_cast<std::size_t>(count));
    reader.read(reader.tensors()[static_cast<std::size_t>(tensor)], first, part);
    for (int i = 0; i < count; ++i) EXPECT_EQ(part[static_cast<std::size_t>(i)], 6 * tensor + first + i + 1);
  }
  std::vector<float> part(3);
  expect_failure([&] { reader.read(reader.tensors()[1], 2, part); }, "does not have elements 2 to 5");
  expect_failure([&] { reader.read_bytes(reader.tensors()[1], 0, {}); }, "b is not a tensor of bytes");
}

TEST_F(SafetensorsFile, RefusesWhatIsNotSound) {
  write_bytes("1234567");
  expect_refused("it has only 7 bytes");
  write_bytes(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  expect_refused("its header would have 9223372036854775807 bytes");
  write_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 42\n");
  expect_refused("it is a pointer of Git LFS; `git lfs pull` replaces it by the file");
  write("{]");
  expect_refused("parse error");
  write("[]");
  expect_refused("not an object");
  write(std::string(30000, '['));
  expect_refused("nests deeper");
  write(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4);
  expect_refused("are outside the data");
  write(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8);
  expect_refused("are outside the data");
  write(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8);
  expect_refused("[3] of F32 does not match its 8 bytes");
  write(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})");
  expect_refused("too large for any file");
  write(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4);
  expect_refused("its shape is [-1]");
  write(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}})", 4);
  expect_refused("at most four extents");
  write(R"({"a":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]}})", 4);
  expect_refused("its type is F8_E5M2");
  write(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4);
  expect_refused("1.5 is not an integer");
  write(R"({"a":{"dtype":"F32","shape":[1]}})", 4);
  expect_refused("data_offsets");
  write(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      8);
  expect_refused("tensor b begins before byte");
  write(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8);
  expect_refused("tensor a begins after byte");
  write(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8);
  expect_refused("its tensors end at byte");
  std::filesystem::remove(file());
  expect_refused("cannot be opened");
}

TEST_F(SafetensorsFile, IsNotThereUntilAllIsWritten) {
  {
    Writer writer(file(), {{"a", Type::f32, {1}}});
    expect_failure([&] { writer.finish(); }, "0 of 1 tensors");
  }
  EXPECT_TRUE(std::filesystem::is_empty(file().parent_path()));
}

}  // namespace
}  // namespace lyceum::safetensors
