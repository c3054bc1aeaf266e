#include "io/data/encoding/chat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/encoding/encoding.h"
#include "io/data/encoding/tokenizer_training.h"
#include "io/data/records/json_lines.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/token_meta.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const two_answers =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"},
        {"role": "assistant", "content": "A1"}, {"role": "user", "content": "Q2"}, {"role": "assistant", "content": "A2"}]})";

/// Returns the text of a document with its trained ranges in braces, and with $ for each end-of-text token.
std::string shown(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) {
    std::size_t at = 0;
    for (const TextRange& range : segment.trained) {
      text += segment.text.substr(at, range.begin - at) + "{" +
              segment.text.substr(range.begin, range.end - range.begin) + "}";
      at = range.end;
    }
    text += segment.text.substr(at);
    if (segment.ends_text) text += segment.end_trained ? "{$}" : "$";
  }
  return text;
}

std::string shown(std::string_view line, std::string_view name) {
  return shown(rendered(messages_of_chat(line), chat_template(name)));
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
            "<｜begin▁of▁sentence｜>S\n\nUser: Q1\n\nAssistant:{ A1}{$}User: Q2\n\nAssistant:{ A2}{$}");
  EXPECT_EQ(shown(two_answers, "plain"), "S\nQ1\n{A1}{$}Q2\n{A2}{$}");
  EXPECT_EQ(shown(R"({"prompt": "Q", "completion": "A"})", "plain"), "Q\n{A}{$}");
  EXPECT_THAT(error_of([] { chat_template("other"); }, ExitCode::usage),
              HasSubstr("--chat other is not one of chatml, llama3, deepseek, plain"));
}

TEST(Chat, PromptsEndWhereTheAssistantAnswers) {
  const std::vector<ChatMessage> messages =
      messages_of_prompt(R"({"system": "S", "messages": [{"role": "user", "content": "Q"}]})");
  const auto prompt = [&](std::string_view name) { return shown(render_prompt(messages, chat_template(name))); };
  EXPECT_EQ(prompt("chatml"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt("deepseek"), "<｜begin▁of▁sentence｜>S\n\nUser: Q\n\nAssistant:");
  EXPECT_EQ(prompt("plain"), "S\nQ\n");
  EXPECT_EQ(messages_of_prompt(R"({"prompt": "Q"})"),
            messages_of_prompt(R"({"prompt": [{"role": "user", "content": "Q"}]})"));
  EXPECT_EQ(error_of([] { messages_of_prompt(two_answers); }, ExitCode::bad_input),
            "which does not end with a message that asks for an answer");
}

/// Messages are marked by the names that other programs use.
TEST(Chat, MarksDecideWhichMessagesAreTrained) {
  const auto answers = [](const std::string& first, const std::string& second) {
    return shown(R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A")" + first +
                     R"(}, {"role": "assistant", "content": "B")" + second + "}]}",
                 "plain");
  };
  EXPECT_EQ(answers("", ""), "Q\n{A}{$}{B}{$}");
  for (const char* off :
       {R"("weight": 0)", R"("weight": 0.0)", R"("train": false)", R"("training": false)", R"("trainable": false)",
        R"("train_on_turn": false)", R"("loss": false)", R"("loss_mask": 0)", R"("loss_weight": 0)",
        R"("loss_scale": 0.0)", R"("masked": true)", R"("masked": 1)", R"("train": false, "masked": true)"}) {
    EXPECT_EQ(answers("", std::string(", ") + off), "Q\n{A}{$}B$") << off;
  }
  for (const char* on : {R"("weight": 1)", R"("weight": 1.0)", R"("train": true)", R"("loss_mask": 1)",
                         R"("masked": false)", R"("weight": null)"}) {
    EXPECT_EQ(answers(std::string(", ") + on, R"(, "weight": 0)"), "Q\n{A}{$}B$") << on;
  }
  EXPECT_EQ(
      shown(R"({"messages": [{"role": "user", "content": "Q", "train": true}, {"role": "assistant", "content": "A"}]})",
            "plain"),
      "{Q}\n{A}{$}");
  EXPECT_EQ(shown(R"({"prompt": [{"role": "assistant", "content": "H"}, {"role": "user", "content": "Q"}],
                      "completion": [{"role": "assistant", "content": "A"}]})",
                  "plain"),
            "H$Q\n{A}{$}");
}

TEST(Chat, ASystemFieldAndAPartOfTextAreRendered) {
  const std::string expected = "S\nQ\n{A}{$}";
  EXPECT_EQ(
      shown(R"({"system": "S", "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})",
            "plain"),
      expected);
  EXPECT_EQ(shown(R"({"system": "S", "prompt": "Q", "completion": "A"})", "plain"), expected);
  EXPECT_EQ(
      shown(
          R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "S"}]}, {"role": "user", "content": "Q"},
                      {"role": "assistant", "content": "A", "tool_calls": [], "function_call": null}], "tools": null, "system": ""})",
          "plain"),
      expected);
}

TEST(Chat, BadRecordsAreRefusedWithTheReason) {
  const auto refused = [](const char* line, const std::string& words) {
    EXPECT_EQ(error_of([&] { rendered(messages_of_chat(line), chat_template("plain")); }, ExitCode::bad_input), words)
        << line;
  };
  refused("{", "not JSON");
  refused("[]", "without \"messages\" or \"prompt\"");
  refused(R"({"text": "x"})", "without \"messages\" or \"prompt\"");
  refused(R"({"messages": "x"})", "whose \"messages\" is not a list");
  refused(R"({"messages": [{"role": "user"}]})", "without a text \"content\"");
  refused(R"({"messages": [{"role": "assistant", "content": null}]})", "without a text \"content\"");
  refused(R"({"messages": [7]})", "without a text \"role\"");
  refused(R"({"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "y"}]})",
          "with a role that is not system, user or assistant");
  refused(R"({"messages": [{"role": "user", "content": "x"}]})", "without an answer of the assistant");
  refused(R"({"messages": [{"role": "assistant", "content": ""}]})", "without an answer of the assistant");
  refused(R"({"prompt": "x"})", "without a text \"completion\"");
  const auto answer = [&](const std::string& more, const std::string& words) {
    const std::string message =
        R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A")";
    refused((message + more + "}]}").c_str(), words);
  };
  const auto unread = [](const std::string& key) {
    return "with \"" + key + "\", which no supported chat template has";
  };
  answer(R"(, "tool_calls": [{"id": "1"}])", unread("tool_calls"));
  answer(R"(, "function_call": {"name": "f"})", unread("function_call"));
  answer(R"(, "reasoning_content": "hm")", unread("reasoning_content"));
  answer(R"(, "train_detail": [{"begin_offset": 0}])", unread("train_detail"));
  answer(R"(, "weight": 0.5)", "whose \"weight\" is neither 0 nor 1");
  answer(R"(, "train": "false")", "whose \"train\" is neither 0 nor 1");
  answer(R"(, "weight": 1, "masked": true)", "with marks that contradict each other");
  answer(R"(, "weight": 0)", "of which no message is trained");
  answer(R"(}, {"role": "user", "content": [{"type": "image_url"}])", "whose \"content\" is not a text");
  answer(R"(}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])",
         "whose \"content\" has 2 parts, which templates join differently");
  refused(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}]})",
          unread("tool_calls"));
  refused(R"({"tools": [{"type": "function"}], "prompt": "Q", "completion": "A"})", unread("tools"));
  refused(R"({"assistant_masks": [0, 1], "prompt": "Q", "completion": "A"})", unread("assistant_masks"));
  refused(R"({"weight": 0, "prompt": "Q", "completion": "A"})", "of which no message is trained");
  refused(R"({"system": "S", "messages": [{"role": "system", "content": "T"}, {"role": "assistant", "content": "A"}]})",
          "with two system texts");
  refused(R"({"system": 7, "prompt": "Q", "completion": "A"})", "without a text \"system\"");
}

/// A tokenizer with a token for each ASCII character, with that character's code as its id, followed by the given
/// special tokens.
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
      .items = {{.format = &json_lines,
                 .document = {file, 0, static_cast<std::int64_t>(std::filesystem::file_size(file))}}},
      .chat = &chat_template("chatml"),
      .train = out};
  const EncodingResult result = encode_corpus(tokenizer, encoding);
  EXPECT_EQ(result.train.documents, 2);
  EXPECT_EQ(result.train.trained, 4 + 3);
  EXPECT_EQ(result.skipped.text(), "1 without \"messages\" or \"prompt\" (" + file.string() + ":2)");
  const auto tokens = open_tokens(out);
  ASSERT_TRUE(tokens->has_mask());
  std::vector<std::int32_t> all(static_cast<std::size_t>(tokens->tokens()));
  std::vector<std::uint8_t> trained(all.size());
  tokens->read(0, all);
  tokens->read_trained(0, trained);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (trained[i]) text += all[i] == 130 ? "$" : std::string(1, static_cast<char>(all[i]));
  }
  EXPECT_EQ(text, "yes$no$");
  EXPECT_EQ(all.back(), 128);
  EXPECT_EQ(trained.back(), 0);
}

/// The tokens of a chat are those of its whole text, as rendered by Jinja and encoded by `tokenizers` or sentencepiece.
/// Tokens that cover a byte of an answer or of its end are trained. The tokens of a prompt are those of the text before
/// an answer.
TEST(Chat, TokensAreThoseOfTheWholeText) {
  const std::filesystem::path source = LYCEUM_SOURCE_DIR, python = source / ".venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << python << " is missing: run scripts/install-deps.sh";
  const TemporaryDirectory directory;
  json templates;
  for (const ChatTemplate& chat : chat_templates()) templates[std::string(chat.name)] = chat.jinja;
  write_whole_file(directory.path() / "templates.json", templates.dump());
  const std::string command =
      fmt::format("'{}' '{}' '{}'", python.string(), (source / "tests/io/data/encoding/chat_oracle.py").string(),
                  directory.path().string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().extension() != ".cases") continue;
    ++files;
    std::filesystem::path file = entry.path();
    if (!std::filesystem::exists(file.replace_extension(".json"))) file.replace_extension(".model");
    const Tokenizer tokenizer(file);
    TextEncoder encoder(tokenizer);
    int wrong = 0;
    for (const json& one : json::parse(read_whole_file(entry.path()))) {
      const std::string record = one.at("record");
      const ChatTemplate& chat = chat_template(one.at("chat").get<std::string>());
      require_template_tokens(chat, tokenizer, file.string());
      std::vector<ChatMessage> messages = messages_of_chat(record);
      std::vector<std::int32_t> tokens, prompt;
      std::vector<std::uint8_t> trained, none;
      encode_chat(rendered(messages, chat), tokenizer, encoder, tokens, trained);
      if (tokens.back() != tokenizer.end_of_document()) {
        tokens.push_back(tokenizer.end_of_document());
        trained.push_back(0);
      }
      messages.pop_back();
      encode_chat(render_prompt(messages, chat), tokenizer, encoder, prompt, none);
      if (json(tokens) == one.at("ids") && json(trained) == one.at("trained") && json(prompt) == one.at("prompt"))
        continue;
      ADD_FAILURE() << entry.path().stem() << " differs: " << one.dump().substr(0, 1500) << "\nfrom " << json(tokens)
                    << "\n"
                    << json(trained) << "\n"
                    << json(prompt);
      if (++wrong > 2) break;
    }
  }
  EXPECT_EQ(files, 12);
}

TEST(Chat, ATokenizerWithoutTheTokensOfATemplateIsRefused) {
  const TemporaryDirectory directory;
  const Tokenizer tokenizer = tokenizer_with({"</s>", "<|im_start|>"}, directory);
  require_template_tokens(chat_template("plain"), tokenizer, "mine.json");
  expect_bad_input([&] { require_template_tokens(chat_template("chatml"), tokenizer, "mine.json"); },
                   "mine.json has no token <|im_end|>, which the chat template chatml needs");
}

TEST(Chat, GenerationEndsAtTheEndOfAnAnswerOrOfTheText) {
  const TemporaryDirectory directory;
  const Tokenizer tokenizer = tokenizer_with({"</s>", "<|im_start|>", "<|im_end|>"}, directory);
  EXPECT_THAT(end_tokens("auto", {}, tokenizer), ElementsAre(128));
  EXPECT_THAT(end_tokens("chatml", {}, tokenizer), ElementsAre(130, 128));
  EXPECT_THAT(end_tokens("plain", std::vector<std::int64_t>{7, 128, 7}, tokenizer), ElementsAre(7, 128));
  EXPECT_THAT(error_of([&] { end_tokens("auto", std::vector<std::int64_t>{131}, tokenizer); }, ExitCode::usage),
              HasSubstr("data.end_tokens = 131: the tokenizer has only 131 tokens"));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{'a', 130, 'b'}), "ab");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{'a', 130, 'b'}, true), "a<|im_end|>b");
}

TEST(Chat, ARunHasTheTemplateOfItsData) {
  const TemporaryDirectory directory;
  const auto prefix = [&](const std::string& name, const std::string& chat) {
    const std::string made = directory.path() / name;
    write_token_meta(made, {.bytes = 1, .documents = 1, .tokens = 1, .chat = chat, .vocab = 1});
    return made;
  };
  const std::string text = prefix("text", ""), one = prefix("one", "chatml"), other = prefix("other", "llama3");
  const auto of = [](const std::string& train, const std::string& chat = "auto") {
    return chat_template_of_run(chat, train);
  };
  EXPECT_EQ(of(""), "auto");
  EXPECT_EQ(of(text), "auto");
  EXPECT_EQ(of(text, "plain"), "plain");
  EXPECT_EQ(of(one), "chatml");
  EXPECT_EQ(of("3 " + text + " 1 " + one), "chatml");
  EXPECT_EQ(of(one + " " + other, "llama3"), "llama3");
  EXPECT_THAT(error_of([&] { of(one + " " + other); }, ExitCode::usage), HasSubstr("set data.chat"));
  EXPECT_THAT(error_of([&] { of(one, "llama3"); }, ExitCode::usage),
              AllOf(HasSubstr("data.chat = llama3, but the chats of " + one), HasSubstr("set data.chat = chatml")));
}

TEST(Chat, ATokenizerThatIsTrainedOnChatsHasTheTokensOfTheTemplate) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += json{{"prompt", "What is " + std::to_string(i) + " plus one?"},
                  {"completion", "It is " + std::to_string(i + 1) + "."}}
                 .dump() +
             "\n";
  }
  const auto file = directory.path() / "in.jsonl", model = directory.path() / "chat.model";
  write_whole_file(file, lines);
  for (const char* name : {"chatml", "llama3", "deepseek", "plain"}) {
    const ChatTemplate& chat = chat_template(name);
    train_tokenizer({.files = {{.format = &json_lines, .document = {file, 0, std::ssize(lines)}}},
                     .chat = &chat,
                     .model = model,
                     .vocab = 365});
    const Tokenizer tokenizer(model);
    require_template_tokens(chat, tokenizer, model.string());
    EXPECT_LT(tokenizer.encode(" plus one?").size(), 6u);  // a frequent text in the chats
  }
}

}  // namespace
}  // namespace lyceum
