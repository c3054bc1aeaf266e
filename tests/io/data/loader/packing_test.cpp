#include "io/data/loader/packing.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "io/data/loader/packing_file.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;
using Sequences = std::vector<std::vector<TokenSpan>>;

std::shared_ptr<const TokenSource> source_of(const fs::path& prefix, const std::vector<std::int64_t>& lengths) {
  MegatronWriter writer(prefix, 10);
  for (const std::int64_t length : lengths) {
    writer.add_document(std::vector<std::int32_t>(static_cast<std::size_t>(length), 1));
  }
  writer.finish();
  return open_tokens(prefix);
}

std::vector<std::int64_t> random_lengths(std::size_t documents, std::uint64_t most) {
  const Philox random(7, "lengths");
  std::vector<std::int64_t> lengths;
  for (std::uint64_t d = 0; d < documents; ++d) lengths.push_back(static_cast<std::int64_t>(random.below(most, d)));
  return lengths;
}

Sequences all_of(const Packing& packing) {
  Sequences sequences;
  for (std::int64_t s = 0; s < packing.sequences(); ++s) sequences.push_back(packing.spans_of(s));
  return sequences;
}

/// Best fit as a search in the ordered set of (room, sequence).
Sequences expected_packing(const std::vector<std::int64_t>& lengths, std::int64_t seq_len) {
  Sequences sequences;
  std::set<std::pair<std::int64_t, std::int64_t>> open;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t at = begin; at < begin + length - 1; at += seq_len) {
      const TokenSpan span{at, std::min(seq_len, begin + length - 1 - at)};
      const auto fitting = open.lower_bound({span.inputs, 0});
      std::pair<std::int64_t, std::int64_t> found{seq_len, std::ssize(sequences)};
      if (fitting != open.end()) {
        found = *fitting;
        open.erase(fitting);
      } else {
        sequences.emplace_back();
      }
      sequences[static_cast<std::size_t>(found.second)].push_back(span);
      if (found.first > span.inputs) open.insert({found.first - span.inputs, found.second});
    }
    begin += length;
  }
  return sequences;
}

class PackingTest : public ::testing::Test {
 protected:
  std::string prefix() const { return directory_.path() / "tokens"; }
  /// Places with a file for every source, and without packings in memory.
  PackingPlaces only_files() const { return {.most_held_spans = 0, .most_held_bytes = 0, .local = local()}; }
  fs::path local() const { return directory_.path() / "local"; }
  /// Returns the names in a folder, except those of token files.
  std::set<std::string> names_in(const fs::path& folder) const {
    std::set<std::string> names;
    if (!fs::exists(folder)) return names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (!name.ends_with(".bin") && !name.ends_with(".idx") && name != "local") names.insert(name);
    }
    return names;
  }

  TemporaryDirectory directory_;
};

TEST_F(PackingTest, FillsSequencesWithWholeDocuments) {
  // The documents have 4, 2, 9 (cut into 5 and 4), 0, 1 and 3 predictions.
  const auto packing = open_packing(*source_of(prefix(), {5, 3, 10, 1, 2, 4}), 5);
  EXPECT_EQ(packing->counts(),
            (PackingCounts{
                .seq_len = 5, .sequences = 4, .spans = 6, .documents = 5, .cut_documents = 1, .predicted_tokens = 19}));
  EXPECT_EQ(all_of(*packing), (Sequences{{{0, 4}, {19, 1}}, {{5, 2}, {21, 3}}, {{8, 5}}, {{13, 4}}}));
  EXPECT_EQ(packing->file(), nullptr);
  EXPECT_EQ(names_in(directory_.path()), std::set<std::string>{});
  EXPECT_THROW(packing->spans_of(4), Error);
  EXPECT_THROW(packing->spans_of(-1), Error);
}

TEST_F(PackingTest, IsTheSameInMemoryAndInAFileAndWithBlocksOfAnySize) {
  for (const std::uint64_t most : {3, 40, 900}) {
    const std::vector<std::int64_t> lengths = random_lengths(1000, most);
    const auto source = source_of(prefix(), lengths);
    for (const std::int64_t seq_len : {1, 7, 64, 512}) {
      const Sequences expected = expected_packing(lengths, seq_len);
      const auto held = open_packing(*source, seq_len);
      const auto file = open_packing(*source, seq_len, only_files());
      EXPECT_EQ(all_of(*held), expected);
      ASSERT_NE(file->file(), nullptr);
      EXPECT_EQ(all_of(*file), expected);
      EXPECT_EQ(held->counts(), file->counts());
      const SpanSurvey survey = survey_spans(*source, seq_len);
      for (const std::int64_t block : {survey.spans / 30, survey.spans / 3, 2 * survey.spans}) {
        std::vector<std::int64_t> placements;
        std::vector<TokenSpan> spans, flat;
        pack_spans({*source, seq_len, survey},
                   {.append = [&](auto all) { placements.insert(placements.end(), all.begin(), all.end()); },
                    .read = [&](std::int64_t first,
                                auto out) { std::copy_n(placements.begin() + first, out.size(), out.begin()); }},
                   block,
                   [&](std::span<const TokenSpan> part) { spans.insert(spans.end(), part.begin(), part.end()); });
        for (const auto& sequence : expected) flat.insert(flat.end(), sequence.begin(), sequence.end());
        EXPECT_EQ(spans, flat) << block;
      }
    }
  }
}

TEST_F(PackingTest, WastesLittle) {
  std::vector<std::int64_t> lengths = random_lengths(5000, 700);
  const auto packing = open_packing(*source_of(prefix(), lengths), 512);
  std::int64_t predicted = 0;
  for (const std::int64_t length : lengths) predicted += std::max<std::int64_t>(0, length - 1);
  EXPECT_EQ(packing->counts().predicted_tokens, predicted);
  EXPECT_LT(packing->sequences() * 512, predicted * 51 / 50);
}

TEST_F(PackingTest, AFileIsMadeOnceBesideTheTokens) {
  const auto source = source_of(prefix(), random_lengths(2000, 50));
  std::vector<std::future<std::shared_ptr<const Packing>>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::async(std::launch::async, [&] { return open_packing(*source, 64, only_files()); }));
  }
  std::vector<std::shared_ptr<const Packing>> packings;
  for (auto& call : calls) packings.push_back(call.get());
  EXPECT_EQ(names_in(directory_.path()), (std::set<std::string>{"tokens.64.packing"}));
  struct stat status {};
  ASSERT_EQ(::stat((prefix() + ".64.packing").c_str(), &status), 0);
  for (const auto& packing : packings) EXPECT_EQ(all_of(*packing), all_of(*packings.front()));
  open_packing(*source, 64, only_files());
  struct stat later {};
  ASSERT_EQ(::stat((prefix() + ".64.packing").c_str(), &later), 0);
  EXPECT_EQ(status.st_ino, later.st_ino);
  EXPECT_LE(static_cast<std::int64_t>(fs::file_size(prefix() + ".64.packing")),
            most_packing_bytes(packings.front()->counts().spans));
}

TEST_F(PackingTest, AFileOfOtherDocumentsOrADamagedOneIsReplaced) {
  const std::string file = prefix() + ".64.packing";
  std::vector<std::int64_t> lengths = random_lengths(500, 50);
  open_packing(*source_of(prefix(), lengths), 64, only_files());
  const std::string first = read_whole_file(file);
  std::swap(lengths[100], lengths[101]);  // the number of tokens and documents stays the same
  ASSERT_NE(lengths[100], lengths[101]);
  const auto source = source_of(prefix(), lengths);
  EXPECT_EQ(all_of(*open_packing(*source, 64, only_files())), expected_packing(lengths, 64));
  const std::string second = read_whole_file(file);
  EXPECT_NE(first, second);
  for (const std::string& damaged : {std::string(), second.substr(0, second.size() - 1), second + "x",
                                     second.substr(0, 16) + second.substr(32), std::string(second.size(), '\0')}) {
    write_whole_file(file, damaged);
    EXPECT_EQ(all_of(*open_packing(*source, 64, only_files())), expected_packing(lengths, 64));
    EXPECT_EQ(read_whole_file(file), second);
  }
  write_whole_file(file + ".partial", "the beginning of a file, left by a killed process");
  write_whole_file(file, "x");
  open_packing(*source, 64, only_files());
  EXPECT_EQ(read_whole_file(file), second);
  EXPECT_EQ(names_in(directory_.path()), (std::set<std::string>{"tokens.64.packing"}));
}

TEST_F(PackingTest, ImpossibleSpansAreNamed) {
  const auto source = source_of(prefix(), random_lengths(500, 50));
  const auto packing = open_packing(*source, 64, only_files());
  std::string bytes = read_whole_file(prefix() + ".64.packing");
  std::fill_n(bytes.begin(), 160, '\0');
  write_whole_file(prefix() + ".64.packing", bytes);
  const auto damaged = open_packing(*source, 64, only_files());
  expect_bad_input([&] { damaged->spans_of(0); }, "tokens.64.packing: sequence 0 is damaged");
  EXPECT_NO_THROW(packing->spans_of(0));  // the old file stays open
}

TEST_F(PackingTest, ProgressIsCountedBetweenAllAccessesToFiles) {
  const auto source = source_of(prefix(), random_lengths(200000, 50));
  std::atomic<std::int64_t> progress = 0;
  const SpanSurvey survey = survey_spans(*source, 64, &progress);
  EXPECT_GE(progress, 200000 >> 13);  // blocks of 8,192 documents
  std::vector<std::int64_t> placements;
  std::int64_t seen = progress, accesses = 0;
  const auto moved = [&] {
    EXPECT_GT(progress, seen) << "access " << accesses;
    seen = progress;
    ++accesses;
  };
  const PlacementStore store{.append =
                                 [&](auto all) {
                                   if (std::ssize(all) == 1 << 16) moved();
                                   placements.insert(placements.end(), all.begin(), all.end());
                                 },
                             .read =
                                 [&](std::int64_t first, auto out) {
                                   moved();
                                   std::copy_n(placements.begin() + first, out.size(), out.begin());
                                 }};
  pack_spans({*source, 64, survey, &progress}, store, survey.spans / 3, [&](std::span<const TokenSpan>) { moved(); });
  EXPECT_GE(accesses, 2 + 3 * (3 + 1));
}

TEST_F(PackingTest, ANewProcessTakesOverFromOneThatEnded) {
  const auto source = source_of(prefix(), random_lengths(500, 50));
  std::atomic<std::int64_t> progress = 0;
  auto busy = std::make_unique<PartialFile>(prefix() + ".64.packing");
  auto waiting = std::async(std::launch::async, [&] { return open_packing(*source, 64, only_files(), &progress); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  for (int changes = 0; changes < 3; ++changes) {  // the counter changes if the file that is waited for grows
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::int64_t seen = progress;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(progress, seen);
    busy->write_value(changes);
    busy->flush();
    while (progress == seen) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  busy.reset();
  EXPECT_EQ(waiting.get()->counts().documents, survey_spans(*source, 64).documents);
}

TEST_F(PackingTest, AnotherPlaceIsUsedIfTheFolderCannotBeWritten) {
  const auto source = source_of(prefix(), random_lengths(500, 50));
  fs::create_directories(prefix() + ".64.packing/occupied");  // a file cannot have this name
  const auto packing = open_packing(*source, 64, only_files());
  EXPECT_EQ(fs::path(packing->file()->path()).parent_path(), local());
  EXPECT_EQ(all_of(*packing), all_of(*open_packing(*source, 64)));
  EXPECT_EQ(names_in(local()).size(), 1u);
  EXPECT_EQ(names_in(directory_.path()), (std::set<std::string>{"tokens.64.packing"}));
  struct stat status {};
  ASSERT_EQ(::stat(local().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  // Other users may have written to such a folder.
  fs::permissions(local(), fs::perms::all);
  const std::string message = error_of([&] { open_packing(*source, 64, only_files()); }, ExitCode::failed);
  EXPECT_NE(message.find("can be written by other users"), std::string::npos) << message;
  EXPECT_NE(message.find("set TMPDIR"), std::string::npos) << message;
}

TEST_F(PackingTest, AFullDiskLeavesThePackingInMemory) {
  const auto source = source_of(prefix(), random_lengths(20000, 50));
  const FileSizeLimit limit(1 << 16);
  PackingPlaces places = only_files();
  error_of([&] { open_packing(*source, 64, places); }, ExitCode::failed);
  EXPECT_EQ(names_in(directory_.path()), std::set<std::string>{});
  EXPECT_EQ(names_in(local()), std::set<std::string>{});
  places.most_held_bytes = 1 << 20;
  EXPECT_EQ(open_packing(*source, 64, places)->file(), nullptr);
}

TEST_F(PackingTest, LinksToTokenFilesHaveTheIndexBesideThem) {
  const auto source = source_of(prefix(), random_lengths(500, 50));
  fs::create_directory(directory_.path() / "links");
  for (const char* ending : {".bin", ".idx"}) {
    fs::create_symlink(prefix() + ending, directory_.path() / "links" / (std::string("other") + ending));
  }
  const auto linked = open_tokens(directory_.path() / "links" / "other");
  const auto packing = open_packing(*linked, 64, only_files());
  EXPECT_EQ(packing->file()->path(), directory_.path() / "links" / "other.64.packing");
  EXPECT_EQ(all_of(*packing), all_of(*open_packing(*source, 64)));
}

}  // namespace
}  // namespace lyceum
