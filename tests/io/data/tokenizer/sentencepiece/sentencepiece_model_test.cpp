#include "io/data/tokenizer/sentencepiece/sentencepiece_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/data/tokenizer/sentencepiece/piece_normalizer.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/data/tokenizer/tokenizer_files.h"
#include "io/files/whole_file.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using nlohmann::json;

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Returns the tokens of a document that is cut about every `bytes` bytes, where possible. Adds to the number of parts.
std::vector<std::int32_t> encoded_in_parts(const Tokenizer& tokenizer, std::string_view text, std::size_t bytes,
                                           int& parts) {
  std::vector<std::int32_t> tokens;
  TextEncoder encoder(tokenizer);
  TextPart part{.begins = true, .ends = false};
  for (std::size_t taken = bytes; taken < text.size();) {
    const std::size_t cut = tokenizer.cut(text.substr(0, taken));
    if (cut == 0) {
      taken += bytes;
      continue;
    }
    encoder.encode(text.substr(0, cut), tokens, part);
    text.remove_prefix(cut);
    part.begins = false;
    taken = bytes;
    ++parts;
  }
  part.ends = true;
  encoder.encode(text, tokens, part);
  return tokens;
}

/// Compares every model that sentencepiece_oracle.py makes with it. Counts the parts of documents by type of model.
void expect_as_sentencepiece(const std::string& arguments, int models, std::map<std::string, int>& parts) {
  const std::filesystem::path source = LYCEUM_SOURCE_DIR, python = source / ".venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << python << " is missing: run scripts/install-deps.sh";
  const TemporaryDirectory directory;
  const std::string script = source / "tests/io/data/tokenizer/sentencepiece/sentencepiece_oracle.py";
  const std::string command = fmt::format("'{}' '{}' '{}' {} > '{}'", python.string(), script,
                                          directory.path().string(), arguments, (directory.path() / "log").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().extension() != ".model") continue;
    ++files;
    std::filesystem::path other = entry.path();
    SCOPED_TRACE(entry.path().stem().string() + read_whole_file(other.replace_extension(".options")));
    const Tokenizer tokenizer(entry.path());
    const TokenizerFiles exported = tokenizer_files(entry.path());
    if (exported.files.contains("tokenizer.json")) {
      write_whole_file(other.replace_extension(".json"), exported.files.at("tokenizer.json"));
      for (const auto& [name, bytes] : exported.files) {  // the files that transformers loads
        write_whole_file(other.replace_extension("") / name, bytes);
      }
    }
    TextEncoder encoder(tokenizer);
    int wrong = 0;
    for (const json& one : json::parse(read_whole_file(other.replace_extension(".cases")))) {
      const std::vector<std::int32_t> ids = one.at("ids");
      const auto expect = [&](const std::vector<std::int32_t>& made, const char* how) {
        if (made == ids) return;
        const auto differs = std::ranges::mismatch(made, ids).in1 - made.begin();
        ADD_FAILURE() << how << ": differs at " << differs << " of " << ids.size() << "; " << one.dump().substr(0, 600)
                      << "\nas " << json(made).dump().substr(0, 600);
        ++wrong;
      };
      if (one.contains("hex")) {
        const std::string text = bytes_of_hex(one.at("hex"));
        expect(tokenizer.encode(text), "whole");
        for (int round = 0; round < 2; ++round) {
          std::vector<std::int32_t> cached;
          encoder.encode(text, cached);
          expect(cached, "cached");
        }
        const std::string kind = entry.path().stem().string().substr(4);
        const std::size_t some = text.size() > 100000 ? 9973 : 37;
        expect(encoded_in_parts(tokenizer, text, some, parts[kind.substr(0, kind.find('-'))]), "parts");
      }
      if (tokenizer.decode(ids) != one.at("decoded").get<std::string>()) {
        ADD_FAILURE() << "decodes otherwise: " << one.dump().substr(0, 600) << "\nas "
                      << tokenizer.decode(ids).substr(0, 500);
        ++wrong;
      }
      if (wrong > 2) break;
    }
  }
  EXPECT_EQ(files, models);
  const std::string check =
      fmt::format("'{}' '{}' --exported '{}'", python.string(), script, directory.path().string());
  EXPECT_EQ(std::system(check.c_str()), 0) << check;
}

TEST(SentencePieceModel, EncodesAndDecodesAsThePackageSentencePieceDoes) {
  std::map<std::string, int> parts;
  const char* more = std::getenv("LYCEUM_ORACLE");  // "SEED MODELS" for more models
  expect_as_sentencepiece(more ? more : "1 12", more ? std::stoi(std::strchr(more, ' ')) : 12, parts);
  EXPECT_GT(parts["bpe"], 1000);
  EXPECT_GT(parts["char"], 1000);
  EXPECT_EQ(parts["unigram"], 0);  // unigram models cannot cut texts, see UnigramSegmentation
}

/// Compares with the size of the normalised text in front of each offset.
TEST(PieceNormalizer, MovesOffsets) {
  for (const bool joins : {false, true}) {
    for (const bool adds : {false, true}) {
      const PieceNormalizer normalize({.charsmap = {}, .adds_space = adds, .joins_spaces = joins, .marks_spaces = true},
                                      false, {"<sym>"});
      const std::string text = "  a b  cé<sym>\xff x  \n  ";
      std::vector<std::size_t> offsets;
      for (std::size_t at = 0; at <= text.size(); ++at) offsets.push_back(at);
      const std::string normal = normalize(text, {}, offsets);
      EXPECT_EQ(normal, normalize(text));
      for (std::size_t at = 0; at < text.size(); ++at) {
        const std::string head = normalize(text.substr(0, at), {.begins = true, .ends = false});
        const bool within = text[at] != 'a' && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u;
        const bool in_symbol = at > text.find("<sym>") && at < text.find("<sym>") + 5;
        if (within || in_symbol) continue;
        EXPECT_EQ(offsets[at], std::min(head.size(), normal.size())) << at;
      }
      EXPECT_EQ(offsets.back(), normal.size());
    }
  }
}

}  // namespace
}  // namespace lyceum
