#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/token_source.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using ::testing::HasSubstr;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// The two files by hand: what each test breaks. Three sequences of 2, 0 and 3 tokens in two documents.
struct Parts {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::uint64_t sequences = 3, documents = 3;
  std::vector<std::int32_t> lengths{2, 0, 3};
  std::vector<std::int64_t> offsets{0, 4, 4};
  std::vector<std::int64_t> boundaries{0, 2, 3};
  std::string bin = std::string("\x05\x00\x01\x02\xFF\xFF\x00\x00\x07\x00", 10);  // 5, 513, 65535, 0, 7

  std::string idx() const {
    std::string bytes = magic;
    put(bytes, version);
    put(bytes, type);
    put(bytes, sequences);
    put(bytes, documents);
    for (const auto value : lengths) put(bytes, value);
    for (const auto value : offsets) put(bytes, value);
    for (const auto value : boundaries) put(bytes, value);
    return bytes;
  }
};

class TokenFileTest : public ::testing::Test {
 protected:
  std::string write(const Parts& parts) { return write(parts.bin, parts.idx()); }
  std::string write(const std::string& bin, const std::string& idx) {
    write_whole_file(prefix() + ".bin", bin);
    write_whole_file(prefix() + ".idx", idx);
    return prefix();
  }
  std::string prefix() const { return directory_.path() / "tokens"; }

  void expect_refused(const Parts& parts, const std::vector<std::string>& named) {
    expect_refused(parts.bin, parts.idx(), named);
  }
  void expect_refused(const std::string& bin, const std::string& idx, const std::vector<std::string>& named) {
    write(bin, idx);
    expect_open_refused(named);
  }
  void expect_open_refused(const std::vector<std::string>& named) {
    try {
      const TokenFile file(prefix());
      FAIL() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      for (const std::string& words : named) EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }

  TemporaryDirectory directory_;
};

std::vector<std::int32_t> all_tokens(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

TEST_F(TokenFileTest, ReadsFilesMadeByHandWithSeveralSequencesADocument) {
  const TokenFile file(write(Parts{}));
  EXPECT_EQ(file.tokens(), 5);
  EXPECT_EQ(file.sequences(), 3);
  EXPECT_EQ(file.documents(), 2);
  EXPECT_EQ(file.document_begin(0), 0);
  EXPECT_EQ(file.document_begin(1), 2);
  EXPECT_EQ(file.document_begin(2), 5);
  EXPECT_THROW(file.document_begin(3), Error);
  EXPECT_EQ(all_tokens(file), (std::vector<std::int32_t>{5, 513, 65535, 0, 7}));
  EXPECT_EQ(file.largest_token(), 65535);
  EXPECT_EQ(file.largest_token(), 65535);
}

TEST_F(TokenFileTest, ReadsPartsAndRefusesWhatLiesOutside) {
  const TokenFile file(write(Parts{}));
  std::vector<std::int32_t> two(2);
  file.read(3, two);
  EXPECT_EQ(two, (std::vector<std::int32_t>{0, 7}));
  file.read(5, {});
  EXPECT_THROW(file.read(4, two), Error);
  EXPECT_THROW(file.read(-1, two), Error);
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

TEST_F(TokenFileTest, ReadsEveryIntegerType) {
  const auto expect = [&](const Parts& parts, const std::vector<std::int32_t>& tokens, std::int64_t largest) {
    const TokenFile file(write(parts));
    EXPECT_EQ(all_tokens(file), tokens);
    EXPECT_EQ(file.largest_token(), largest);
  };
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  expect(parts_of<std::uint8_t>(1, {0, 200, 255}), {0, 200, 255}, 255);
  expect(parts_of<std::int8_t>(2, {-128, -3, -7}), {-128, -3, -7}, -3);
  expect(parts_of<std::int16_t>(3, {-1, 32767}), {-1, 32767}, 32767);
  expect(parts_of<std::int32_t>(4, {most, -most - 1}), {most, -most - 1}, most);
  expect(parts_of<std::int64_t>(5, {7, -7, most}), {7, -7, most}, most);
  expect(parts_of<std::uint16_t>(8, {40000}), {40000}, 40000);
}

TEST_F(TokenFileTest, NamesTheTypesOfDeepSpeed) {
  expect_refused(
      Parts{.type = 6},
      {".idx", "DeepSpeed's uint16 (for Megatron, it is float64): set byte 17 of the file to 8, Megatron's uint16"});
  expect_refused(parts_of<std::uint32_t>(7, {1, 2}),
                 {"DeepSpeed's uint32", "float32", "byte 17 of the file to 4, Megatron's int32"});
  expect_refused(parts_of<std::uint64_t>(8, {1, 2}),
                 {"DeepSpeed's uint64", "uint16", "byte 17 of the file to 5, Megatron's int64"});
  // The change that the message asks for.
  std::string idx = Parts{.type = 6}.idx();
  idx[17] = 8;
  write(Parts{}.bin, idx);
  EXPECT_EQ(all_tokens(TokenFile(prefix())), (std::vector<std::int32_t>{5, 513, 65535, 0, 7}));
}

TEST_F(TokenFileTest, NamesAMultimodalIndexAndTheOlderKind) {
  expect_refused(Parts{}.bin, Parts{}.idx() + std::string(3, '\0'), {".idx", "multimodal", "each of its 3 sequences"});
  expect_refused(Parts{}.bin, Parts{}.idx() + std::string(2, '\0'), {".idx", "copy it again"});
  expect_refused(Parts{}.bin, "TNTIDX" + std::string(80, '\0'), {".idx", "TNTIDX", "--dataset-impl mmap"});
}

TEST_F(TokenFileTest, NamesATokenBeyond32Bits) {
  const TokenFile file(write(parts_of<std::int64_t>(5, {1, 2, (std::int64_t{1} << 32) + 5})));
  std::vector<std::int32_t> tokens(3);
  try {
    file.read(0, tokens);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("4294967301 at position 2"));
  }
  EXPECT_EQ(file.largest_token(), (std::int64_t{1} << 32) + 5);
}

TEST_F(TokenFileTest, RefusesMissingFiles) {
  expect_open_refused({prefix() + ".bin", "No such file"});
  write_whole_file(prefix() + ".bin", Parts{}.bin);
  expect_open_refused({prefix() + ".idx", "No such file"});
}

TEST_F(TokenFileTest, RefusesAFolder) {
  std::filesystem::create_directories(prefix() + ".bin");
  expect_open_refused({prefix() + ".bin"});
}

TEST_F(TokenFileTest, RefusesAWrongMagicVersionOrType) {
  expect_refused(Parts{.magic = std::string("MMIDIDY\0\0", 9)}, {".idx", "MMIDIDX"});
  expect_refused(Parts{.version = 2}, {".idx", "version 2"});
  expect_refused(parts_of<double>(6, {1, 2}), {".idx", "float64", "must be integers"});
  expect_refused(Parts{.type = 0}, {".idx", "unknown type 0"});
  expect_refused(Parts{.type = 9}, {".idx", "unknown type 9"});
}

TEST_F(TokenFileTest, RefusesAnIndexCutAtEveryByte) {
  const Parts parts;
  const std::string whole = parts.idx();
  for (std::size_t kept = 0; kept < whole.size(); ++kept) expect_refused(parts.bin, whole.substr(0, kept), {".idx"});
  expect_refused(parts.bin, whole + "x", {".idx", std::to_string(whole.size() + 1), std::to_string(whole.size())});
}

TEST_F(TokenFileTest, RefusesCountsThatWouldWrap) {
  // 12 · 2^62 is 0 modulo 2^64.
  Parts parts{.sequences = std::uint64_t{1} << 62};
  expect_refused(parts, {".idx"});
  parts = {.documents = std::uint64_t{1} << 61};
  expect_refused(parts, {".idx"});
}

TEST_F(TokenFileTest, NamesExpectedAndFoundBytesOfATruncatedBin) {
  Parts parts;
  parts.bin.resize(8);
  expect_refused(parts, {".bin has 8 bytes", "5 tokens", "10 bytes"});
  parts.bin.resize(9);
  expect_refused(parts, {".bin has 9 bytes", "10 bytes"});
  parts.bin.resize(12);
  expect_refused(parts, {".bin has 12 bytes", "10 bytes"});
}

TEST_F(TokenFileTest, RefusesEmptyData) {
  expect_refused(Parts{.sequences = 0, .documents = 1, .lengths = {}, .offsets = {}, .boundaries = {0}, .bin = ""},
                 {"no tokens"});
  expect_refused(Parts{.sequences = 1, .documents = 2, .lengths = {0}, .offsets = {0}, .boundaries = {0, 1}, .bin = ""},
                 {"no tokens"});
}

TEST_F(TokenFileTest, RefusesLengthsAndOffsetsThatDisagree) {
  expect_refused(Parts{.lengths = {2, -1, 4}}, {"sequence 1", "-1"});
  expect_refused(Parts{.offsets = {2, 4, 4}}, {"sequence 0", "byte 2 instead of 0"});
  expect_refused(Parts{.offsets = {0, 6, 4}}, {"sequence 1", "byte 6 instead of 4"});
  expect_refused(Parts{.offsets = {0, 4, std::numeric_limits<std::int64_t>::min()}}, {"sequence 2"});
}

TEST_F(TokenFileTest, RefusesDocumentsThatDoNotCoverTheSequences) {
  expect_refused(Parts{.boundaries = {1, 2, 3}}, {"documents extend", "1"});
  expect_refused(Parts{.boundaries = {0, 2, 2}}, {"documents extend", "0 to 2"});
  expect_refused(Parts{.documents = 4, .boundaries = {0, 3, 1, 3}}, {"document 2", "sequence 1"});
  expect_refused(Parts{.documents = 1, .boundaries = {0}}, {"1 document boundaries"});
  expect_refused(Parts{.documents = 0, .boundaries = {}}, {"0 document boundaries"});
}

TEST_F(TokenFileTest, WriterMakesTheBytesOfTheFormat) {
  TokenFileWriter writer(prefix(), 65536);
  writer.add_document(std::vector<std::int32_t>{5, 513});
  writer.add_document({});
  writer.add_document(std::vector<std::int32_t>{65535, 0, 7});
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".bin"));
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".idx"));
  writer.finish();
  const Parts expected{.documents = 4, .boundaries = {0, 1, 2, 3}};
  EXPECT_EQ(read_whole_file(prefix() + ".bin"), expected.bin);
  EXPECT_EQ(read_whole_file(prefix() + ".idx"), expected.idx());
}

TEST_F(TokenFileTest, WriterTakes32BitsForALargeVocabulary) {
  TokenFileWriter writer(prefix(), 65537);
  writer.add_document(std::vector<std::int32_t>{65536, 1});
  writer.finish();
  EXPECT_EQ(read_whole_file(prefix() + ".bin"), std::string("\0\0\1\0\1\0\0\0", 8));
  EXPECT_EQ(all_tokens(TokenFile(prefix())), (std::vector<std::int32_t>{65536, 1}));
}

TEST_F(TokenFileTest, WriterRefusesTokensOutsideTheVocabularyAndNoTokens) {
  TokenFileWriter writer(prefix(), 10);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{3, 10}), Error);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{-1}), Error);
  EXPECT_THROW(writer.finish(), Error);
}

TEST_F(TokenFileTest, AnUnfinishedWriterLeavesOldFilesAndNothingElse) {
  write(Parts{});
  {
    TokenFileWriter writer(prefix(), 10);
    writer.add_document(std::vector<std::int32_t>{3});
  }
  EXPECT_EQ(TokenFile(prefix()).tokens(), 5);
  const std::filesystem::directory_iterator files(directory_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

/// 100,000 tokens of two bytes in sequences of 1,000.
void write_long_file(const std::string& prefix, std::int32_t first) {
  TokenFileWriter writer(prefix, 1000);
  std::vector<std::int32_t> tokens(1000, 7);
  tokens[0] = first;
  for (int s = 0; s < 100; ++s) writer.add_document(tokens);
  writer.finish();
}

TEST_F(TokenFileTest, AFileThatIsCutShortWhileItIsOpenIsAnError) {
  write_long_file(prefix(), 7);
  const TokenFile file(prefix());
  const std::string bin = prefix() + ".bin", idx = prefix() + ".idx";
  std::filesystem::resize_file(bin, 120001);
  std::vector<std::int32_t> tokens(1000);
  EXPECT_NO_THROW(file.read(59000, tokens));
  for (const std::int64_t first : {59001, 60000, 99000}) {
    try {
      file.read(first, tokens);
      FAIL() << "read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_THAT(error.what(), HasSubstr(bin + ": bytes " + std::to_string(2 * first) + " to "));
      EXPECT_THAT(error.what(), HasSubstr("has 120001 bytes now, it had 200000 when it was opened"));
    }
  }
  EXPECT_THROW(file.largest_token(), Error);
  EXPECT_THROW(unigram_entropy(file, 0, 100000), Error);
  std::filesystem::resize_file(idx, 0);
  EXPECT_THROW(file.document_begin(1), Error);
  EXPECT_THROW(file.fingerprint(), Error);
}

TEST_F(TokenFileTest, AFingerprintTellsOtherTokensOfTheSameSize) {
  const auto fingerprint = [&](std::int32_t first) {
    write_long_file(prefix(), first);
    return TokenFile(prefix()).fingerprint();
  };
  const std::string before = fingerprint(7);
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(before, fingerprint(7));
  EXPECT_NE(before, fingerprint(8));
  Parts parts;
  const auto of_parts = [&] { return TokenFile(write(parts)).fingerprint(); };
  const std::string small = of_parts();
  parts.boundaries = {0, 1, 3};  // the same tokens in other documents
  EXPECT_NE(small, of_parts());
}

TEST_F(TokenFileTest, AFingerprintOfALargeFileReadsItsEndsAndPartsBetween) {
  const std::int64_t tokens = 4 << 20;
  const auto fingerprint = [&](std::int64_t changed) {
    TokenFileWriter writer(prefix(), 1000);
    std::vector<std::int32_t> document(static_cast<std::size_t>(tokens), 7);
    if (changed >= 0)
      std::fill_n(document.begin() + changed, std::min<std::int64_t>(tokens - changed, tokens / 255), 8);
    writer.add_document(document);
    writer.finish();
    return TokenFile(prefix()).fingerprint();
  };
  const std::string before = fingerprint(-1);
  for (const std::int64_t changed : {std::int64_t{0}, tokens / 3, tokens / 2, tokens - 1}) {
    EXPECT_NE(before, fingerprint(changed)) << changed;
  }
}

std::vector<std::uint8_t> trained_in(const TokenFile& file, std::int64_t first, std::size_t count) {
  std::vector<std::uint8_t> trained(count);
  file.read_trained(first, trained);
  return trained;
}

using Mask = std::vector<std::uint8_t>;

TEST_F(TokenFileTest, AMaskSaysWhichTokensAreTrained) {
  TokenFileWriter writer(prefix(), 10);
  writer.add_document(std::vector<std::int32_t>{5, 6});
  writer.add_document(std::vector<std::int32_t>{7, 8, 9}, Mask{0, 1, 0});
  writer.add_document({}, {});
  writer.add_document(std::vector<std::int32_t>{1});
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{1}, Mask{}), Error);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{1}, Mask{2}), Error);
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".mask"));
  writer.finish();
  EXPECT_EQ(read_whole_file(prefix() + ".mask"), std::string("\1\1\0\1\0\1", 6));
  const TokenFile file(prefix());
  EXPECT_TRUE(file.has_mask());
  EXPECT_EQ(trained_in(file, 0, 6), (Mask{1, 1, 0, 1, 0, 1}));
  EXPECT_EQ(trained_in(file, 3, 2), (Mask{1, 0}));
  EXPECT_THROW(trained_in(file, 5, 2), Error);
}

TEST_F(TokenFileTest, WithoutAMaskAllTokensAreTrainedAndAnOldOneGoes) {
  write_whole_file(prefix() + ".mask", "old");
  TokenFileWriter writer(prefix(), 10);
  writer.add_document(std::vector<std::int32_t>{5, 6, 7});
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".mask"));
  const TokenFile file(prefix());
  EXPECT_FALSE(file.has_mask());
  EXPECT_EQ(trained_in(file, 1, 2), (Mask{1, 1}));
}

TEST_F(TokenFileTest, RefusesAMaskThatDoesNotFitOrIsMissing) {
  const std::string mask = prefix() + ".mask";
  for (const char* const wrong : {"", "\1\1\1\1", "\1\1\1\1\1\1"}) {
    write_whole_file(mask, wrong);
    write(Parts{});
    expect_open_refused({mask + " has ", "5 tokens", "copy both again"});
  }
  write_whole_file(mask, "\1\1\1\2\1");
  const TokenFile file(prefix());
  EXPECT_EQ(trained_in(file, 0, 3), (Mask{1, 1, 1}));
  try {
    trained_in(file, 1, 4);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr(mask + ": byte 3 is 2"));
  }
  std::filesystem::remove(mask);
  write_token_meta(prefix(), {.tokens = 5, .trained = 4, .tokenizer = {}, .tokenizer_sha256 = {}});
  expect_open_refused({mask + " is missing", "4 of 5 tokens"});
}

TEST_F(TokenFileTest, AFingerprintCoversTheMask) {
  write(Parts{});
  const std::string without = TokenFile(prefix()).fingerprint();
  write_whole_file(prefix() + ".mask", "\1\1\1\1\1");
  const std::string all = TokenFile(prefix()).fingerprint();
  write_whole_file(prefix() + ".mask", std::string("\1\1\1\0\1", 5));
  EXPECT_NE(without, all);
  EXPECT_NE(all, TokenFile(prefix()).fingerprint());
}

TEST_F(TokenFileTest, MetaRoundTripsAndMayBeAbsent) {
  EXPECT_EQ(read_token_meta(prefix()), std::nullopt);
  const TokenMeta meta{.bytes = std::int64_t{1} << 40,
                       .documents = 2,
                       .tokens = 3,
                       .vocab = 4,
                       .tokenizer = "tok\"en.model",
                       .tokenizer_sha256 = sha256("abc")};
  write_token_meta(prefix(), meta);
  EXPECT_EQ(read_token_meta(prefix()), meta);
  TokenMeta masked = meta;
  masked.trained = 2;
  write_token_meta(prefix(), masked);
  EXPECT_EQ(read_token_meta(prefix()), masked);
  for (const char* const damaged : {"", "{", "[]", "{\"bytes\": 1}", "{\"bytes\": \"x\"}"}) {
    write_whole_file(prefix() + ".json", damaged);
    EXPECT_THROW(read_token_meta(prefix()), Error) << damaged;
  }
}

}  // namespace
}  // namespace lyceum
