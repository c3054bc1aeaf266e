#include "io/data/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/encoding.h"
#include "io/data/token_data.h"
#include "io/data/tokenizer.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* const two_answers =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"},
        {"role": "assistant", "content": "A1"}, {"role": "user", "content": "Q2"}, {"role": "assistant", "content": "A2"}]})";

/// The parts, those that are trained in braces; $ where the text ends.
std::string shown(std::string_view line, std::string_view name) {
  std::string text;
  for (const ChatPart& part : parts_of_chat(line, chat_template(name))) {
    const std::string all = part.text + (part.ends_text ? "$" : "");
    text += part.trained ? "{" + all + "}" : all;
  }
  return text;
}

TEST(Chat, TemplatesAreThoseOfTheirModels) {
  EXPECT_EQ(shown(two_answers, "chatml"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\n{A1<|im_end|>}\n"
            "<|im_start|>user\nQ2<|im_end|>\n<|im_start|>assistant\n{A2<|im_end|>}\n");
  EXPECT_EQ(shown(two_answers, "llama3"),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nQ1<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{A1<|eot_id|>}"
            "<|start_header_id|>user<|end_header_id|>\n\nQ2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{A2<|eot_id|>}");
  EXPECT_EQ(shown(two_answers, "deepseek"),
            "<｜begin▁of▁sentence｜>S\n\nUser: Q1\n\nAssistant: {A1$}User: Q2\n\nAssistant: {A2$}");
  EXPECT_EQ(shown(two_answers, "plain"), "S\nQ1\n{A1$}Q2\n{A2$}");
  EXPECT_EQ(shown(R"({"prompt": "Q", "completion": "A"})", "plain"), "Q\n{A$}");
  EXPECT_THAT(error_of([] { chat_template("other"); }, ExitCode::usage),
              HasSubstr("--chat other is not one of chatml, llama3, deepseek, plain"));
}

TEST(Chat, BadRecordsAreRefusedWithTheReason) {
  const auto refused = [](const char* line, const std::string& words) {
    EXPECT_EQ(error_of([&] { parts_of_chat(line, chat_template("plain")); }, ExitCode::bad_input), words) << line;
  };
  refused("{", "not JSON");
  refused("[]", "without \"messages\" or \"prompt\"");
  refused(R"({"text": "x"})", "without \"messages\" or \"prompt\"");
  refused(R"({"messages": "x"})", "whose \"messages\" is not a list");
  refused(R"({"messages": [{"role": "user"}]})", "without a text \"content\"");
  refused(R"({"messages": [{"role": "assistant", "content": null}]})", "without a text \"content\"");
  refused(R"({"messages": [7]})", "without a text \"role\"");
  refused(R"({"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "y"}]})",
          "with the role \"tool\"");
  refused(R"({"messages": [{"role": "user", "content": "x"}]})", "without an answer of the assistant");
  refused(R"({"messages": [{"role": "assistant", "content": ""}]})", "without an answer of the assistant");
  refused(R"({"prompt": "x"})", "without a text \"completion\"");
}

/// A token for each ASCII character and for each of these.
Tokenizer tokenizer_with(const std::vector<std::string>& tokens, const TemporaryDirectory& directory) {
  json vocab = json::object(), added = json::array();
  for (int c = 0; c < 128; ++c) vocab[std::string(1, static_cast<char>(c))] = c;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    added.push_back({{"id", 128 + i},
                     {"content", tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto file = directory.path() / "tokenizer.json";
  write_whole_file(file, json{{"added_tokens", added},
                              {"decoder", {{"type", "Fuse"}}},
                              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}}
                             .dump());
  return Tokenizer(file);
}

TEST(Chat, OnlyAnswersAndTheirEndAreTrained) {
  const TemporaryDirectory directory;
  const Tokenizer tokenizer = tokenizer_with({"</s>", "<|im_start|>", "<|im_end|>"}, directory);
  const auto file = directory.path() / "in.jsonl";
  write_whole_file(file, std::string(R"({"prompt": "Q", "completion": "yes"})") + "\n" + R"({"text": "x"})" + "\n" +
                             R"({"prompt": "R", "completion": "no"})" + "\n");
  const std::string out = directory.path() / "out";
  const Encoding encoding{
      .items = {{.kind = CorpusItem::Kind::records,
                 .document = {file, 0, static_cast<std::int64_t>(std::filesystem::file_size(file))}}},
      .chat = &chat_template("chatml"),
      .train = out};
  const EncodingResult result = encode_corpus(tokenizer, encoding);
  EXPECT_EQ(result.train.documents, 2);
  EXPECT_EQ(result.train.trained, 4 + 3);
  EXPECT_EQ(result.skipped.text(), "1 without \"messages\" or \"prompt\" (" + file.string() + ":2)");
  const TokenFile tokens(out);
  ASSERT_TRUE(tokens.has_mask());
  std::vector<std::int32_t> all(static_cast<std::size_t>(tokens.tokens()));
  std::vector<std::uint8_t> trained(all.size());
  tokens.read(0, all);
  tokens.read_trained(0, trained);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (trained[i]) text += all[i] == 130 ? "$" : std::string(1, static_cast<char>(all[i]));
  }
  EXPECT_EQ(text, "yes$no$");
  EXPECT_EQ(all.back(), 128);
  EXPECT_EQ(trained.back(), 0);
}

TEST(Chat, ATokenizerWithoutTheTokensOfATemplateIsRefused) {
  const TemporaryDirectory directory;
  const Tokenizer tokenizer = tokenizer_with({"</s>", "<|im_start|>"}, directory);
  require_tokens(chat_template("plain"), tokenizer, "mine.json");
  expect_bad_input([&] { require_tokens(chat_template("chatml"), tokenizer, "mine.json"); },
                   "mine.json has no token <|im_end|>, which the chat template chatml needs");
}

}  // namespace
}  // namespace lyceum
