#include "io/data/tokens/megatron_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/tokens/megatron_files.h"
#include "io/files/whole_file.h"
#include "support/errors.h"

namespace lyceum {
namespace {

using MegatronWriterTest = MegatronFiles;

TEST_F(MegatronWriterTest, WriterMakesTheBytesOfTheFormat) {
  MegatronWriter writer(prefix(), 65536);
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

TEST_F(MegatronWriterTest, WriterTakes32BitsForALargeVocabulary) {
  MegatronWriter writer(prefix(), 65537);
  writer.add_document(std::vector<std::int32_t>{65536, 1});
  writer.finish();
  EXPECT_EQ(read_whole_file(prefix() + ".bin"), std::string("\0\0\1\0\1\0\0\0", 8));
  EXPECT_EQ(all_tokens(*open_tokens(prefix())), (std::vector<std::int32_t>{65536, 1}));
}

TEST_F(MegatronWriterTest, WriterRefusesTokensOutsideTheVocabularyAndNoTokens) {
  MegatronWriter writer(prefix(), 10);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{3, 10}), Error);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{-1}), Error);
  EXPECT_THROW(writer.finish(), Error);
}

TEST_F(MegatronWriterTest, AnUnfinishedWriterLeavesOldFilesAndNothingElse) {
  write(Parts{});
  {
    MegatronWriter writer(prefix(), 10);
    writer.add_document(std::vector<std::int32_t>{3});
  }
  EXPECT_EQ(open_tokens(prefix())->tokens(), 5);
  const std::filesystem::directory_iterator files(directory_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(MegatronWriterTest, ACompletedWriterLeavesOldFilesAndCanBeResumed) {
  {
    MegatronWriter old(prefix(), 100);
    old.add_document(std::vector<std::int32_t>{1});
    old.finish();
  }
  MegatronWriter::Progress saved;
  {
    MegatronWriter writer(prefix(), 100);
    writer.add_document(std::vector<std::int32_t>{7, 8});
    saved = writer.save();
    writer.complete(TokenMeta{.documents = 1, .tokens = 2});
    EXPECT_EQ(all_tokens(*open_tokens(prefix())), std::vector<std::int32_t>{1});
  }
  EXPECT_EQ(all_tokens(*open_tokens(prefix())), std::vector<std::int32_t>{1});
  EXPECT_FALSE(std::filesystem::exists(prefix() + ".json"));
  ASSERT_TRUE(MegatronWriter::can_resume(prefix(), 100, saved));
  MegatronWriter resumed(prefix(), 100, saved);
  resumed.add_document(std::vector<std::int32_t>{9});
  resumed.finish(TokenMeta{.documents = 2, .tokens = 3});
  EXPECT_EQ(all_tokens(*open_tokens(prefix())), (std::vector<std::int32_t>{7, 8, 9}));
  EXPECT_TRUE(std::filesystem::exists(prefix() + ".json"));
}

TEST_F(MegatronWriterTest, TwoWritersOfOnePrefixAreRefused) {
  MegatronWriter first(prefix(), 10);
  expect_failure([&] { MegatronWriter second(prefix(), 10); }, "another process is writing it");
  first.add_document(std::vector<std::int32_t>{1, 2});
  first.finish();
  EXPECT_EQ(open_tokens(prefix())->tokens(), 2);
}

}  // namespace
}  // namespace lyceum
