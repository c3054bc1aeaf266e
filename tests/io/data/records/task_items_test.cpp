#include "io/data/records/task_items.h"

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "io/files/whole_file.h"
#include "support/compressed.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

class TaskItems : public testing::Test {
 protected:
  std::vector<TaskItem> read(const std::string& name, const std::string& text) {
    write_whole_file(directory_.path() / name, text);
    return read_task(directory_.path() / name);
  }
  /// Returns the message without the folder.
  std::string problem(const std::string& text) {
    try {
      read("t.jsonl", text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      const std::string folder = directory_.path().string() + "/", message = error.what();
      return message.starts_with(folder) ? message.substr(folder.size()) : message;
    }
    return "";
  }
  TemporaryDirectory directory_;
};

TEST_F(TaskItems, AreRecords) {
  const std::string text =
      "\xEF\xBB\xBF{\"context\": \"a\\nb \", \"choices\": [\"c\", \" \\u00e9\"], \"answer\": 1, \"id\": 7}\r\n\n"
      "{\"context\": \"\", \"choices\": [\"x\", \"y\", \"z\"], \"answer\": 0}";
  for (const auto& [name, bytes] : {std::pair{"t.jsonl", text}, std::pair{"t.jsonl.gz", gzip(text)}}) {
    const std::vector<TaskItem> items = read(name, bytes);
    ASSERT_EQ(items.size(), 2u);
    EXPECT_EQ(items[0].context, "a\nb ");
    EXPECT_EQ(items[0].choices, (std::vector<std::string>{"c", " é"}));
    EXPECT_EQ(items[0].answer, 1);
    EXPECT_EQ(items[0].line, 1);
    EXPECT_EQ(items[1].line, 3);
    EXPECT_EQ(items[1].location, (directory_.path() / name).string() + ":3");
  }
}

TEST_F(TaskItems, BadRecordsAreNamed) {
  const std::string good = "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0}\n";
  for (const auto& [line, message] : {
           std::pair{"{", "not JSON"},
           std::pair{"[]", "without \"context\""},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}", "without \"answer\""},
           std::pair{"{\"context\": 1, \"choices\": [\"b\", \"c\"], \"answer\": 0}",
                     "whose \"context\" is not a string"},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": 0}",
                     "whose \"choices\" is not a list of at least two texts"},
           std::pair{"{\"context\": \"a\", \"choices\": \"bc\", \"answer\": 0}",
                     "whose \"choices\" is not a list of at least two texts"},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", 2], \"answer\": 0}",
                     "whose \"choices\" is not a string"},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}",
                     "with an empty text in its \"choices\""},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}",
                     "whose \"answer\" is not the index of a choice: a number from 0 to 1"},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}",
                     "whose \"answer\" is not the index of a choice: a number from 0 to 1"},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 18446744073709551615}",
                     "whose \"answer\" is not the index of a choice: a number from 0 to 1"},
           std::pair{"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"0\"}",
                     "whose \"answer\" is not the index of a choice: a number from 0 to 1"},
       }) {
    EXPECT_EQ(problem(good + line), std::string("t.jsonl:2: a record ") + message) << line;
  }
  EXPECT_EQ(problem("\n\n"), "t.jsonl has no items");
}

}  // namespace
}  // namespace lyceum
