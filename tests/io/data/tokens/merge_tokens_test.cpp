#include "io/data/tokens/merge_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/token_source.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using Documents = std::vector<std::vector<std::int32_t>>;

class MergeTokens : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() / name; }

  /// Writes token files, with a mask of the even tokens if `mask`, and with a description unless `sha` is empty.
  std::string write(const std::string& name, const Documents& documents, bool mask = false,
                    const std::string& sha = "abcd", const std::string& chat = "") {
    MegatronWriter writer(path(name), 50000);
    TokenMeta meta{.bytes = 100, .chat = chat, .vocab = 50000, .tokenizer = "t.model", .tokenizer_sha256 = sha};
    std::int64_t trained = 0;
    for (const auto& tokens : documents) {
      std::vector<std::uint8_t> even;
      for (const std::int32_t token : tokens) trained += even.emplace_back(token % 2 == 0);
      mask ? writer.add_document(tokens, even) : writer.add_document(tokens);
      ++meta.documents;
      meta.tokens += std::ssize(tokens);
    }
    writer.finish();
    if (mask) meta.trained = trained;
    if (!sha.empty()) write_token_meta(path(name), meta);
    return path(name);
  }

  static Documents documents_in(const std::string& prefix) {
    const auto source = open_tokens(prefix);
    Documents documents;
    for (std::int64_t d = 0; d < source->documents(); ++d) {
      const std::int64_t begin = source->document_begin(d);
      documents.emplace_back(static_cast<std::size_t>(source->document_begin(d + 1) - begin));
      source->read(begin, documents.back());
    }
    return documents;
  }

  const Documents one_{{1, 2, 3}, {}, {4}}, two_{{5, 49999}, {7, 8, 9, 10}};
  TemporaryDirectory directory_;
};

TEST_F(MergeTokens, HasTheBytesOfAWriterOfAllDocuments) {
  const std::vector<std::string> sources{write("one", one_), write("two", two_)};
  const MergedTokens merged = merge_tokens(sources, path("deeper/both"));
  Documents all = one_;
  all.insert(all.end(), two_.begin(), two_.end());
  write("all", all);
  for (const char* ending : {".bin", ".idx"}) {
    EXPECT_EQ(read_whole_file(path("deeper/both") + ending), read_whole_file(path("all") + ending));
  }
  EXPECT_EQ(merged.documents, 5);
  EXPECT_EQ(merged.tokens, 10);
  const TokenMeta expected{
      .bytes = 200, .documents = 5, .tokens = 10, .vocab = 50000, .tokenizer = "t.model", .tokenizer_sha256 = "abcd"};
  EXPECT_EQ(read_token_meta(path("deeper/both")), expected);
  EXPECT_EQ(merged.meta, expected);
  EXPECT_FALSE(fs::exists(path("deeper/both.mask")));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("deeper")), {}), 3);  // .bin, .idx, .json
}

TEST_F(MergeTokens, KeepsMasksAndChats) {
  const std::vector<std::string> sources{write("one", one_), write("two", two_, true, "abcd", "chatml")};
  const MergedTokens merged = merge_tokens(sources, path("both"));
  ASSERT_TRUE(merged.meta.has_value());
  EXPECT_EQ(merged.meta->chat, "chatml");
  EXPECT_EQ(merged.meta->trained, 4 + 2);
  const auto source = open_tokens(path("both"));
  std::vector<std::uint8_t> trained(10);
  source->read_trained(0, trained);
  EXPECT_EQ(trained, (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 0, 0, 1, 0, 1}));
}

TEST_F(MergeTokens, CutsLongDocumentsIntoSequences) {
  std::vector<std::int32_t> tokens((std::size_t{1} << 23) + 5);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 40001);
  const Documents documents{{3}, tokens, {4, 5}};
  merge_tokens(std::vector{write("long", documents)}, path("merged"));
  EXPECT_EQ(documents_in(path("merged")), documents);
}

TEST_F(MergeTokens, MergesFilesWithoutDescriptions) {
  const std::vector<std::string> sources{write("one", one_, false, ""), path("two")};
  {
    MegatronWriter wide(path("two"), 100000);
    wide.add_document(std::vector<std::int32_t>{70, 65536});
    wide.finish();
  }
  const MergedTokens merged = merge_tokens(sources, path("both"));
  EXPECT_FALSE(merged.meta.has_value());
  EXPECT_FALSE(fs::exists(path("both.json")));
  Documents all = one_;
  all.push_back({70, 65536});
  EXPECT_EQ(documents_in(path("both")), all);
}

TEST_F(MergeTokens, RefusesMixtures) {
  const std::string one = write("one", one_);
  const auto refused = [&](const std::string& other, ExitCode code) {
    const std::string message = error_of([&] { merge_tokens(std::vector{one, other}, path("both")); }, code);
    EXPECT_FALSE(fs::exists(path("both.bin")) || fs::exists(path("both.bin.partial"))) << message;
    return message;
  };
  EXPECT_THAT(refused(write("other", two_, false, "ef"), ExitCode::bad_input),
              testing::HasSubstr("only files of one tokenizer can be merged"));
  EXPECT_THAT(refused(write("unknown", two_, false, ""), ExitCode::bad_input),
              testing::HasSubstr("unknown.json is missing"));
  EXPECT_THAT(error_of(
                  [&] {
                    merge_tokens(std::vector{path("unknown"), one}, path("both"));
                  },
                  ExitCode::bad_input),
              testing::HasSubstr("unknown.json is missing"));
  EXPECT_THAT(refused(one, ExitCode::usage), testing::HasSubstr("merge each once"));
  fs::create_symlink(path("one.bin"), path("link.bin"));
  fs::create_symlink(path("one.idx"), path("link.idx"));
  EXPECT_THAT(refused(path("link"), ExitCode::usage), testing::HasSubstr("merge each once"));
  EXPECT_THAT(error_of([&] { merge_tokens(std::vector{one}, one); }, ExitCode::usage),
              testing::HasSubstr("write to another prefix"));
  EXPECT_EQ(documents_in(one), one_);
  const std::string chats = write("chats", two_, true, "abcd", "chatml"),
                    more = write("more", one_, true, "abcd", "plain");
  EXPECT_THAT(error_of(
                  [&] {
                    merge_tokens(std::vector{chats, more}, path("both"));
                  },
                  ExitCode::bad_input),
              testing::HasSubstr("only chats of one format can be merged"));
  write("two", two_, false, "");
  fs::copy_file(path("one.json"), path("two.json"));
  EXPECT_THAT(refused(path("two"), ExitCode::bad_input), testing::HasSubstr("describes 3 documents with 4 tokens"));
  EXPECT_THAT(refused(path("absent"), ExitCode::bad_input), testing::HasSubstr("absent"));
}

TEST_F(MergeTokens, AFullDiskLeavesTheOutputAsItWas) {
  const std::string large = write("large", {std::vector<std::int32_t>(100000, 7)});
  merge_tokens(std::vector{write("one", one_)}, path("both"));
  {
    const FileSizeLimit limit(1 << 16);
    error_of([&] { merge_tokens(std::vector{large}, path("both")); }, ExitCode::failed);
  }
  EXPECT_EQ(documents_in(path("both")), one_);
  EXPECT_FALSE(fs::exists(path("both.bin.partial")));
}

TEST_F(MergeTokens, ADiskWithoutRoomForTheIndexLeavesTheOutputAsItWas) {
  const std::string empty = write("empty", Documents(10000, {1}));  // 20 kB of tokens, 200 kB of index
  merge_tokens(std::vector{write("one", one_)}, path("deeper/both"));
  const auto meta = read_token_meta(path("deeper/both"));
  {
    const FileSizeLimit limit(1 << 16);
    error_of([&] { merge_tokens(std::vector{empty}, path("deeper/both")); }, ExitCode::failed);
  }
  EXPECT_EQ(documents_in(path("deeper/both")), one_);
  EXPECT_EQ(read_token_meta(path("deeper/both")), meta);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("deeper")), {}), 3);  // .bin, .idx, .json
}

TEST_F(MergeTokens, ADescriptionThatCannotBeWrittenLeavesTheOutputAsItWas) {
  const std::vector<std::string> two{write("two", two_)};
  merge_tokens(std::vector{write("one", one_)}, path("deeper/both"));
  const auto meta = read_token_meta(path("deeper/both"));
  fs::create_directory(path("deeper/both.json.partial"));  // a file cannot have this name
  error_of([&] { merge_tokens(two, path("deeper/both")); }, ExitCode::failed);
  EXPECT_EQ(documents_in(path("deeper/both")), one_);
  EXPECT_EQ(read_token_meta(path("deeper/both")), meta);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("deeper")), {}), 4);  // .bin, .idx, .json and the folder
  fs::remove(path("deeper/both.json.partial"));
  const MergedTokens merged = merge_tokens(two, path("deeper/both"));
  EXPECT_EQ(merged.meta, read_token_meta(path("deeper/both")));
  EXPECT_EQ(documents_in(path("deeper/both")), two_);
}

}  // namespace
}  // namespace lyceum
