#include "io/data/records/prompts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "io/files/whole_file.h"
#include "support/compressed.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

class Prompts : public testing::Test {
 protected:
  std::vector<Prompt> read(const std::string& name, const std::string& text, bool chat, std::string_view system = "") {
    write_whole_file(directory_.path() / name, text);
    return read_prompts(directory_.path() / name, chat, system);
  }
  TemporaryDirectory directory_;
};

TEST_F(Prompts, AreLinesOrRecords) {
  const std::vector<Prompt> lines = read("p.txt", "one two\r\n\n  \n{\"prompt\": \"x\"}", false);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "one two");
  EXPECT_EQ(lines[1].text, "{\"prompt\": \"x\"}");
  const std::vector<Prompt> records = read("p.JSONL", "{\"prompt\": \"a\\nb\"}\n{\"prompt\": \"c\"}\n", false);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].text, "a\nb");
}

TEST_F(Prompts, AreReadAsTokenizeReadsFiles) {
  const std::string bom = "\xEF\xBB\xBF", line = "{\"prompt\": \"a\"}\n";
  EXPECT_EQ(read("p.txt", bom + "a\n", false).at(0).text, "a");
  for (const char* name : {"p.jsonl", "p.jsonlines", "p.LDJSON"}) {
    EXPECT_EQ(read(name, bom + line, false).at(0).text, "a") << name;
  }
  EXPECT_EQ(read("p.jsonl.gz", gzip(line), false).at(0).text, "a");
  EXPECT_TRUE(read("p.txt", "a\n\nb\n", true).at(1).location.ends_with("p.txt:3"));
}

TEST_F(Prompts, CommandLineTextsAreMadeUtf8) {
  const Prompt prompt = chat_prompt("b\xfe", "a\xff");
  EXPECT_EQ(prompt.messages.at(0).text, "b\uFFFD");
  EXPECT_EQ(prompt.messages.at(1).text, "a\uFFFD");
}

TEST_F(Prompts, ChatsGetTheGivenSystemTextUnlessTheyHaveOne) {
  const ChatMessage user{.role = "user", .text = "Q"}, system{.role = "system", .text = "S"},
      own{.role = "system", .text = "T"};
  EXPECT_EQ(read("p.txt", "Q\n", true, "S").at(0).messages, (std::vector{system, user}));
  EXPECT_EQ(read("p.txt", "Q\n", true).at(0).messages, std::vector{user});
  const std::vector<Prompt> records =
      read("p.jsonl",
           "{\"prompt\": \"Q\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}\n"
           "{\"system\": \"T\", \"prompt\": \"Q\"}\n",
           true, "S");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].messages, (std::vector{system, user}));
  EXPECT_EQ(records[1].messages, (std::vector{system, user}));
  EXPECT_EQ(records[2].messages, (std::vector{own, user}));
}

TEST_F(Prompts, OfRecordsMayBeEmpty) {
  const std::vector<Prompt> prompts = read("p.jsonl", "{\"prompt\": \"\"}\n{\"prompt\": \"Q\"}\n", false);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].text, "");
}

TEST_F(Prompts, ErrorsNameTheLine) {
  const auto refused = [&](const std::string& name, const std::string& text, bool chat, const std::string& words) {
    expect_bad_input([&] { read(name, text, chat); }, words);
  };
  refused("p.jsonl", "{\"prompt\": \"Q\"}\nx\n", false, "p.jsonl:2: a record not JSON");
  refused("p.jsonl", "{\"text\": \"Q\"}\n", false, "p.jsonl:1: a record without \"prompt\"");
  refused("p.jsonl", "{\"messages\": [{\"role\": \"assistant\", \"content\": \"A\"}]}\n", true,
          "p.jsonl:1: a record which does not end with a message that asks for an answer");
  refused("p.txt", "\n\n", false, "p.txt has no prompts");
  refused("p.txt", "a\xff\n", false, "p.txt is not UTF-8 text");
}

TEST_F(Prompts, JsonIsNotReadAsLines) {
  const auto refused = [&](const std::string& name, const std::string& text) {
    expect_bad_input([&] { read(name, text, false); }, name + " looks like JSON");
  };
  refused("p.json", "[\n  {\"prompt\": \"a\"},\n  {\"prompt\": \"b\"}\n]\n");
  refused("p.JSON", "{\n  \"prompt\": \"a\"\n}\n");
  refused("p.txt", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  refused("p.txt", "[\n\n{\n\"prompt\": \"a\"}]\n");
  EXPECT_EQ(read("p.txt", "{ return 1; }\n[1, 2]\n", false).size(), 2u);
}

}  // namespace
}  // namespace lyceum
