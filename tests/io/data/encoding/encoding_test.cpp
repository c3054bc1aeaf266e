#include "io/data/encoding/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/data/encoding/tokenizer_training.h"
#include "io/data/records/corpus_files.h"
#include "io/data/records/corpus_reader.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/data/tokens/megatron_index.h"
#include "io/data/tokens/token_formats.h"
#include "io/data/tokens/token_meta.h"
#include "io/data/tokens/token_source.h"
#include "io/files/sha256.h"
#include "io/files/whole_file.h"
#include "support/compressed.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string lines_of_text(int lines, int salt) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i * salt) + " of some text\n";
  return text;
}

std::string record(const std::string& text) {
  std::string escaped;
  for (const char c : text) c == '\n' ? escaped += "\\n" : escaped += c;
  return "{\"id\": 1, \"text\": \"" + escaped + "\", \"tags\": [\"x\"]}\n";
}

class EncodingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TemporaryDirectory>();
    const fs::path text = shared_->path() / "text";
    write_whole_file(text, lines_of_text(300, 7));
    const fs::path model = shared_->path() / "tok.model";
    train_tokenizer({.files =
                         {
                             {.document = {text, 0, static_cast<std::int64_t>(fs::file_size(text))}},
                         },
                     .model = model,
                     .vocab = 300});
    tokenizer_ = std::make_unique<Tokenizer>(model);
  }
  static void TearDownTestSuite() {
    tokenizer_.reset();
    shared_.reset();
  }

  void put(const std::string& name, const std::string& bytes) { write_whole_file(folder() / "in" / name, bytes); }
  fs::path folder() const { return fs::canonical(directory_.path()); }
  std::string prefix(const std::string& name) const { return directory_.path() / name; }

  Encoding encoding(const std::string& output, const CorpusChoice& choice = {}) {
    const CorpusFiles found = find_corpus_files(std::vector<std::string>{folder() / "in"}, false);
    return {.items = choose_items(found.files, choice),
            .train = prefix(output),
            .valid = choice.valid_fraction > 0 ? prefix(output + "-valid") : "",
            .valid_fraction = choice.valid_fraction,
            .threads = 2,
            .batches = {.records = 1 << 16, .text = 1 << 16}};
  }
  static std::vector<std::string> documents(const std::string& prefix) {
    const auto file = open_tokens(prefix);
    std::vector<std::string> texts;
    for (std::int64_t d = 0; d < file->documents(); ++d) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(file->document_begin(d + 1) - file->document_begin(d)));
      file->read(file->document_begin(d), tokens);
      EXPECT_EQ(tokens.back(), tokenizer_->end_of_document());
      EXPECT_EQ(std::ranges::count(tokens, tokenizer_->end_of_document()), 1);
      texts.push_back(tokenizer_->decode(tokens));
    }
    return texts;
  }
  static std::string files_of(const std::string& prefix) {
    return read_whole_file(prefix + ".bin") + read_whole_file(prefix + ".idx");
  }
  std::vector<std::string> leftovers() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      const fs::path name = entry.path().filename();
      if (name.extension() == ".partial" || name.extension() == ".progress") names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }
  /// A few files of every kind, which are read in many batches.
  void put_corpus() {
    for (int i = 0; i < 8; ++i) put("text" + std::to_string(i), lines_of_text(5 + 37 * i % 50, i));
    std::string records;
    for (int i = 0; i < 4000; ++i) records += record("record " + std::to_string(i) + "\nof many");
    put("a.jsonl", records);
    put("b.ndjson.gz", gzip(records.substr(0, records.size() / 3)));
    put("c.txt.zst", zstd(lines_of_text(40, 3)));
  }

  static std::unique_ptr<TemporaryDirectory> shared_;
  static std::unique_ptr<Tokenizer> tokenizer_;
  TemporaryDirectory directory_;
};
std::unique_ptr<TemporaryDirectory> EncodingTest::shared_;
std::unique_ptr<Tokenizer> EncodingTest::tokenizer_;

TEST_F(EncodingTest, TextsRecordsAndCompressedFilesBecomeDocuments) {
  put("a.txt", "first text\n");
  put("b.jsonl", record("one") + "\n" + record("two\nlines") + "{\"text\": \"last, without a newline\"}");
  put("c.jsonl.gz", gzip(record("three")) + gzip(record("four")));  // two members
  put("d.ndjson.zst", zstd(record("five")) + zstd(record("six")));  // two frames
  put("e.md.gz", gzip("a compressed text"));
  put("f", zstd("another one"));
  const EncodingResult result = encode_corpus(*tokenizer_, encoding("out"));
  EXPECT_THAT(documents(prefix("out")),
              ElementsAre("first text\n", "one", "two\nlines", "last, without a newline", "three", "four", "five",
                          "six", "a compressed text", "another one"));
  EXPECT_EQ(result.train.documents, 10);
  EXPECT_EQ(result.train.bytes, 11 + 3 + 9 + 23 + 5 + 4 + 4 + 3 + 17 + 11);
  EXPECT_EQ(result.train.tokens, open_tokens(prefix("out"))->tokens());
  EXPECT_EQ(result.skipped.count(), 0);
  EXPECT_THAT(leftovers(), ElementsAre());
  EXPECT_EQ(read_token_meta(prefix("out")), (TokenMeta{.bytes = result.train.bytes,
                                                       .documents = 10,
                                                       .tokens = result.train.tokens,
                                                       .vocab = tokenizer_->vocab(),
                                                       .tokenizer = {},
                                                       .tokenizer_sha256 = {}}));
}

TEST_F(EncodingTest, RecordsWithoutATextAreCountedAndNamed) {
  put("a.jsonl", record("good") +
                     "{\"text\": 5}\n{\"txt\": \"no\"}\nnot json\n{\"text\": \"\"}\n[1]\n{\"text\": \"cut" + "\n" +
                     std::string(2000, '[') + "\n" + record("good too") + "{\"text\": \"\xFF\"}\nnot\nnor\nnever\n");
  const EncodingResult result = encode_corpus(*tokenizer_, encoding("out"));
  EXPECT_THAT(documents(prefix("out")), ElementsAre("good", "good too"));
  EXPECT_EQ(result.skipped.count(), 11);
  const std::string file = folder() / "in/a.jsonl";
  const std::string told = result.skipped.text();
  EXPECT_THAT(told, HasSubstr("5 not JSON (" + file + ":4, " + file + ":7, " + file + ":11, …)"));
  EXPECT_THAT(told, HasSubstr("1 whose \"text\" is not UTF-8 (" + file + ":10)"));
  EXPECT_THAT(told, HasSubstr("2 without \"text\" (" + file + ":3, " + file + ":6)"));
  EXPECT_THAT(told, HasSubstr("1 whose \"text\" is not a string (" + file + ":2)"));
  EXPECT_THAT(told, HasSubstr("1 empty (" + file + ":5)"));
  EXPECT_THAT(told, HasSubstr("1 damaged: it nests deeper than 1000 levels (" + file + ":8)"));
}

TEST_F(EncodingTest, TheKeyOfTheTextCanBeSet) {
  put("a.jsonl", "{\"content\": \"mine\", \"text\": \"other\"}\n");
  Encoding own = encoding("out");
  own.json_key = "content";
  encode_corpus(*tokenizer_, own);
  EXPECT_THAT(documents(prefix("out")), ElementsAre("mine"));
}

TEST_F(EncodingTest, ThreadsDoNotChangeTheFiles) {
  put_corpus();
  Encoding one = encoding("one", {.valid_fraction = 0.1}), many = encoding("many", {.valid_fraction = 0.1});
  one.threads = 1;
  many.threads = 5;
  const EncodingResult result = encode_corpus(*tokenizer_, one);
  EXPECT_EQ(encode_corpus(*tokenizer_, many).train, result.train);
  EXPECT_EQ(files_of(prefix("one")), files_of(prefix("many")));
  EXPECT_EQ(files_of(prefix("one-valid")), files_of(prefix("many-valid")));
  const double share =
      static_cast<double>(result.valid.bytes) / static_cast<double>(result.train.bytes + result.valid.bytes);
  EXPECT_NEAR(share, 0.1, 0.02);
}

/// Thrown by the progress callback to interrupt an encoding.
struct Interruption {};

TEST_F(EncodingTest, AnInterruptedEncodingResumesToTheSameBytes) {
  put_corpus();
  put("0caf\xE9/\xFF.jsonl", "{\"text\": 1}\n" + record("of a file whose name is not UTF-8"));
  const CorpusChoice choice{.valid_fraction = 0.1};
  const EncodingResult whole = encode_corpus(*tokenizer_, encoding("whole", choice));
  Encoding cut = encoding("cut", choice);
  cut.save_seconds = 0;
  std::int64_t resumed = -1;
  int runs = 0;
  for (bool done = false; !done; ++runs) {
    ASSERT_LT(runs, 100);
    int batches = 0;
    cut.progress = [&](const EncodingProgress&) {
      if (++batches == 2) throw Interruption();
    };
    EXPECT_EQ(resumes(*tokenizer_, cut), runs > 0);
    try {
      const EncodingResult result = encode_corpus(*tokenizer_, cut);
      EXPECT_EQ(result.train, whole.train);
      EXPECT_EQ(result.valid, whole.valid);
      EXPECT_EQ(result.skipped.text(), whole.skipped.text());
      EXPECT_GT(result.resumed_text, resumed);
      done = true;
    } catch (const Interruption&) {
      EXPECT_FALSE(fs::exists(prefix("cut.bin")));
      EXPECT_FALSE(fs::exists(prefix("cut.idx")));
    }
  }
  EXPECT_GT(runs, 5);
  EXPECT_EQ(files_of(prefix("cut")), files_of(prefix("whole")));
  EXPECT_EQ(files_of(prefix("cut-valid")), files_of(prefix("whole-valid")));
  EXPECT_THAT(leftovers(), ElementsAre());
}

TEST_F(EncodingTest, AnotherEncodingBeginsAnew) {
  put_corpus();
  Encoding cut = encoding("cut");
  cut.save_seconds = 0;
  cut.progress = [](const EncodingProgress&) { throw Interruption(); };
  EXPECT_THROW(encode_corpus(*tokenizer_, cut), Interruption);
  EXPECT_THAT(leftovers(), ElementsAre("cut.bin.partial", "cut.lengths.partial", "cut.progress"));
  cut.progress = {};
  EXPECT_TRUE(resumes(*tokenizer_, cut));
  Encoding other = cut;
  other.json_key = "id";
  EXPECT_FALSE(resumes(*tokenizer_, other));
  other = cut;
  other.tokenizer_sha256 = "another";
  EXPECT_FALSE(resumes(*tokenizer_, other));
  fs::resize_file(prefix("cut.bin.partial"), 3);
  EXPECT_FALSE(resumes(*tokenizer_, cut));
  write_whole_file(prefix("cut.progress"), "{\"encoding\": 5");
  encode_corpus(*tokenizer_, cut);
  encode_corpus(*tokenizer_, encoding("whole"));
  EXPECT_EQ(files_of(prefix("cut")), files_of(prefix("whole")));
}

TEST_F(EncodingTest, AFileThatVanishesIsNamedAndLeavesNothing) {
  put_corpus();
  const Encoding own = encoding("broken");
  fs::remove(folder() / "in/text7");
  expect_bad_input([&] { encode_corpus(*tokenizer_, own); }, "text7");
  EXPECT_FALSE(fs::exists(prefix("broken.bin")));
  EXPECT_THAT(leftovers(), ElementsAre());
}

TEST_F(EncodingTest, DamagedCompressionIsNamedWithItsPlace) {
  std::string records;
  for (int i = 0; i < 3000; ++i) records += record("record " + std::to_string(i * i));
  const std::string name = folder() / "in/a.jsonl.gz";
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    put("a.jsonl.gz", bytes);
    expect_bad_input([&] { encode_corpus(*tokenizer_, encoding("out")); }, words);
    EXPECT_FALSE(fs::exists(prefix("out.idx")));
  };
  const std::string gz = gzip(records), zst = zstd(records);
  refused(gz.substr(0, gz.size() - 1), name + " is truncated: it ends at byte " + std::to_string(gz.size() - 1));
  refused(zst.substr(0, zst.size() - 1), name + " is truncated: it ends at byte " + std::to_string(zst.size() - 1));
  std::string other = gz;
  other[gz.size() - 6] ^= 1;  // in the checksum
  refused(other, name + " is damaged at byte " + std::to_string(gz.size() - 4) + ": incorrect data check");
  refused(gz + "tail", name + " is damaged at byte");
  other = zst;
  other[zst.size() / 2] ^= 0x55;
  refused(other, name + " is damaged at byte");
}

TEST_F(EncodingTest, ALongTextIsReadInPartsAndStaysOneDocument) {
  const std::string text = lines_of_text(9000, 11);
  ASSERT_GT(text.size(), std::size_t{3} << 16);
  put("long.txt", text);
  put("long.txt.gz", gzip(text));
  const EncodingResult result = encode_corpus(*tokenizer_, encoding("out"));
  EXPECT_EQ(result.train.documents, 2);
  const auto tokens_of_both = open_tokens(prefix("out"));
  EXPECT_GT(MegatronIndex(prefix("out"), fs::file_size(prefix("out.bin"))).sequences(), 3);
  EXPECT_THAT(documents(prefix("out")), ElementsAre(text, text));
  std::vector<std::int32_t> whole;
  TextEncoder(*tokenizer_).encode(text, whole);
  std::vector<std::int32_t> tokens(whole.size());
  tokens_of_both->read(0, tokens);
  EXPECT_EQ(tokens, whole);
}

TEST_F(EncodingTest, ALimitChoosesTextsAtRandomAndTheBeginningOfOtherFiles) {
  for (int i = 0; i < 20; ++i) put("text" + std::to_string(i), std::string(1000, 'a' + static_cast<char>(i)));
  std::string records;
  for (int i = 0; i < 200; ++i) records += record(std::to_string(1000 + i));
  put("a.jsonl", records);
  const auto all = static_cast<double>(20000 + records.size());
  const EncodingResult result =
      encode_corpus(*tokenizer_, encoding("out", {.most_bytes = static_cast<std::int64_t>(all / 2)}));
  const std::vector<std::string> made = documents(prefix("out"));
  EXPECT_EQ(std::ranges::count(made, 1000, &std::string::size), 10);
  EXPECT_THAT(std::vector(made.begin() + 10, made.begin() + 12), ElementsAre("1000", "1001"));
  EXPECT_NEAR(static_cast<double>(made.size()), 110, 1);
  EXPECT_LE(result.skipped.count(), 1);  // the record that the limit cuts off
}

TEST_F(EncodingTest, TooFewRecordsToHoldOutAreNamed) {
  put("a.jsonl", record("only one"));
  expect_bad_input([&] { encode_corpus(*tokenizer_, encoding("out", {.valid_fraction = 1e-9})); },
                   "no record was held out for " + prefix("out-valid"));
  put("a.jsonl", "nothing\n");
  expect_bad_input([&] { encode_corpus(*tokenizer_, encoding("out")); },
                   "there is no text to encode: skipped records: 1 not JSON");
}

TEST_F(EncodingTest, AModelIsTrainedOnRecordsAndCompressedFiles) {
  std::string records;
  for (int i = 0; i < 300; ++i) records += record("a record with words " + std::to_string(i));
  put("a.jsonl.zst", zstd(records));
  put("b.gz", gzip(lines_of_text(50, 1)));
  const CorpusFiles found = find_corpus_files(std::vector<std::string>{folder() / "in"}, false);
  train_tokenizer({.files = found.files, .model = prefix("new.model"), .vocab = 310});
  const Tokenizer tokenizer(prefix("new.model"));
  EXPECT_LE(tokenizer.encode(" record with words").size(), 9);  // for 18 characters
  EXPECT_LE(tokenizer.encode(" of some text").size(), 10);      // for 13 characters
}

TEST_F(EncodingTest, PaddingAndSkippableFramesAreNoText) {
  const std::string skippable("\x5A\x2A\x4D\x18\x03\0\0\0abc", 11), zeros(3000, '\0');
  put("a.jsonl.gz", gzip(record("one")) + zeros + gzip(record("two")) + zeros);
  put("b.jsonl.zst", skippable + zstd(record("three")) + skippable + skippable + zstd(record("four")) + skippable);
  encode_corpus(*tokenizer_, encoding("out"));
  EXPECT_THAT(documents(prefix("out")), ElementsAre("one", "two", "three", "four"));
}

TEST_F(EncodingTest, DataAfterTheCompressedDataIsAnError) {
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    put("a.jsonl.gz", bytes);
    expect_bad_input([&] { encode_corpus(*tokenizer_, encoding("out")); }, words);
  };
  const std::string gz = gzip(record("one")), zst = zstd(record("one"));
  refused(gz + "tail", "is damaged at byte " + std::to_string(gz.size()) + ": what follows is not gzip data");
  refused(gz + std::string(5, '\0') + "t",
          "is damaged at byte " + std::to_string(gz.size() + 5) + ": what follows is not gzip");
  refused(zst + "tail", "is damaged at byte " + std::to_string(zst.size()) + ": what follows is not zstd data");
  refused(zst + zst.substr(0, 3), "is truncated");
  refused(gz + gz.substr(0, 1), "is truncated");
}

TEST_F(EncodingTest, BytesThatAreNotUtf8AreCounted) {
  put("a.txt", std::string(10000, 'x') +
                   " Orl\xE9"
                   "ans \xE9");
  put("b.txt", lines_of_text(3, 1));
  const EncodingResult result = encode_corpus(*tokenizer_, encoding("latin"));
  EXPECT_EQ(result.replaced.bytes, 2);
  EXPECT_EQ(result.replaced.text(), "2 bytes that are not UTF-8 (" + (folder() / "in/a.txt").string() + ")");
}

TEST_F(EncodingTest, ALimitDropsTheRecordThatItCuts) {
  put("a.jsonl", record("first record") + record("second record"));
  Encoding limited = encoding("limited");
  limited.items.at(0).most_bytes = static_cast<std::int64_t>(record("first record").size()) + 20;
  const EncodingResult result = encode_corpus(*tokenizer_, limited);
  EXPECT_EQ(result.skipped.count(), 0) << result.skipped.text();
  EXPECT_THAT(documents(prefix("limited")), ElementsAre("first record"));
}

TEST_F(EncodingTest, ATextIsNotCutWithinACharacter) {
  put("a.txt.gz", gzip("größer"));
  Encoding limited = encoding("limited");
  limited.items.at(0).most_bytes = 3;
  const EncodingResult result = encode_corpus(*tokenizer_, limited);
  EXPECT_EQ(result.replaced.bytes, 0);
  EXPECT_THAT(documents(prefix("limited")), ElementsAre("gr"));
}

/// The tokenizer of this test has a pattern that takes too many steps on some texts.
TEST_F(EncodingTest, ARecordThatCannotBeEncodedIsSkipped) {
  const std::string json =
      R"({"added_tokens": [], "normalizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a)*(aa|a)*d"}, "behavior": "Isolated", "invert": false},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "d": 2, "</s>": 3}, "merges": []}})";
  write_whole_file(folder() / "slow.json", json);
  const Tokenizer tokenizer(folder() / "slow.json");
  put("a.jsonl", record("ab") + record(std::string(60, 'a') + "bd") + record("ba"));
  const EncodingResult result = encode_corpus(tokenizer, encoding("slow"));
  EXPECT_EQ(result.train.documents, 2);
  EXPECT_EQ(result.skipped.count(), 1);
  EXPECT_THAT(result.skipped.text(), HasSubstr("takes more than 10 million steps"));
  EXPECT_THAT(result.skipped.text(), HasSubstr("a.jsonl:2)"));
}

}  // namespace
}  // namespace lyceum
