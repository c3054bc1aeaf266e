#include "io/data/tokens/megatron_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/megatron_files.h"
#include "io/data/tokens/megatron_index.h"
#include "io/files/whole_file.h"

namespace lyceum {
namespace {

using ::testing::HasSubstr;

using MegatronFileTest = MegatronFiles;

TEST_F(MegatronFileTest, ReadsFilesMadeByHandWithSeveralSequencesADocument) {
  const auto file = open_tokens(write(Parts{}));
  EXPECT_EQ(file->tokens(), 5);
  EXPECT_EQ(MegatronIndex(prefix(), 10).sequences(), 3);
  EXPECT_EQ(file->documents(), 2);
  EXPECT_EQ(file->document_begin(0), 0);
  EXPECT_EQ(file->document_begin(1), 2);
  EXPECT_EQ(file->document_begin(2), 5);
  EXPECT_THROW(file->document_begin(3), Error);
  EXPECT_EQ(all_tokens(*file), (std::vector<std::int32_t>{5, 513, 65535, 0, 7}));
}

TEST_F(MegatronFileTest, ReadsRangesAndRefusesThoseOutside) {
  const auto file = open_tokens(write(Parts{}));
  std::vector<std::int32_t> two(2);
  file->read(3, two);
  EXPECT_EQ(two, (std::vector<std::int32_t>{0, 7}));
  file->read(5, {});
  EXPECT_THROW(file->read(4, two), Error);
  EXPECT_THROW(file->read(-1, two), Error);
}

template <class T>
Parts parts_of(std::uint8_t type, const std::vector<T>& tokens) {
  Parts parts{.type = type,
              .sequences = 1,
              .documents = 2,
              .lengths = {static_cast<std::int32_t>(tokens.size())},
              .offsets = {0},
              .boundaries = {0, 1},
              .bin = ""};
  for (const T token : tokens) put(parts.bin, token);
  return parts;
}

TEST_F(MegatronFileTest, ReadsEveryIntegerType) {
  const auto expect = [&](const Parts& parts, const std::vector<std::int32_t>& tokens) {
    EXPECT_EQ(all_tokens(*open_tokens(write(parts))), tokens);
  };
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  expect(parts_of<std::uint8_t>(1, {0, 200, 255}), {0, 200, 255});
  expect(parts_of<std::int8_t>(2, {-128, -3, -7}), {-128, -3, -7});
  expect(parts_of<std::int16_t>(3, {-1, 32767}), {-1, 32767});
  expect(parts_of<std::int32_t>(4, {most, -most - 1}), {most, -most - 1});
  expect(parts_of<std::int64_t>(5, {7, -7, most}), {7, -7, most});
  expect(parts_of<std::uint16_t>(8, {40000}), {40000});
}

TEST_F(MegatronFileTest, NamesTheTypesOfDeepSpeed) {
  expect_refused(
      Parts{.type = 6},
      {".idx", "DeepSpeed's uint16 (for Megatron, it is float64): set byte 17 of the file to 8, Megatron's uint16"});
  expect_refused(parts_of<std::uint32_t>(7, {1, 2}),
                 {"DeepSpeed's uint32", "float32", "byte 17 of the file to 4, Megatron's int32"});
  expect_refused(parts_of<std::uint64_t>(8, {1, 2}),
                 {"DeepSpeed's uint64", "uint16", "byte 17 of the file to 5, Megatron's int64"});
  // the change that the message asks for
  std::string idx = Parts{.type = 6}.idx();
  idx[17] = 8;
  write(Parts{}.bin, idx);
  EXPECT_EQ(all_tokens(*open_tokens(prefix())), (std::vector<std::int32_t>{5, 513, 65535, 0, 7}));
}

TEST_F(MegatronFileTest, NamesAMultimodalIndexAndTheOlderKind) {
  expect_refused(Parts{}.bin, Parts{}.idx() + std::string(3, '\0'), {".idx", "multimodal", "each of its 3 sequences"});
  expect_refused(Parts{}.bin, Parts{}.idx() + std::string(2, '\0'), {".idx", "copy it again"});
  expect_refused(Parts{}.bin, "TNTIDX" + std::string(80, '\0'), {".idx", "TNTIDX", "--dataset-impl mmap"});
}

TEST_F(MegatronFileTest, NamesATokenBeyond32Bits) {
  const auto file = open_tokens(write(parts_of<std::int64_t>(5, {1, 2, (std::int64_t{1} << 32) + 5})));
  std::vector<std::int32_t> tokens(3);
  try {
    file->read(0, tokens);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("4294967301 at position 2"));
  }
}

TEST_F(MegatronFileTest, RefusesMissingFiles) {
  expect_open_refused({prefix() + ".bin", "No such file"});
  write_whole_file(prefix() + ".bin", Parts{}.bin);
  expect_open_refused({prefix() + ".idx", "No such file"});
}

TEST_F(MegatronFileTest, RefusesAFolder) {
  std::filesystem::create_directories(prefix() + ".bin");
  expect_open_refused({prefix() + ".bin"});
}

TEST_F(MegatronFileTest, RefusesAWrongMagicVersionOrType) {
  expect_refused(Parts{.magic = std::string("MMIDIDY\0\0", 9)}, {".idx", "MMIDIDX"});
  expect_refused(Parts{.version = 2}, {".idx", "version 2"});
  expect_refused(parts_of<double>(6, {1, 2}), {".idx", "float64", "must be integers"});
  expect_refused(Parts{.type = 0}, {".idx", "unknown type 0"});
  expect_refused(Parts{.type = 9}, {".idx", "unknown type 9"});
}

TEST_F(MegatronFileTest, RefusesAnIndexCutAtEveryByte) {
  const Parts parts;
  const std::string whole = parts.idx();
  for (std::size_t kept = 0; kept < whole.size(); ++kept) expect_refused(parts.bin, whole.substr(0, kept), {".idx"});
  expect_refused(parts.bin, whole + "x", {".idx", std::to_string(whole.size() + 1), std::to_string(whole.size())});
}

TEST_F(MegatronFileTest, RefusesCountsThatWouldWrap) {
  // 12 · 2^62 is 0 modulo 2^64.
  Parts parts{.sequences = std::uint64_t{1} << 62};
  expect_refused(parts, {".idx"});
  parts = {.documents = std::uint64_t{1} << 61};
  expect_refused(parts, {".idx"});
}

TEST_F(MegatronFileTest, NamesExpectedAndFoundBytesOfATruncatedBin) {
  Parts parts;
  parts.bin.resize(8);
  expect_refused(parts, {".bin has 8 bytes", "5 tokens", "10 bytes"});
  parts.bin.resize(9);
  expect_refused(parts, {".bin has 9 bytes", "10 bytes"});
  parts.bin.resize(12);
  expect_refused(parts, {".bin has 12 bytes", "10 bytes"});
}

TEST_F(MegatronFileTest, RefusesEmptyData) {
  expect_refused(Parts{.sequences = 0, .documents = 1, .lengths = {}, .offsets = {}, .boundaries = {0}, .bin = ""},
                 {"no tokens"});
  expect_refused(Parts{.sequences = 1, .documents = 2, .lengths = {0}, .offsets = {0}, .boundaries = {0, 1}, .bin = ""},
                 {"no tokens"});
}

TEST_F(MegatronFileTest, RefusesLengthsAndOffsetsThatDisagree) {
  expect_refused(Parts{.lengths = {2, -1, 4}}, {"sequence 1", "-1"});
  expect_refused(Parts{.offsets = {2, 4, 4}}, {"sequence 0", "byte 2 instead of 0"});
  expect_refused(Parts{.offsets = {0, 6, 4}}, {"sequence 1", "byte 6 instead of 4"});
  expect_refused(Parts{.offsets = {0, 4, std::numeric_limits<std::int64_t>::min()}}, {"sequence 2"});
}

TEST_F(MegatronFileTest, RefusesDocumentsThatDoNotCoverTheSequences) {
  expect_refused(Parts{.boundaries = {1, 2, 3}}, {"documents extend", "1"});
  expect_refused(Parts{.boundaries = {0, 2, 2}}, {"documents extend", "0 to 2"});
  expect_refused(Parts{.documents = 4, .boundaries = {0, 3, 1, 3}}, {"document 2", "sequence 1"});
  expect_refused(Parts{.documents = 1, .boundaries = {0}}, {"1 document boundaries"});
  expect_refused(Parts{.documents = 0, .boundaries = {}}, {"0 document boundaries"});
}

}  // namespace
}  // namespace lyceum
