#include "io/data/records/corpus_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/encoding/encoding_journal.h"
#include "io/data/records/json_lines.h"
#include "io/data/records/plain_text.h"
#include "io/data/tokens/token_meta.h"
#include "io/files/whole_file.h"
#include "support/compressed.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

TEST(FindCorpusFiles, SkipsBinariesAndLoops) {
  const TemporaryDirectory directory;
  const auto root = std::filesystem::canonical(directory.path());
  write_whole_file(root / "outside.txt", "outside");
  write_whole_file(root / "in/b.txt", "b");
  write_whole_file(root / "in/a/z.txt", "größer");
  write_whole_file(root / "in/empty.txt", "");
  write_whole_file(root / "in/nul.bin", std::string("text\0more", 9));
  write_whole_file(root / "in/latin1.txt",
                   "gr\xF6\xDF"
                   "er Text und mehr davon");
  write_whole_file(root / "in/cut.txt",
                   std::string(8191, 'x') + "ü and more");  // the examined 8192 bytes end within the ü
  std::filesystem::create_symlink("../outside.txt", root / "in/leaves.txt");
  std::filesystem::create_symlink("b.txt", root / "in/stays.txt");
  std::filesystem::create_symlink("nowhere", root / "in/dangling.txt");
  std::filesystem::create_directory_symlink("..", root / "in/a/loop");

  write_whole_file(root / "in/c.jsonl.gz", gzip("{}"));
  write_whole_file(root / "in/d.json", "{}");

  const auto paths = [](const std::vector<std::string>& roots) {
    std::vector<fs::path> found;
    for (const CorpusItem& item : find_corpus_files(roots, false).files) found.push_back(item.document.file);
    return found;
  };
  const std::vector<std::string> roots{root / "in", root / "in/a", root / "outside.txt"};
  EXPECT_THAT(paths(roots), ElementsAre(root / "in/a/z.txt", root / "in/b.txt", root / "in/c.jsonl.gz",
                                        root / "in/cut.txt", root / "in/d.json", root / "outside.txt"));
  EXPECT_THAT(paths({root / "in/leaves.txt"}), ElementsAre(root / "in/leaves.txt"));
  EXPECT_THAT(paths({root / "in"}), ElementsAre(root / "in/a/z.txt", root / "in/b.txt", root / "in/c.jsonl.gz",
                                                root / "in/cut.txt", root / "in/d.json", root / "in/leaves.txt"));
  EXPECT_THAT(paths({root / "in/nul.bin"}), ElementsAre());
  EXPECT_THROW(paths({root / "absent"}), Error);

  const auto named = [&](const char* name) { return (root / name).string(); };
  const CorpusFiles found = find_corpus_files(roots, false);
  EXPECT_EQ(found.skipped.text(), "1 binary (" + named("in/nul.bin") + "), 1 empty (" + named("in/empty.txt") +
                                      "), 1 linked to a missing file (" + named("in/dangling.txt") +
                                      "), 1 not UTF-8 (" + named("in/latin1.txt") + "), 3 read under another name (" +
                                      named("in/a/loop") + ", " + named("in/leaves.txt") + ", " +
                                      named("in/stays.txt") + ")");
  EXPECT_EQ(found.files[2].format, &json_lines);
  EXPECT_TRUE(found.files[2].compressed);
  EXPECT_EQ(found.files[3].format, &plain_text);
  EXPECT_EQ(found.files[4].format, &plain_text);
  EXPECT_THAT(found.texts_like_records, ElementsAre(root / "in/d.json"));
  const CorpusFiles records = find_corpus_files(roots, true);
  for (const CorpusItem& item : records.files) EXPECT_EQ(item.format, &json_lines);
  EXPECT_TRUE(records.texts_like_records.empty());
}

TEST(FindCorpusFiles, LeavesOutWhatTokenizeWrites) {
  const TemporaryDirectory directory;
  const auto root = std::filesystem::canonical(directory.path());
  write_whole_file(root / "a.txt", "text");
  write_token_meta(root / "train", {.bytes = 4, .documents = 1, .tokens = 3, .vocab = 512, .tokenizer = "t.model"});
  write_journal({.train = root / "valid"}, std::string(64, 'a'), {});
  const std::string skipped = "1 a description of token files (" + (root / "train.json").string() +
                              "), 1 the progress of an encoding (" + (root / "valid.progress").string() + ")";
  for (const bool all_records : {false, true}) {
    const CorpusFiles found = find_corpus_files(std::vector<std::string>{root}, all_records);
    ASSERT_EQ(found.files.size(), 1u);
    EXPECT_EQ(found.files[0].document.file, root / "a.txt");
    EXPECT_EQ(found.skipped.text(), skipped);
  }
  write_whole_file(root / "user.json", "{\n  \"bytes\": 3,\n  \"text\": \"of a user\"\n}\n");
  EXPECT_EQ(find_corpus_files(std::vector<std::string>{root}, false).files.size(), 2u);
}

TEST(FindCorpusFiles, LeavesOutTokenFilesThatLookLikeText) {
  const TemporaryDirectory directory;
  const auto root = std::filesystem::canonical(directory.path());
  for (const char* name : {"a.v1.bin", "b.bin.partial", "b.lengths.partial", "c.bin", "d.mask"})
    write_whole_file(root / name, "like text");
  write_whole_file(root / "a.v1.idx", std::string("MMIDIDX\0\0", 9));
  const CorpusFiles found = find_corpus_files(std::vector<std::string>{root}, false);
  std::vector<fs::path> names;
  for (const CorpusItem& item : found.files) names.push_back(item.document.file.filename());
  EXPECT_THAT(names, ElementsAre("c.bin", "d.mask"));  // without an index, they are anything
  EXPECT_THAT(found.skipped.text(), testing::HasSubstr("3 token files (" + (root / "a.v1.bin").string()));
}

TEST(FindCorpusFiles, LeavesOutPointersOfGitLfs) {
  const TemporaryDirectory directory;
  const auto root = std::filesystem::canonical(directory.path());
  write_whole_file(root / "a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 42\n");
  write_whole_file(root / "b.txt", "version https://git-lfs.github.com is where they are described");
  for (const bool all_records : {false, true}) {
    const CorpusFiles found = find_corpus_files(std::vector<std::string>{root / "a.txt"}, all_records);
    EXPECT_TRUE(found.files.empty());
    EXPECT_THAT(found.skipped.text(), testing::HasSubstr("1 a pointer of Git LFS; `git lfs pull`"));
  }
  EXPECT_EQ(find_corpus_files(std::vector<std::string>{root}, false).files.size(), 1u);
}

TEST(FindCorpusFiles, NamesTextsThatAreListsOfRecords) {
  const TemporaryDirectory directory;
  const auto root = std::filesystem::canonical(directory.path());
  write_whole_file(root / "a.json", "[\n  {\n    \"text\": \"x\"}]");
  write_whole_file(root / "b.json", R"( [{"text": "x"}])");
  write_whole_file(root / "c.json", R"([["x"]])");
  write_whole_file(root / "d.txt", "[{x}] is no JSON");
  const CorpusFiles found = find_corpus_files(std::vector<std::string>{root}, false);
  EXPECT_EQ(found.files.size(), 4u);
  EXPECT_THAT(found.texts_like_lists, ElementsAre(root / "a.json", root / "b.json"));
}

TEST(FindCorpusFiles, ACharacterThatEndsWithTheFileIsNotText) {
  const TemporaryDirectory directory;
  const fs::path root = fs::canonical(directory.path());
  write_whole_file(root / "short.txt", "The town of Orl\xE9");
  write_whole_file(root / "cut.txt", "gr\xC3");
  write_whole_file(root / "looked_at.txt", std::string(8190, 'x') + "\xE2\x82");
  write_whole_file(root / "whole.txt", std::string(8190, 'x') + "\xE2\x82\xAC and more");
  const CorpusFiles found = find_corpus_files(std::vector<std::string>{root}, false);
  ASSERT_EQ(found.files.size(), 1);
  EXPECT_EQ(found.files[0].document.file, root / "whole.txt");
  EXPECT_THAT(found.skipped.text(), testing::StartsWith("3 not UTF-8 ("));
}

TEST(FindCorpusFiles, APathThatCannotBeReadIsNamedWithTheReason) {
  expect_bad_input([] { find_corpus_files(std::vector<std::string>{"nosuch"}, false); },
                   "nosuch cannot be read: No such file or directory");
}

TEST(FindCorpusFiles, LinesOfListsAreReadOneByOne) {
  const TemporaryDirectory directory;
  const fs::path root = fs::canonical(directory.path());
  write_whole_file(root / "lists.json", "[{\"role\": \"user\"}]\n[{\"role\": \"user\"}]\n");
  write_whole_file(root / "one.json", "[{\"text\": \"a\"}, {\"text\": \"b\"}]\n");
  write_whole_file(root / "spread.json", "[\n{\"text\": \"a\"},\n{\"text\": \"b\"}\n]\n");
  const CorpusFiles found = find_corpus_files(std::vector<std::string>{root}, true);
  ASSERT_EQ(found.files.size(), 1);
  EXPECT_EQ(found.files[0].document.file, root / "lists.json");
  EXPECT_THAT(found.skipped.text(), testing::StartsWith("2 JSON, but not one record per line ("));
}

}  // namespace
}  // namespace lyceum
