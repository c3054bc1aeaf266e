#include "io/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/token_data.h"
#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

std::vector<TextDocument> documents_of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<TextDocument> documents;
  for (std::size_t i = 0; i < sizes.size(); ++i) documents.push_back({"file" + std::to_string(i), 0, sizes[i]});
  return documents;
}

TEST(ChooseDocuments, TakesAboutTheBytesAskedForAndKeepsTheOrder) {
  const auto documents = documents_of_sizes(std::vector<std::int64_t>(200, 10));
  const DocumentChoice choice = choose_documents(documents, 105, 1, "valid");
  EXPECT_EQ(choice.chosen.size(), 10);
  EXPECT_EQ(choice.rest.size(), 190);
  std::vector<TextDocument> chosen, rest;
  for (const TextDocument& document : documents) {
    const bool is_chosen = std::ranges::find(choice.chosen, document) != choice.chosen.end();
    (is_chosen ? chosen : rest).push_back(document);
  }
  EXPECT_EQ(choice.chosen, chosen);
  EXPECT_EQ(choice.rest, rest);
  EXPECT_EQ(choose_documents(documents, 105, 1, "valid").chosen, chosen);
  EXPECT_NE(choose_documents(documents, 105, 2, "valid").chosen, chosen);
  EXPECT_NE(choose_documents(documents, 105, 1, "corpus").chosen, chosen);
}

TEST(ChooseDocuments, ChoosesEverythingOrNothingWhenAsked) {
  const auto documents = documents_of_sizes({5, 6});
  EXPECT_EQ(choose_documents(documents, 11, 1, "x").chosen, documents);
  EXPECT_EQ(choose_documents(documents, 100, 1, "x").chosen, documents);
  EXPECT_EQ(choose_documents(documents, 0, 1, "x").rest, documents);
  EXPECT_TRUE(choose_documents({}, 10, 1, "x").chosen.empty());
}

TEST(ChooseDocuments, CutsALargeDocumentAtALine) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "text";
  write_whole_file(file, "first line\nsecond line\nthird line\n");
  const std::vector<std::filesystem::path> files{file};
  const DocumentChoice choice = choose_documents(whole_documents(files), 15, 1, "valid");
  EXPECT_EQ(choice.rest, (std::vector<TextDocument>{{file, 0, 23}}));
  EXPECT_EQ(choice.chosen, (std::vector<TextDocument>{{file, 23, 11}}));
}

TEST(ChooseDocuments, CutsBetweenCharactersWhereThereIsNoLine) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "text";
  write_whole_file(file, "üüüüüü");
  const std::vector<std::filesystem::path> files{file};
  const DocumentChoice choice = choose_documents(whole_documents(files), 5, 1, "valid");
  EXPECT_EQ(choice.rest, (std::vector<TextDocument>{{file, 0, 8}}));
  EXPECT_EQ(choice.chosen, (std::vector<TextDocument>{{file, 8, 4}}));
}

class EncodeDocumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::filesystem::path> files;
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (int line = 0; line < 5 + 37 * i % 50; ++line) {
        text += "line " + std::to_string(line * i) + " of some text\n";
      }
      files.push_back(directory_.path() / ("text" + std::to_string(i)));
      write_whole_file(files.back(), text);
    }
    documents_ = whole_documents(files);
    const auto model = directory_.path() / "tok.model";
    train_tokenizer({.files = files, .model = model, .vocab = 400});
    tokenizer_ = std::make_unique<Tokenizer>(model);
  }
  std::string prefix(const std::string& name) const { return directory_.path() / name; }

  TemporaryDirectory directory_;
  std::vector<TextDocument> documents_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(EncodeDocumentsTest, GivesBackEveryDocumentWithItsEnd) {
  documents_.push_back({documents_[3].file, 5, 20});
  std::int64_t told = 0;
  const EncodedSize size =
      encode_documents(*tokenizer_, documents_, prefix("one"), 1, [&](std::int64_t bytes) { told = bytes; });
  const TokenFile file(prefix("one"));
  EXPECT_EQ(size.documents, 41);
  EXPECT_EQ(size.bytes, bytes_of(documents_));
  EXPECT_EQ(told, size.bytes);
  EXPECT_EQ(size.tokens, file.tokens());
  ASSERT_EQ(file.documents(), 41);
  for (std::size_t d = 0; d < documents_.size(); ++d) {
    const auto at = static_cast<std::int64_t>(d);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.document_begin(at + 1) - file.document_begin(at)));
    file.read(file.document_begin(at), tokens);
    EXPECT_EQ(tokens.back(), tokenizer_->end_of_document());
    EXPECT_EQ(std::ranges::count(tokens, tokenizer_->end_of_document()), 1);
    EXPECT_EQ(tokenizer_->decode(tokens), read_whole_file(documents_[d].file)
                                              .substr(static_cast<std::size_t>(documents_[d].begin),
                                                      static_cast<std::size_t>(documents_[d].bytes)));
  }
}

TEST_F(EncodeDocumentsTest, ThreadsDoNotChangeTheFiles) {
  encode_documents(*tokenizer_, documents_, prefix("one"), 1);
  encode_documents(*tokenizer_, documents_, prefix("many"), 5);
  EXPECT_EQ(read_whole_file(prefix("one.bin")), read_whole_file(prefix("many.bin")));
  EXPECT_EQ(read_whole_file(prefix("one.idx")), read_whole_file(prefix("many.idx")));
}

TEST_F(EncodeDocumentsTest, AFileThatVanishesIsNamedAndLeavesNothing) {
  std::filesystem::remove(documents_[7].file);
  try {
    encode_documents(*tokenizer_, documents_, prefix("broken"), 3);
    FAIL() << "encoded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("text7"));
  }
  EXPECT_FALSE(std::filesystem::exists(prefix("broken.bin")));
  EXPECT_FALSE(std::filesystem::exists(prefix("broken.idx")));
  EXPECT_FALSE(std::filesystem::exists(prefix("broken.bin.partial")));
}

}  // namespace
}  // namespace lyceum
