#include "io/data/records/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

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
  const DocumentChoice choice = choose_documents({{file, 0, 34}}, 15, 1, "valid");
  EXPECT_EQ(choice.rest, (std::vector<TextDocument>{{file, 0, 23}}));
  EXPECT_EQ(choice.chosen, (std::vector<TextDocument>{{file, 23, 11}}));
}

TEST(ChooseDocuments, CutsBetweenCharactersWhereThereIsNoLine) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "text";
  write_whole_file(file, "üüüüüü");
  const DocumentChoice choice = choose_documents({{file, 0, 12}}, 5, 1, "valid");
  EXPECT_EQ(choice.rest, (std::vector<TextDocument>{{file, 0, 8}}));
  EXPECT_EQ(choice.chosen, (std::vector<TextDocument>{{file, 8, 4}}));
}

}  // namespace
}  // namespace lyceum
