#include "train/eval/task_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "io/data/encoding/choice_tokens.h"
#include "io/data/encoding/tokenizer_training.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

TEST(TaskScores, CountTheLargestSumAndTheLargestSumPerByte) {
  const std::vector<TaskItem> items{{.choices = {"a", "bbbb"}, .answer = 0},  // −2 and −3; per byte −2 and −0.75
                                    {.choices = {"a", "bbbb"}, .answer = 1},  // −1 and −8; −1 and −2
                                    {.choices = {"é", "b", "c"}, .answer = 0},  // −3, −2 and −4; −1.5, −2 and −4
                                    {.choices = {"a", "b"}, .answer = 0}};  // equal sums: the first one
  const std::vector<double> sums{-2, -3, -1, -8, -3, -2, -4, -5, -5};
  const TaskScores scores = task_scores(items, sums);
  EXPECT_EQ(scores.items, 4);
  EXPECT_DOUBLE_EQ(scores.acc, 0.5);
  EXPECT_DOUBLE_EQ(scores.acc_norm, 0.5);
  // Sample standard deviation of 1, 0, 0, 1, divided by √4.
  EXPECT_DOUBLE_EQ(scores.acc_stderr, std::sqrt(4 * 0.25 / 3) / 2);
  EXPECT_DOUBLE_EQ(scores.acc_norm_stderr, scores.acc_stderr);
  const TaskScores one = task_scores(std::span(items).first(1), std::span(sums).first(2));
  EXPECT_EQ(one.acc, 1);
  EXPECT_EQ(one.acc_norm, 0);
  EXPECT_EQ(one.acc_stderr, 0);
}

class TaskText : public testing::Test {
 protected:
  TaskText() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the cat sat on a mat number " + std::to_string(i) + " and the dog ran\n";
    const std::filesystem::path file = directory_.path() / "text.txt", model = directory_.path() / "t.model";
    write_whole_file(file, text);
    train_tokenizer(
        {.files = {{.document = {file, 0, static_cast<std::int64_t>(text.size())}}}, .model = model, .vocab = 320});
    tokenizer_.emplace(model);
  }
  std::vector<std::int32_t> encode(std::string_view text) const { return tokenizer_->encode(text); }

  TemporaryDirectory directory_;
  std::optional<Tokenizer> tokenizer_;
};

std::vector<std::int32_t> joined(std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(TaskText, SpacesOfTheContextMoveToTheChoice) {
  const auto reference = encode_choice(*tokenizer_, "the cat", " sat on", {.prefix = 7});
  EXPECT_EQ(reference.context, encode("the cat"));
  EXPECT_EQ(joined(reference.context, reference.choice), encode("the cat sat on"));
  for (const char* context : {"the cat ", "the cat\u00A0\t\n", "the cat\x1F "}) {
    const auto tokens = encode_choice(*tokenizer_, context, "sat on", {.prefix = 7});
    EXPECT_EQ(tokens.context, reference.context);
    EXPECT_EQ(joined(tokens.context, tokens.choice), encode(std::string(context) + "sat on"));
  }
}

TEST_F(TaskText, AChoiceWithoutContextFollowsThePrefix) {
  for (const char* context : {"", "  ", "\n"}) {
    const auto tokens = encode_choice(*tokenizer_, context, "the dog", {.prefix = 7});
    EXPECT_EQ(tokens.context, std::vector<std::int32_t>{7});
    EXPECT_EQ(tokens.choice, encode(std::string(context) + "the dog"));
  }
}

TEST_F(TaskText, AnEmptyContextIsNotDoubled) {
  const std::int32_t prefix = encode("the dog").front();  // as if the choice began with the name of a special token
  const auto tokens = encode_choice(*tokenizer_, "", "the dog", {.prefix = prefix});
  EXPECT_EQ(tokens.context, std::vector<std::int32_t>{prefix});
  EXPECT_EQ(joined(tokens.context, tokens.choice), encode("the dog"));
}

TEST_F(TaskText, ContextsBeginWithTheBosTokenOnce) {
  const auto reference = encode_choice(*tokenizer_, "the cat ", "sat on", {.prefix = 5});
  const auto tokens = encode_choice(*tokenizer_, "the cat ", "sat on", {.prefix = 5, .added = {9, 8}});
  EXPECT_EQ(tokens.context, joined({9, 8}, reference.context));
  EXPECT_EQ(tokens.choice, reference.choice);
  const auto begun =
      encode_choice(*tokenizer_, "the cat ", "sat on", {.prefix = 5, .added = {reference.context.front()}});
  EXPECT_EQ(begun.context, reference.context);
  EXPECT_EQ(begun.choice, reference.choice);
  const auto empty = encode_choice(*tokenizer_, " ", "sat on", {.prefix = 5, .added = {9, 8}});
  EXPECT_EQ(empty.context, std::vector<std::int32_t>{5});
  EXPECT_EQ(empty.choice, encode(" sat on"));
}

TEST_F(TaskText, LongContextsLoseTheirBeginning) {
  const std::vector<TaskItem> items{
      {.context = "the cat sat on a mat and", .choices = {" the dog", " ran"}, .answer = 0}};
  const auto whole = encode("the cat sat on a mat and the dog");
  const TaskTokens all = encode_task(items, *tokenizer_, {.prefix = 0}, 100);
  EXPECT_EQ(all.cut, 0);
  EXPECT_EQ(all.choices.at(0).tokens, whole);
  const TaskTokens cut = encode_task(items, *tokenizer_, {.prefix = 0}, 6);
  EXPECT_EQ(cut.cut, 2);
  EXPECT_EQ(cut.choices.at(0).tokens, std::vector<std::int32_t>(whole.end() - 7, whole.end()));
  EXPECT_EQ(cut.choices.at(0).scored, all.choices.at(0).scored);
}

TEST_F(TaskText, ChoicesThatCannotBeScoredNameTheirLine) {
  const auto problem = [&](std::string context, std::string choice, std::int64_t seq_len) {
    const std::vector<TaskItem> items{
        {.context = std::move(context), .choices = {std::move(choice), "x"}, .answer = 0, .location = "t.jsonl:3"}};
    return error_of([&] { encode_task(items, *tokenizer_, {.prefix = 0}, seq_len); }, ExitCode::bad_input);
  };
  const std::string long_one = problem("the", " cat sat on a mat and the dog ran", 2);
  EXPECT_TRUE(long_one.starts_with("t.jsonl:3: choice 0 has ")) << long_one;
  EXPECT_TRUE(long_one.ends_with(" tokens: this model accepts at most 2 (batch.seq_len)")) << long_one;
}

}  // namespace
}  // namespace lyceum
