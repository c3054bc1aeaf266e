#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/random.h"
#include "parallel/comm/process_group.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

class ProcessGroupTest : public testing::Test {
 protected:
  ProcessGroup world = test_world();
  const int rank = world.rank(), size = world.size();
};

/// Returns the values that `rank` contributes; can be evaluated on any rank.
template <class T>
std::vector<T> contribution(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto mixed = (i + 1) * 2654435761U + static_cast<std::size_t>(rank + 1) * 40503U;
    values[i] = static_cast<T>((static_cast<double>(mixed % 200003) - 100001.0) / 7.0);
  }
  return values;
}

/// Gathers the vectors of all ranks with MPI, independently of the tested code.
template <class T>
std::vector<std::vector<T>> gather_by_mpi(const std::vector<T>& values, int size) {
  std::vector<T> flat(values.size() * static_cast<std::size_t>(size));
  const int bytes = static_cast<int>(values.size() * sizeof(T));
  MPI_Allgather(values.data(), bytes, MPI_BYTE, flat.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
  std::vector<std::vector<T>> parts;
  for (int r = 0; r < size; ++r) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(values.size()) * r;
    parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(values.size()));
  }
  return parts;
}

/// Returns the expected result, reduced in rank order.
template <class T>
std::vector<T> reduce_serially(const std::vector<std::vector<T>>& parts, Reduction reduction) {
  std::vector<T> result = parts[0];
  for (std::size_t r = 1; r < parts.size(); ++r) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      const T a = result[i], b = parts[r][i];
      result[i] = reduction == Reduction::sum ? a + b : reduction == Reduction::max ? std::max(a, b) : std::min(a, b);
    }
  }
  return result;
}

template <class T>
bool same_vectors(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

TEST_F(ProcessGroupTest, AllReduceGivesTheBitsOfTheSumInRankOrder) {
  // Sizes around the threshold between whole vectors and slices, around a chunk, and not divisible by the ranks.
  for (const std::int64_t count : {0, 1, 2, 7, 1000, 2048, 4097, 16411, 262143, 262144, 262145, 600011}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      std::vector<float> values = contribution<float>(rank, count);
      const std::vector<float> expected = reduce_serially(gather_by_mpi(values, size), reduction);
      world.all_reduce(values, reduction);
      EXPECT_TRUE(same_vectors(values, expected)) << count << " values, reduction " << static_cast<int>(reduction);
    }
  }
}

TEST_F(ProcessGroupTest, AllReduceOfOtherTypes) {
  for (const std::int64_t count : {1, 3, 20011, 300007}) {
    std::vector<double> doubles = contribution<double>(rank, count);
    std::vector<std::int64_t> longs = contribution<std::int64_t>(rank, count);
    const std::vector<double> expected_doubles = reduce_serially(gather_by_mpi(doubles, size), Reduction::sum);
    const std::vector<std::int64_t> expected_longs = reduce_serially(gather_by_mpi(longs, size), Reduction::max);
    world.all_reduce(doubles);
    world.all_reduce(longs, Reduction::max);
    EXPECT_TRUE(same_vectors(doubles, expected_doubles)) << count;
    EXPECT_TRUE(same_vectors(longs, expected_longs)) << count;
  }
  Tensor ints = Tensor::zeros(CpuStream(1), DType::i32, {5});
  for (std::int32_t& value : ints.span<std::int32_t>()) value = rank + 1;
  world.all_reduce_async(ints).wait();
  for (const std::int32_t value : ints.span<std::int32_t>()) EXPECT_EQ(value, size * (size + 1) / 2);
  EXPECT_THROW(world.all_reduce_async(Tensor::zeros(CpuStream(1), DType::u8, {4})).wait(), Error);
}

TEST_F(ProcessGroupTest, AllReduceOf64MegabytesIsTheSameInEveryRun) {
  const std::int64_t count = std::int64_t{16} << 20;
  std::vector<float> values(static_cast<std::size_t>(count));
  const auto fill = [&] {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(i % 1009 + 1 + 31 * rank);
  };
  std::vector<float> first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    fill();
    world.all_reduce(values);
    if (repeat == 0) first = values;
  }
  EXPECT_TRUE(same_vectors(values, first));
  for (std::size_t i = 0; i < values.size(); i += 4093) {
    float expected = 1.0F / static_cast<float>(i % 1009 + 1);
    for (int r = 1; r < size; ++r) expected += 1.0F / static_cast<float>(i % 1009 + 1 + 31 * r);
    ASSERT_EQ(values[i], expected) << i;
  }
}

TEST_F(ProcessGroupTest, NotANumberReachesEveryRank) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t count : {3UL, 100003UL}) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      std::vector<float> values(count, static_cast<float>(rank));
      if (rank == size / 2) values[count / 2] = nan;
      if (rank == size - 1) values[0] = std::numeric_limits<float>::infinity();
      world.all_reduce(values, reduction);
      EXPECT_TRUE(std::isnan(values[count / 2]));
      EXPECT_FALSE(std::isnan(values[count - 1]));
      EXPECT_EQ(std::isinf(values[0]), reduction != Reduction::min || size == 1);
    }
  }
}

TEST_F(ProcessGroupTest, ManyReductionsInFlightAtOnceFinishInAnyOrder) {
  const CpuStream stream(1);
  std::vector<Tensor> tensors;
  std::vector<Pending> pending;
  for (int k = 0; k < 9; ++k) {
    tensors.push_back(Tensor::empty(stream, DType::f64, {30011 * (k % 3) + k}));
    for (double& value : tensors.back().span<double>()) value = rank + 100 * k;
    pending.push_back(world.all_reduce_async(tensors.back()));
    pending[static_cast<std::size_t>(rank * k) % pending.size()].test();  // the order of polling differs between ranks
  }
  for (std::size_t k = 0; k < pending.size(); ++k) pending[(k * 5 + static_cast<std::size_t>(rank)) % 9].wait();
  for (int k = 0; k < 9; ++k) {
    const double expected = size * (size - 1) / 2.0 + 100.0 * k * size;
    for (const double value : tensors[static_cast<std::size_t>(k)].span<double>()) ASSERT_EQ(value, expected) << k;
  }
}

TEST_F(ProcessGroupTest, AStartedReductionKeepsItsTensorAndItsGroup) {
  Tensor observer;
  Pending pending;
  {
    const ProcessGroup group = world.split(0, rank, "short-lived");
    Tensor tensor = Tensor::zeros(CpuStream(1), DType::f32, {70001});
    for (float& value : tensor.span<float>()) value = 1;
    pending = group.all_reduce_async(tensor);
    observer = tensor;
  }
  EXPECT_EQ(observer.unique(), size == 1);
  pending.wait();
  EXPECT_TRUE(pending.test());
  EXPECT_TRUE(observer.unique());
  for (const float value : observer.span<float>()) ASSERT_EQ(value, static_cast<float>(size));
}

/// An all-to-all with uneven counts, many of them zero. The contents of a row identify its sender, receiver and number.
struct Dispatch {
  std::vector<std::int64_t> send_rows, receive_rows;
  std::vector<std::int32_t> sent, expected, received;
  std::int64_t row_numbers;

  static std::int64_t rows(int from, int to, int round) {
    const auto draw = Philox(3, "rows").below(9, static_cast<std::uint64_t>(from * 64 + to + 4096 * round));
    return draw < 3 ? 0 : static_cast<std::int64_t>(draw * draw) * (round % 2 ? 100 : 1);
  }
  Dispatch(int self, int ranks, int round, std::int64_t numbers) : row_numbers(numbers) {
    for (int other = 0; other < ranks; ++other) {
      send_rows.push_back(rows(self, other, round));
      receive_rows.push_back(rows(other, self, round));
      append(sent, self, other, round);
      append(expected, other, self, round);
    }
    received.assign(expected.size(), -1);
  }
  void append(std::vector<std::int32_t>& to, int from, int receiver, int round) const {
    for (std::int64_t i = 0; i < rows(from, receiver, round) * row_numbers; ++i) {
      to.push_back(static_cast<std::int32_t>(((round * 8 + from) * 8 + receiver) * 1000003 + i));
    }
  }
  ProcessGroup::AllToAll exchange() { return {sent.data(), send_rows, received.data(), receive_rows, row_numbers * 4}; }
};

TEST_F(ProcessGroupTest, AllToAllOfUnevenCounts) {
  for (int round = 0; round < 6; ++round) {
    Dispatch dispatch(rank, size, round, round % 3 ? 17 : 1);
    world.all_to_all(dispatch.exchange());
    EXPECT_EQ(dispatch.received, dispatch.expected) << "round " << round;
  }
}

TEST_F(ProcessGroupTest, ExchangesInFlightTogetherDoNotMix) {
  std::vector<Dispatch> dispatches;
  for (int round = 0; round < 5; ++round) dispatches.emplace_back(rank, size, round, 11);
  std::vector<Pending> pending;
  for (Dispatch& dispatch : dispatches) pending.push_back(world.all_to_all_async(dispatch.exchange()));
  std::vector<float> sum{1.0F};
  world.all_reduce(sum);
  EXPECT_EQ(sum[0], static_cast<float>(size));
  for (auto last = pending.rbegin(); last != pending.rend(); ++last) last->wait();
  for (const Dispatch& dispatch : dispatches) EXPECT_EQ(dispatch.received, dispatch.expected);
}

TEST_F(ProcessGroupTest, AllToAllOfNothingAndOfAnEmptyRank) {
  const std::vector<std::int64_t> none(static_cast<std::size_t>(size), 0);
  world.all_to_all({.sent = nullptr, .send_rows = none, .received = nullptr, .receive_rows = none, .row_bytes = 8});
  // Every rank sends one number to the last rank.
  std::vector<std::int64_t> send_rows = none, receive_rows = none;
  send_rows.back() = 1;
  if (rank == size - 1) receive_rows.assign(receive_rows.size(), 1);
  const std::int64_t number = 10 + rank;
  std::vector<std::int64_t> received(rank == size - 1 ? static_cast<std::size_t>(size) : 0);
  world.all_to_all({.sent = &number,
                    .send_rows = send_rows,
                    .received = received.data(),
                    .receive_rows = receive_rows,
                    .row_bytes = 8});
  for (std::size_t r = 0; r < received.size(); ++r) EXPECT_EQ(received[r], 10 + static_cast<std::int64_t>(r));
}

TEST_F(ProcessGroupTest, ImpossibleExchangesAreRefused) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size), 0), more = rows, negative = rows, short_rows;
  more[static_cast<std::size_t>(rank)] = 1;
  negative[0] = -1;
  double number = 0;
  EXPECT_THROW(world.all_to_all({&number, rows, &number, short_rows, 8}), Error);
  EXPECT_THROW(world.all_to_all({&number, more, &number, rows, 8}), Error);
  EXPECT_THROW(world.all_to_all({&number, negative, &number, rows, 8}), Error);
  EXPECT_THROW(world.all_to_all({&number, rows, &number, rows, 0}), Error);
}

TEST_F(ProcessGroupTest, CountsThatDisagreeAreNamed) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  // Rank 0 sends one row while rank 1 expects two, or vice versa.
  for (const bool too_few : {true, false}) {
    const ProcessGroup group = world.split(rank < 2 ? 0 : 1, rank, "pair");
    if (rank > 1) continue;
    const std::int64_t row[2] = {1, 2};
    std::int64_t received[2] = {0, 0};
    std::vector<std::int64_t> send_rows(2, 0), receive_rows(2, 0);
    if (rank == 0) send_rows[1] = too_few ? 1 : 2;
    if (rank == 1) receive_rows[0] = too_few ? 2 : 1;
    const ProcessGroup::AllToAll exchange{row, send_rows, received, receive_rows, 8};
    if (rank == 0) {
      group.all_to_all(exchange);
      continue;
    }
    try {
      group.all_to_all(exchange);
      ADD_FAILURE() << "not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::failed);
      EXPECT_THAT(error.what(), HasSubstr("all_to_all of 0 B on group pair (rank 1 of 2)"));
      EXPECT_THAT(error.what(), HasSubstr(too_few ? "rank 0 sent 8 B where 16 B were expected" : "truncated"));
    }
  }
  world.barrier();
}

TEST_F(ProcessGroupTest, BroadcastOfTextFromEveryRoot) {
  for (int root = 0; root < size; ++root) {
    for (const std::string& text : {std::string(), std::string("one\0two", 7), std::string(100000, 'x')}) {
      EXPECT_EQ(world.broadcast(rank == root ? text : "something else", root), text);
    }
  }
  EXPECT_THROW(world.broadcast("text", size), Error);
  EXPECT_THROW(world.broadcast("text", -1), Error);
}

TEST_F(ProcessGroupTest, AllGatherOfTextAndNumbers) {
  const auto text_of = [](int r) { return std::string(static_cast<std::size_t>(r * r), static_cast<char>('a' + r)); };
  const std::vector<std::string> texts = world.all_gather(text_of(rank));
  ASSERT_EQ(std::ssize(texts), size);
  for (int r = 0; r < size; ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)], text_of(r));

  for (const int count : {0, 1, 5}) {
    std::vector<std::int64_t> sent(static_cast<std::size_t>(count)), received(static_cast<std::size_t>(count * size));
    std::iota(sent.begin(), sent.end(), 100 * rank);
    world.all_gather(sent, received);
    for (int i = 0; i < count * size; ++i) {
      EXPECT_EQ(received[static_cast<std::size_t>(i)], 100 * (i / count) + i % count);
    }
  }
  std::vector<std::int64_t> sent(2), too_small(1);
  EXPECT_THROW(world.all_gather(sent, too_small), Error);
}

TEST_F(ProcessGroupTest, GatherBringsTextsToTheRootAlone) {
  const auto text_of = [](int r) { return std::string(static_cast<std::size_t>(r * r), static_cast<char>('a' + r)); };
  for (int root = 0; root < size; ++root) {
    const std::vector<std::string> texts = world.gather(text_of(rank), root);
    ASSERT_EQ(std::ssize(texts), rank == root ? size : 0);
    for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], text_of(static_cast<int>(r)));
  }
  EXPECT_THROW(world.gather("text", size), Error);
}

TEST_F(ProcessGroupTest, SplitOrdersByKeyAndNests) {
  const ProcessGroup reversed = world.split(0, -rank, "reversed");
  EXPECT_EQ(reversed.rank(), size - 1 - rank);
  EXPECT_EQ(reversed.size(), size);
  EXPECT_EQ(reversed.name(), "reversed");

  const ProcessGroup parity = world.split(rank % 2, rank, "parity");
  EXPECT_EQ(parity.size(), (size + 1 - rank % 2) / 2);
  const ProcessGroup pair = parity.split(parity.rank() / 2, parity.rank(), "pair");
  std::vector<double> outer{static_cast<double>(rank)}, inner = outer;
  parity.all_reduce(outer);
  pair.all_reduce(inner);
  double expected_outer = 0, expected_inner = 0;
  for (int r = rank % 2; r < size; r += 2) {
    expected_outer += r;
    if (r / 4 == rank / 4) expected_inner += r;
  }
  EXPECT_EQ(outer[0], expected_outer);
  EXPECT_EQ(inner[0], expected_inner);
  EXPECT_THROW(static_cast<void>(world.split(-1, 0, "nobody")), Error);
}

TEST_F(ProcessGroupTest, GroupsCanBeMadeAndDroppedWithoutEnd) {
  for (int i = 0; i < 200; ++i) {
    const ProcessGroup group = world.split(rank % 2, rank, "passing");
    std::vector<std::int64_t> ones{1};
    group.all_reduce(ones);
    ASSERT_EQ(ones[0], group.size());
  }
}

TEST_F(ProcessGroupTest, TrafficCountsWhatLeavesThisRank) {
  const ProcessGroup group = world.split(0, rank, "counted");
  std::vector<float> values(100);
  group.all_reduce(values);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size), 3);
  std::vector<float> sent(static_cast<std::size_t>(6 * size)), received = sent;
  group.all_to_all({sent.data(), rows, received.data(), rows, 8});
  const std::int64_t number = 1;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  group.all_gather(std::span(&number, 1), numbers);
  group.broadcast("1234", 0);
  const bool alone = size == 1;
  EXPECT_EQ(group.traffic().all_reduce, alone ? 0 : 400);
  EXPECT_EQ(group.traffic().all_to_all, 24 * (size - 1));
  EXPECT_EQ(group.traffic().all_gather, alone ? 0 : 8);
  EXPECT_EQ(group.traffic().broadcast, alone || rank != 0 ? 0 : 8 + 4);
}

TEST_F(ProcessGroupTest, ARankThatStaysAwayEndsTheWaitOfTheOthers) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const ProcessGroup hasty = hasty_world(0.5);
  if (rank != size - 1) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<float> values(1024);
    try {
      hasty.all_reduce(values);
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::failed);
      const std::string place = "all_reduce of 4096 B on group world (rank " + std::to_string(rank) + " of ";
      EXPECT_THAT(error.what(), HasSubstr(place + std::to_string(size) + ") waited 0.5 s"));
      EXPECT_THAT(error.what(), HasSubstr("run.timeout_seconds"));
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(waited.count(), 0.5);
    // The ranks of the group no longer agree on the next operation.
    EXPECT_THROW(hasty.barrier(), Error);
  }
  world.barrier();  // the other communicator still works
}

TEST_F(ProcessGroupTest, ADroppedOperationWaitsNoLongerThanTheTimeout) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const ProcessGroup hasty = hasty_world(2);
  if (rank != 0) {
    { const Pending dropped = hasty.all_reduce_async(Tensor::zeros(CpuStream(1), DType::f32, {4})); }
    EXPECT_THROW(hasty.barrier(), Error);
  }
  world.barrier();
  // While an exception propagates, it does not wait at all.
  const ProcessGroup patient = world.split(0, rank, "patient");
  if (rank != 0) {
    try {
      const Pending dropped = patient.all_reduce_async(Tensor::zeros(CpuStream(1), DType::f32, {4}));
      fail(ExitCode::failed, "something else went wrong");
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "something else went wrong");
    }
    EXPECT_THROW(patient.barrier(), Error);
  }
  world.barrier();
}

TEST_F(ProcessGroupTest, ASelfGroupCopies) {
  const ProcessGroup self = ProcessGroup::self();
  EXPECT_EQ(self.rank(), 0);
  EXPECT_EQ(self.size(), 1);
  Dispatch dispatch(0, 1, 2, 3);
  self.all_to_all(dispatch.exchange());
  EXPECT_EQ(dispatch.received, dispatch.expected);
  std::vector<double> values{static_cast<double>(rank)};
  self.all_reduce(values);
  EXPECT_EQ(values[0], rank);
}

}  // namespace
}  // namespace lyceum
