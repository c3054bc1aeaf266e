#include "parallel/comm/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "parallel/comm/mesh.h"
#include "parallel/comm/verdict.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Call {
  const char* operation;
  std::uint64_t group;
  const char* group_name;
  std::int64_t index, size;
  int members, line;
};

LedgerEntry entry_of(const Call& call) {
  LedgerEntry entry;
  entry.group = call.group;
  entry.index = call.index;
  entry.size = call.size;
  entry.members = call.members;
  entry.line = call.line;
  put(entry.group_name, call.group_name);
  put(entry.operation, call.operation);
  put(entry.file, "step.cpp");
  return entry;
}

/// Simulated ledger pages of several ranks. The clock of the pages is at 100 seconds.
class Ranks {
 public:
  explicit Ranks(int count) : pages_(static_cast<std::size_t>(count)), hosts_(pages_.size(), "node") {
    for (int rank = 0; rank < count; ++rank) {
      page(rank).rank = rank;
      page(rank).process = 1000 + rank;
      page(rank).state = 'R';
      page(rank).copied = 100;
    }
  }
  LedgerPage& page(int rank) { return pages_[static_cast<std::size_t>(rank)]; }
  void join(int rank, std::uint64_t group) {
    for (LedgerPage::Position& position : page(rank).positions) {
      if (position.group == 0) {
        position = {group, 0};
        return;
      }
    }
  }
  LedgerEntry& start(int rank, LedgerEntry entry, double when) {
    LedgerPage& own = page(rank);
    entry.started = when;
    for (LedgerPage::Position& position : own.positions) {
      if (position.group == entry.group && !entry.message()) position.started = entry.index + 1;
    }
    return own.ring[static_cast<std::size_t>(own.noted++) % LedgerPage::entries] = entry;
  }
  void wait(int rank, const LedgerEntry& entry, double when) {
    start(rank, entry, when);
    page(rank).waits_for = page(rank).noted - 1;
  }
  std::string verdict(int asker) const { return lyceum::verdict(pages_, hosts_, asker); }

 private:
  std::vector<LedgerPage> pages_;
  std::vector<std::string> hosts_;
};

LedgerEntry message(int from, int to, bool send, std::int64_t size = 64) {
  LedgerEntry entry = entry_of({send ? "send" : "receive", 9, "pipeline", 0, size, 2, 20});
  entry.from = from;
  entry.to = to;
  return entry;
}

TEST(Ledger, KeepsTheLastEntriesAndThePositions) {
  Ledger ledger;
  const int position = ledger.join(7);
  std::vector<std::int64_t> heard;
  ledger.listen([&](const LedgerEntry& entry) { heard.push_back(entry.index); });
  for (std::int64_t i = 0; i < 70; ++i) {
    EXPECT_EQ(ledger.start(entry_of({"all_reduce", 7, "data", i, 4, 2, 1}), position), i);
  }
  EXPECT_EQ(heard.size(), 70u);
  const LedgerPage& page = ledger.page();
  EXPECT_EQ(page.started(7), 70);
  EXPECT_EQ(page.started(8), -1);
  EXPECT_EQ(page.entry(5), nullptr);  // overwritten
  EXPECT_EQ(page.entry(70), nullptr);
  ASSERT_NE(page.entry(6), nullptr);
  EXPECT_EQ(page.entry(6)->index, 6);
  EXPECT_EQ(page.entry(6)->finished, 0);
  ledger.finish(6);
  EXPECT_GE(page.entry(6)->finished, page.entry(6)->started);
  ledger.finish(2);  // overwritten as well, so this has no effect
  EXPECT_EQ(page.counterpart(entry_of({"all_reduce", 7, "data", 69, 4, 2, 1}))->index, 69);
  EXPECT_EQ(page.counterpart(entry_of({"all_reduce", 8, "data", 69, 4, 2, 1})), nullptr);
  ledger.leave(position);
  EXPECT_EQ(page.started(7), -1);
}

TEST(Ledger, WithoutRoomForAGroupItsEntriesRemain) {
  Ledger ledger;
  for (std::size_t i = 0; i < LedgerPage::groups; ++i) EXPECT_GE(ledger.join(i + 1), 0);
  const int position = ledger.join(1000);
  EXPECT_EQ(position, -1);
  EXPECT_EQ(ledger.start(entry_of({"barrier", 1000, "late", 0, 0, 2, 1}), position), 0);
  EXPECT_EQ(ledger.page().entry(0)->group, 1000u);
  ledger.leave(position);
}

TEST(Ledger, NamesAreCutToTheirFields) {
  std::array<char, 4> field{'x', 'x', 'x', 'x'};
  put(field, "abcdef");
  EXPECT_STREQ(field.data(), "abc");
  put(field, "");
  EXPECT_STREQ(field.data(), "");
}

TEST(Verdict, NamesTheRankThatStaysAway) {
  Ranks ranks(4);
  const LedgerEntry reduce = entry_of({"all_reduce", 5, "data", 12, 4096, 4, 47});
  for (int rank = 0; rank < 4; ++rank) ranks.join(rank, 5);
  LedgerEntry& last = ranks.start(3, entry_of({"reduce_scatter", 6, "tensor", 40, 8, 2, 61}), 68);
  last.finished = 69;
  ranks.page(3).state = 'T';
  for (const int rank : {0, 1, 2}) ranks.wait(rank, reduce, 70 + rank);
  const std::string line = ranks.verdict(0);
  EXPECT_EQ(
      line,
      "rank 3 on node (process 1003 is stopped) has not entered all_reduce #12 of 4096 B on group data "
      "(step.cpp:47), which ranks 0-2 entered 30 s ago; its last operation: reduce_scatter #40 of 8 B on group tensor "
      "(step.cpp:61), finished 31 s ago");
  EXPECT_EQ(ranks.verdict(2), line);
  ranks.page(3).state = 'R';
  EXPECT_THAT(ranks.verdict(1), StartsWith("rank 3 on node (process 1003 is not waiting for others) has not entered"));
  ranks.page(3).state = '0';
  EXPECT_THAT(ranks.verdict(1), StartsWith("rank 3 on node (process 1003 is gone)"));
}

TEST(Verdict, FollowsWhoWaitsForWhom) {
  // 0 waits for 1 in group data; 1 waits for 2 in group tensor; 2 waits for a message from 3, which is stopped.
  Ranks ranks(4);
  for (const int rank : {0, 1}) ranks.join(rank, 5);
  for (const int rank : {1, 2}) ranks.join(rank, 6);
  for (const int rank : {2, 3}) ranks.join(rank, 9);
  ranks.wait(0, entry_of({"all_reduce", 5, "data", 1, 4, 2, 1}), 60);
  ranks.wait(1, entry_of({"all_gather", 6, "tensor", 7, 8, 2, 2}), 55);
  ranks.wait(2, message(3, 2, false), 50);
  ranks.page(3).state = 'T';
  const std::string line =
      "rank 3 on node (process 1003 is stopped) has not entered receive #0 of 64 B from rank 3 to 2 on group pipeline "
      "(step.cpp:20), which rank 2 entered 50 s ago";
  for (int asker = 0; asker < 3; ++asker) EXPECT_EQ(ranks.verdict(asker), line);
}

TEST(Verdict, OneThatEnteredAndWasStoppedIsNamed) {
  Ranks ranks(3);
  const LedgerEntry reduce = entry_of({"all_reduce", 5, "data", 0, 4, 3, 1});
  for (int rank = 0; rank < 3; ++rank) {
    ranks.join(rank, 5);
    ranks.wait(rank, reduce, 80);
  }
  EXPECT_THAT(ranks.verdict(0), StartsWith("all ranks entered all_reduce #0 of 4 B on group data"));
  ranks.page(1).state = 'T';
  EXPECT_THAT(ranks.verdict(0),
              StartsWith("rank 1 on node (process 1001 is stopped) has not finished all_reduce #0 of 4 B on group "
                         "data (step.cpp:1), which ranks 0,2 entered 20 s ago"));
}

TEST(Verdict, DifferentCallsAreTheFirstReason) {
  Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank) ranks.join(rank, 5);
  for (const int rank : {0, 1}) ranks.wait(rank, entry_of({"all_reduce", 5, "data", 3, 64, 3, 10}), 70);
  ranks.wait(2, entry_of({"all_gather", 5, "data", 3, 64, 3, 99}), 71);
  ranks.page(1).state = 'T';  // the state of the process does not matter
  EXPECT_EQ(ranks.verdict(0),
            "ranks 0 and 2 diverge: rank 0 called all_reduce #3 of 64 B on group data (step.cpp:10), rank 2 called "
            "all_gather #3 of 64 B on group data (step.cpp:99)");
}

TEST(Verdict, OfSeveralDifferencesTheEarliestIsReported) {
  Ranks ranks(2);
  ranks.start(0, entry_of({"all_reduce", 5, "data", 3, 64, 2, 10}), 70);
  ranks.start(0, entry_of({"all_reduce", 5, "data", 4, 32, 2, 11}), 72);
  ranks.start(1, entry_of({"all_reduce", 5, "data", 3, 32, 2, 10}), 71);
  ranks.start(1, entry_of({"all_reduce", 5, "data", 4, 16, 2, 12}), 73);
  EXPECT_THAT(ranks.verdict(0), HasSubstr("rank 1 called all_reduce #3 of 32 B"));
}

TEST(Verdict, AMessageOfAnotherSizePartsWays) {
  Ranks ranks(2);
  ranks.wait(0, message(1, 0, false, 64), 70);
  ranks.start(1, message(1, 0, true, 128), 60);
  EXPECT_THAT(ranks.verdict(0), StartsWith("ranks 0 and 1 diverge: rank 0 called receive #0 of 64 B from rank 1 to 0"));
}

TEST(Verdict, ACircleIsReported) {
  Ranks ranks(2);
  for (const int rank : {0, 1}) {
    ranks.join(rank, 5);
    ranks.join(rank, 6);
  }
  ranks.wait(0, entry_of({"all_reduce", 5, "data", 0, 4, 2, 1}), 60);
  ranks.wait(1, entry_of({"all_reduce", 6, "tensor", 0, 4, 2, 2}), 60);
  EXPECT_EQ(ranks.verdict(0),
            "ranks 0-1 wait for each other: rank 0 in all_reduce #0 of 4 B on group data (step.cpp:1), rank 1 in "
            "all_reduce #0 of 4 B on group tensor (step.cpp:2)");
}

TEST(Verdict, RanksWithoutPagesAreReported) {
  Ranks ranks(4);
  for (const int rank : {0, 1}) {
    ranks.join(rank, 5);
    ranks.wait(rank, entry_of({"all_reduce", 5, "data", 0, 4, 4, 1}), 60);
  }
  for (const int rank : {2, 3}) ranks.page(rank) = LedgerPage{};
  EXPECT_EQ(ranks.verdict(0),
            "2 of the 4 ranks of all_reduce #0 of 4 B on group data (step.cpp:1), which ranks 0-1 entered, did not "
            "answer: no response from ranks 2-3 (on node)");
  ranks.page(0).waits_for = -1;
  EXPECT_EQ(ranks.verdict(0), "");
}

TEST(Verdict, RanksAreListedAsRanges) {
  EXPECT_EQ(rank_ranges(std::vector<int>{}), "");
  EXPECT_EQ(rank_ranges(std::vector{4}), "4");
  EXPECT_EQ(rank_ranges(std::vector{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Rehearsal, NotesCountsAndFinishesAtOnce) {
  const Mesh mesh = Mesh::create(ProcessGroup::rehearsal(5, 8), {.tensor = 2});
  EXPECT_EQ(mesh.data.size(), 4);
  EXPECT_EQ(mesh.data.rank(), 2);
  EXPECT_EQ(mesh.tensor.rank(), 1);
  std::vector<LedgerEntry> heard;
  mesh.world.ledger().listen([&](const LedgerEntry& entry) { heard.push_back(entry); });
  std::vector<float> values(10, 3);
  const unsigned line = std::source_location::current().line() + 1;
  mesh.data.all_reduce(values);
  EXPECT_EQ(values[0], 3);
  const Tensor tensor = Tensor::empty(RehearsalStream(), DType::bf16, {7});
  mesh.tensor.receive_async(tensor, 0).wait();
  mesh.tensor.send_async(tensor, 0).wait();
  const std::vector<std::int64_t> sent{1, 2, 3, 4}, counts{1, 1, 1, 1};
  std::vector<std::int64_t> received(4, -1);
  mesh.data.all_to_all(
      ProcessGroup::NumbersToAll{.sent = sent, .send_counts = counts, .received = received, .receive_counts = counts});
  EXPECT_EQ(received, std::vector<std::int64_t>(4, 3));
  mesh.pipeline.all_reduce(values);  // the pipeline group has one rank: no operation
  ASSERT_EQ(heard.size(), 4u);
  EXPECT_EQ(heard[0].text(), "all_reduce #0 of 40 B on group data (ledger_test.cpp:" + std::to_string(line) + ")");
  EXPECT_EQ(heard[0].members, 4);
  EXPECT_EQ(heard[1].from, 4);
  EXPECT_EQ(heard[1].to, 5);
  EXPECT_EQ(heard[2].from, 5);
  EXPECT_EQ(heard[2].size, 14);
  EXPECT_EQ(heard[3].size, 8);
  EXPECT_EQ(mesh.data.traffic().all_reduce, 40);
  EXPECT_EQ(mesh.data.traffic().all_to_all, 24);
  EXPECT_EQ(mesh.tensor.traffic().send, 14);
}

}  // namespace
}  // namespace lyceum
