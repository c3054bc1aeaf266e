#include "parallel/comm/operation_trace.h"

#include <gtest/gtest.h>

namespace lyceum {
namespace {

TEST(OperationTrace, RecordsOperationsAndWaitsWhileItExists) {
  Ledger ledger;
  const std::int64_t earlier = ledger.start({.group = 1, .index = 0}, -1);
  {
    OperationTrace trace(ledger);
    const std::int64_t first = ledger.start({.group = 1, .index = 1}, -1);
    const std::int64_t second = ledger.start({.group = 1, .index = 2}, -1);
    ledger.finish(earlier);
    ledger.wait_for(second);
    ledger.wait_for(second);  // NCCL's transport repeats it
    ledger.finish(second);
    ledger.wait_for(first);
    ledger.finish(first);
    ledger.wait_for(-1);
    ledger.wait_for(-1);
    const std::int64_t third = ledger.start({.group = 1, .index = 3}, -1);
    ASSERT_EQ(trace.operations().size(), 3U);
    for (std::size_t i = 0; i < 2; ++i) {
      const LedgerEntry& entry = trace.operations()[i].entry;
      EXPECT_EQ(entry.index, static_cast<std::int64_t>(i) + 1);
      EXPECT_GT(entry.started, 0);
      EXPECT_GE(entry.finished, entry.started);
    }
    EXPECT_LE(trace.operations()[1].entry.finished, trace.operations()[0].entry.finished);
    EXPECT_EQ(trace.operations()[2].number, third);
    EXPECT_EQ(trace.operations()[2].entry.finished, 0) << "not yet";
    ASSERT_EQ(trace.waits().size(), 2U);
    EXPECT_EQ(trace.waits()[0].number, second);
    EXPECT_EQ(trace.waits()[1].number, first);
    EXPECT_LE(trace.waits()[0].begin, trace.waits()[0].end);
    EXPECT_EQ(trace.waits()[0].end, trace.waits()[1].begin);
  }
  ledger.start({.group = 1, .index = 4}, -1);  // no observer any more
}

TEST(OperationTrace, RecordsOnlyEndsWhileItPauses) {
  Ledger ledger;
  OperationTrace trace(ledger);
  const std::int64_t first = ledger.start({.group = 1, .index = 1}, -1);
  ledger.wait_for(first);
  trace.pause();
  ASSERT_EQ(trace.waits().size(), 1U) << "the wait ends with the recording";
  ledger.finish(first);
  const std::int64_t second = ledger.start({.group = 1, .index = 2}, -1);
  ledger.wait_for(second);
  trace.resume();
  ledger.finish(second);
  ledger.wait_for(-1);
  ledger.start({.group = 1, .index = 3}, -1);
  EXPECT_EQ(trace.waits().size(), 1U);
  ASSERT_EQ(trace.operations().size(), 2U);
  EXPECT_GT(trace.operations()[0].entry.finished, 0);
  EXPECT_EQ(trace.operations()[1].entry.index, 3);
}

}  // namespace
}  // namespace lyceum
