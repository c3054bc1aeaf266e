// Mismatches between the sequences of operations of ranks are detected before anything is started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/comm/mesh.h"
#include "parallel/comm/sequences.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

class SequencesTest : public testing::Test {
 protected:
  /// Returns the operations of `calls` on the groups of a rehearsed mesh, as recorded by the ledger.
  std::vector<LedgerEntry> rehearsed(const std::function<void(const Mesh&)>& calls, const MeshShape& shape = {}) const {
    const Mesh mesh = Mesh::create(ProcessGroup::rehearsal(rank, size), shape);
    std::vector<LedgerEntry> entries;
    mesh.world.ledger().listen([&](const LedgerEntry& entry) { entries.push_back(entry); });
    calls(mesh);
    mesh.world.ledger().listen({});
    return entries;
  }
  /// Returns the text of the Error, which must be the same on all ranks; empty if there is none.
  std::string mismatch(const std::vector<LedgerEntry>& own) const {
    std::string message;
    try {
      require_matching(world, own);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::failed);
      message = error.what();
    }
    for (const std::string& other : world.all_gather(message)) EXPECT_EQ(other, message);
    return message;
  }

  const ProcessGroup world = test_world();
  const int rank = world.rank(), size = world.size(), last = size - 1;
  const std::string last_text = std::to_string(last);
  const Tensor tensor = Tensor::empty(RehearsalStream(), DType::f32, {10});
  mutable std::vector<float> values = std::vector<float>(4);
};

TEST_F(SequencesTest, WhatFitsPasses) {
  EXPECT_EQ(mismatch({}), "");
  const MeshShape shape{.pipeline = size > 2 ? 2 : 1, .tensor = size > 1 ? 2 : 1};
  const auto own = rehearsed(
      [&](const Mesh& mesh) {
        for (int i = 0; i < 100; ++i) mesh.data.all_reduce(values);
        if (mesh.tensor.rank() == 0) mesh.data.barrier();  // groups with the same name have separate sequences
        if (mesh.pipeline.size() == 2) {
          const int peer = 1 - mesh.pipeline.rank();
          for (int i = 0; i < 3; ++i) {
            // One side receives before it sends, the other sends first: only each direction has an order.
            if (peer) mesh.pipeline.send_async(tensor, peer).wait();
            mesh.pipeline.receive_async(tensor, peer).wait();
            if (!peer) mesh.pipeline.send_async(tensor, peer).wait();
          }
        }
      },
      shape);
  EXPECT_EQ(mismatch(own), "");
}

TEST_F(SequencesTest, AnotherOperationIsReportedWithBothCallSites) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  unsigned reduces = 0, gathers = 0;
  std::vector<std::int64_t> one(1), all(static_cast<std::size_t>(size));
  const std::string message = mismatch(rehearsed([&](const Mesh& mesh) {
    for (int i = 0; i < 5; ++i) mesh.data.barrier();
    reduces = std::source_location::current().line() + 1;
    if (rank != last) mesh.data.all_reduce(values);
    gathers = std::source_location::current().line() + 1;
    if (rank == last) mesh.data.all_gather(one, all);
    mesh.data.barrier();
  }));
  EXPECT_THAT(message, HasSubstr("ranks 0 and " + last_text + " would diverge: rank 0 calls all_reduce #5 of 16 B on " +
                                 "group data (sequences_mpi_test.cpp:" + std::to_string(reduces) + "), where rank " +
                                 last_text + " calls all_gather #5 of " + std::to_string(8 * size) +
                                 " B on group data (sequences_mpi_test.cpp:" + std::to_string(gathers) + ")"));
}

TEST_F(SequencesTest, AnotherSizeIsReported) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const std::string message = mismatch(
      rehearsed([&](const Mesh& mesh) { mesh.data.all_reduce(std::span(values).first(rank == last ? 3 : 4)); }));
  EXPECT_THAT(message, HasSubstr("rank 0 calls all_reduce #0 of 16 B"));
  EXPECT_THAT(message, HasSubstr("where rank " + last_text + " calls all_reduce #0 of 12 B"));
}

TEST_F(SequencesTest, OneMoreIsReported) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const std::string message = mismatch(rehearsed([&](const Mesh& mesh) {
    for (int i = rank == last ? 0 : 1; i < 3; ++i) mesh.data.barrier();
  }));
  EXPECT_THAT(message, HasSubstr("rank 0 calls nothing more, where rank " + last_text + " calls barrier #2"));
}

TEST_F(SequencesTest, ARankThatNeverComesIsReported) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const std::string message = mismatch(rehearsed([&](const Mesh& mesh) {
    if (rank != last) mesh.data.barrier();
  }));
  const std::string comers = last == 1 ? "rank 0" : "0-" + std::to_string(last - 1);
  EXPECT_THAT(message, HasSubstr("rank 0 calls barrier #0 of 0 B on group data"));
  EXPECT_THAT(message, HasSubstr("of its " + std::to_string(size) + " ranks only " + (last == 1 ? "0" : comers) +
                                 " would take part"));
}

TEST_F(SequencesTest, AMessageThatIsReceivedWithAnotherSizeIsReported) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const Tensor small = Tensor::empty(RehearsalStream(), DType::f32, {5});
  const std::string message = mismatch(rehearsed([&](const Mesh& mesh) {
    if (rank == 0) mesh.world.send_async(tensor, last).wait();
    if (rank == 0) mesh.world.send_async(tensor, last).wait();
    if (rank == last) mesh.world.receive_async(tensor, 0).wait();
    if (rank == last) mesh.world.receive_async(small, 0).wait();
  }));
  EXPECT_THAT(message, HasSubstr("rank 0 calls send #1 of 40 B from rank 0 to " + last_text + " on group world"));
  EXPECT_THAT(message, HasSubstr("rank " + last_text + " calls receive #1 of 20 B from rank 0 to " + last_text));
}

}  // namespace
}  // namespace lyceum
