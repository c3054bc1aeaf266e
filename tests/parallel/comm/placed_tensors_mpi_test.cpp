// Groups whose tensors are in device memory; most cases also run in host memory and expect the same results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "core/random.h"
#include "parallel/comm/ledger.h"
#include "parallel/comm/mesh.h"
#include "support/tested_groups.h"
#include "support/tested_world.h"
#ifdef LYCEUM_CUDA
#include "parallel/comm/gpu_assignment.h"
#endif

namespace lyceum {
namespace {

using testing::HasSubstr;

class PlacedTensors : public testing::Test {
 protected:
  const ProcessGroup world = tested(test_world());
  const int rank = world.rank(), size = world.size();
  const Stream stream = tested_stream();
};

template <class T>
std::vector<T> numbers_of(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto mixed = (i + 1) * 2654435761U + static_cast<std::size_t>(rank + 1) * 40503U;
    values[i] = static_cast<T>(static_cast<float>((static_cast<double>(mixed % 20003) - 10001.0) / 7.0));
  }
  return values;
}

/// Returns the expected result: reduced in rank order, bf16 sums in f32.
template <class T>
std::vector<T> reduced(int ranks, std::int64_t count, Reduction reduction) {
  using A = Accumulator<T>;
  std::vector<T> result = numbers_of<T>(0, count);
  std::vector<A> sum(result.begin(), result.end());
  for (int r = 1; r < ranks; ++r) {
    const std::vector<T> other = numbers_of<T>(r, count);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const A a = sum[i], b = static_cast<A>(other[i]);
      sum[i] = reduction == Reduction::sum ? a + b : reduction == Reduction::max ? std::max(a, b) : std::min(a, b);
    }
  }
  std::transform(sum.begin(), sum.end(), result.begin(), [](A x) { return static_cast<T>(x); });
  return result;
}

template <class T>
void expect_sums(const std::vector<T>& values, const std::vector<T>& expected, int ranks) {
  ASSERT_EQ(values.size(), expected.size());
  // bf16 has a precision of 8 bits, and NCCL rounds after every rank; f32 has 24.
  const double tolerance =
      sums_in_rank_order() ? 0 : (dtype_of<T> == DType::bf16 ? 0x1p-8 : 0x1p-22) * 1500 * ranks * ranks;
  for (std::size_t i = 0; i < values.size(); ++i) {
    using A = Accumulator<T>;
    const auto value = static_cast<double>(static_cast<A>(values[i]));
    ASSERT_TRUE(std::abs(value - static_cast<double>(static_cast<A>(expected[i]))) <= tolerance) << i << ": " << value;
  }
}

TEST_F(PlacedTensors, AllReduceOfEveryTypeAndKind) {
  for (const std::int64_t count : {1, 7, 4097, 70001}) {
    const auto check = [&]<class T>(Reduction reduction) {
      const Tensor values = tensor_of(numbers_of<T>(rank, count));
      world.all_reduce_async(values, reduction).wait();
      expect_sums(values_of<T>(values), reduced<T>(size, count, reduction), size);
    };
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
      check.operator()<float>(reduction);
      check.operator()<double>(reduction);
      check.operator()<bfloat16>(reduction);
      check.operator()<std::int32_t>(reduction);
      check.operator()<std::int64_t>(reduction);
    }
  }
  EXPECT_THROW(world.all_reduce_async(Tensor::zeros(stream, DType::u8, {4})).wait(), Error);
  world.all_reduce_async(Tensor::zeros(stream, DType::f32, {0})).wait();
}

TEST_F(PlacedTensors, HostThingsStayOnTheHost) {
  std::vector<double> values{1.0 + rank};
  world.all_reduce(values);
  EXPECT_EQ(values[0], size * (size + 1) / 2.0);
  EXPECT_EQ(world.broadcast(rank == 0 ? "text" : "", 0), "text");
  std::vector<std::int64_t> sent(static_cast<std::size_t>(size), rank), received(sent.size());
  const std::vector<std::int64_t> ones(sent.size(), 1);
  world.all_to_all(
      ProcessGroup::NumbersToAll{.sent = sent, .send_counts = ones, .received = received, .receive_counts = ones});
  for (int r = 0; r < size; ++r) EXPECT_EQ(received[static_cast<std::size_t>(r)], r);
  world.barrier();
}

std::int64_t rows(int from, int to, int round) {
  const auto draw = Philox(3, "rows").below(9, static_cast<std::uint64_t>(from * 64 + to + 4096 * round));
  return draw < 3 ? 0 : static_cast<std::int64_t>(draw * draw) * (round % 2 ? 50 : 1);
}

struct PlacedDispatch {
  std::vector<std::int64_t> send_rows, receive_rows;
  std::vector<std::int32_t> expected;
  Tensor sent, received;

  PlacedDispatch(int self, int ranks, int round) {
    std::vector<std::int32_t> away;
    for (int other = 0; other < ranks; ++other) {
      send_rows.push_back(rows(self, other, round));
      receive_rows.push_back(rows(other, self, round));
      append(away, self, other, round);
      append(expected, other, self, round);
    }
    sent = tensor_of(away);
    received = tensor_of(std::vector<std::int32_t>(expected.size(), -1));
  }
  static void append(std::vector<std::int32_t>& to, int from, int receiver, int round) {
    for (std::int64_t i = 0; i < rows(from, receiver, round) * 5; ++i) {
      to.push_back(static_cast<std::int32_t>(((round * 8 + from) * 8 + receiver) * 1000003 + i));
    }
  }
  ProcessGroup::AllToAll exchange() const { return {sent.raw(), send_rows, received.raw(), receive_rows, 20}; }
};

TEST_F(PlacedTensors, AllToAllOfUnevenCounts) {
  for (int round = 0; round < 6; ++round) {
    const PlacedDispatch dispatch(rank, size, round);
    world.all_to_all(dispatch.exchange());
    EXPECT_EQ(values_of<std::int32_t>(dispatch.received), dispatch.expected) << "round " << round;
  }
  const std::vector<std::int64_t> none(static_cast<std::size_t>(size), 0);
  world.all_to_all({.sent = nullptr, .send_rows = none, .received = nullptr, .receive_rows = none, .row_bytes = 8});
}

/// Rows of three tensors, of 20, 400 and 1 bytes: over MPI, those for a rank are packed into one message or are
/// separate messages. Counts, also those of 0, are the same for all three, or differ.
TEST_F(PlacedTensors, OneExchangeOfSeveralTensorsEqualsOneOfEach) {
  for (const bool same_rows : {true, false}) {
    for (int round = 0; round < 4; ++round) {
      std::vector<PlacedDispatch> parts;
      for (int i = 0; i < 3; ++i) parts.emplace_back(rank, size, same_rows ? round : round + i);
      std::vector<Tensor> sent, received, expected;
      std::vector<ProcessGroup::AllToAll> together;
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        const std::int64_t row = std::array{20, 400, 1}[i];
        const auto& [sends, receives] = std::tie(parts[i].send_rows, parts[i].receive_rows);
        const std::int64_t out = std::accumulate(sends.begin(), sends.end(), std::int64_t{0}) * row,
                           in = std::accumulate(receives.begin(), receives.end(), std::int64_t{0}) * row;
        std::vector<std::uint8_t> content(static_cast<std::size_t>(out));
        for (std::size_t b = 0; b < content.size(); ++b) {
          content[b] = static_cast<std::uint8_t>(b * 7 + static_cast<std::size_t>(rank) * 31 + i);
        }
        sent.push_back(tensor_of(content));
        received.push_back(Tensor::zeros(stream, DType::u8, {in}));
        expected.push_back(Tensor::zeros(stream, DType::u8, {in}));
        world.all_to_all({sent[i].raw(), sends, expected[i].raw(), receives, row});
        together.push_back({sent[i].raw(), sends, received[i].raw(), receives, row});
        bytes += out - sends[static_cast<std::size_t>(rank)] * row;
      }
      const std::int64_t before = world.traffic().all_to_all, noted = world.ledger().page().noted;
      world.all_to_all_async(together).wait();
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(bytes_of(received[i]), bytes_of(expected[i])) << round << ", " << i;
      EXPECT_EQ(world.traffic().all_to_all - before, size > 1 ? bytes : 0);
      EXPECT_EQ(world.ledger().page().noted - noted, size > 1 ? 1 : 0);
    }
  }
  world.all_to_all_async(std::vector<ProcessGroup::AllToAll>{}).wait();
}

TEST_F(PlacedTensors, SeveralOperationsInFlightOnSeveralGroups) {
  const ProcessGroup other = world.split(0, -rank, "reversed"), pair = world.split(rank / 2, rank, "pair");
  const PlacedDispatch first(rank, size, 1), second(other.rank(), size, 3);
  const Tensor sum = tensor_of(numbers_of<float>(rank, 30011)), own = tensor_of(std::vector<float>(3, rank)),
               all = Tensor::empty(stream, DType::f32, {3 * pair.size()});
  const std::vector<std::int64_t> extents(static_cast<std::size_t>(pair.size()), 3);
  std::vector<Pending> pending;
  pending.push_back(world.all_to_all_async(first.exchange()));
  pending.push_back(other.all_to_all_async(second.exchange()));
  pending.push_back(world.all_reduce_async(sum));
  pending.push_back(pair.all_gather_async(own, all, extents));
  pending[static_cast<std::size_t>(rank) % 4].test();
  for (std::size_t i = 4; i-- > 0;) pending[i].wait();
  EXPECT_EQ(values_of<std::int32_t>(first.received), first.expected);
  EXPECT_EQ(values_of<std::int32_t>(second.received), second.expected);
  expect_sums(values_of<float>(sum), reduced<float>(size, 30011, Reduction::sum), size);
  const std::vector<float> gathered = values_of<float>(all);
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    EXPECT_EQ(gathered[i], static_cast<float>(rank / 2 * 2 + static_cast<int>(i) / 3));
  }
}

TEST_F(PlacedTensors, GroupsInAnotherOrderOnOtherRanksDoNotWaitForEachOther) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  if (tested_nccl().order == NcclOrder::serial) GTEST_SKIP() << "the order must be the same on all ranks";
  const ProcessGroup one = world.split(0, rank, "one"), other = world.split(0, rank, "other");
  const Tensor a = tensor_of(numbers_of<float>(rank, 5000)), b = tensor_of(numbers_of<double>(rank, 5000));
  Pending first, second;
  if (rank % 2) first = one.all_reduce_async(a);
  second = other.all_reduce_async(b);
  if (rank % 2 == 0) first = one.all_reduce_async(a);
  first.wait(), second.wait();
  expect_sums(values_of<float>(a), reduced<float>(size, 5000, Reduction::sum), size);
  expect_sums(values_of<double>(b), reduced<double>(size, 5000, Reduction::sum), size);
}

TEST_F(PlacedTensors, AGroupIsSplitWhileWorkIsInFlightOnIt) {
  const Tensor before = tensor_of(numbers_of<float>(rank, 40009)), after = tensor_of(numbers_of<float>(rank, 123));
  Pending first = world.all_reduce_async(before);
  const ProcessGroup again = world.split(0, rank, "again");
  Pending second = world.all_reduce_async(after);
  const Tensor other = tensor_of(numbers_of<double>(rank, 77));
  again.all_reduce_async(other).wait();
  second.wait(), first.wait();
  expect_sums(values_of<float>(before), reduced<float>(size, 40009, Reduction::sum), size);
  expect_sums(values_of<float>(after), reduced<float>(size, 123, Reduction::sum), size);
  expect_sums(values_of<double>(other), reduced<double>(size, 77, Reduction::sum), size);
}

TEST_F(PlacedTensors, GroupsOfUnevenSizesAndGroupsOfThese) {
  // Splits off rank 0, with the other ranks in reverse order; then splits off the first of these. No parent group is
  // kept.
  const ProcessGroup rest = world.split(rank == 0 ? 0 : 1, -rank, "rest");
  EXPECT_EQ(rest.size(), rank == 0 ? 1 : size - 1);
  const ProcessGroup inner = [&] {
    const ProcessGroup outer = rest.split(0, rest.rank(), "outer");
    return outer.split(outer.rank() == 0 ? 7 : 3, outer.rank(), "inner");
  }();
  const auto sum_over = [&](const ProcessGroup& group) {
    const Tensor ranks = tensor_of(std::vector<std::int64_t>(5, rank));
    group.all_reduce_async(ranks).wait();
    return values_of<std::int64_t>(ranks);
  };
  const std::int64_t all = size * (size - 1) / 2;
  const bool alone = rank == 0 || rank == size - 1;
  EXPECT_EQ(sum_over(inner), std::vector<std::int64_t>(5, alone ? rank : all - (size - 1)));
  EXPECT_EQ(sum_over(rest), std::vector<std::int64_t>(5, rank == 0 ? 0 : all));
}

TEST_F(PlacedTensors, MemoryMayBeUsedAgainAfterTheWait) {
  const std::int64_t count = 50000;
  const void* address = nullptr;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Tensor copy = Tensor::empty(stream, DType::f32, {count});
    {
      const Tensor values = tensor_of(numbers_of<float>(rank, count));
      address = values.raw();
      world.all_reduce_async(values).wait();
      copy_on_device(stream, copy.raw(), values.raw(), values.bytes());
    }
    const Tensor next = tensor_of(std::vector<float>(count, 7.0F));
    EXPECT_EQ(next.raw(), address) << "a freed block is used again";
    EXPECT_EQ(values_of<float>(next), std::vector<float>(count, 7.0F))
        << "written by the operation that was waited for";
    expect_sums(values_of<float>(copy), reduced<float>(size, count, Reduction::sum), size);
  }
}

TEST_F(PlacedTensors, AStartedOperationKeepsItsTensorAndItsGroup) {
  Tensor observer;
  Pending pending;
  {
    const ProcessGroup group = world.split(0, rank, "short-lived");
    const Tensor values = tensor_of(numbers_of<float>(rank, 9001));
    pending = group.all_reduce_async(values);
    observer = values;
  }
  EXPECT_EQ(observer.unique(), size == 1);
  pending.wait();
  EXPECT_TRUE(observer.unique());
  expect_sums(values_of<float>(observer), reduced<float>(size, 9001, Reduction::sum), size);
}

TEST_F(PlacedTensors, TrafficAndLedgerAreThoseOfTheHost) {
  const ProcessGroup host = test_world(), device = tested(host);
  const auto calls = [&](const ProcessGroup& group, const Stream& where) {
    std::vector<std::string> noted;
    group.ledger().listen([&](const LedgerEntry& entry) {
      noted.push_back(std::string(entry.operation.data()) + " " + std::to_string(entry.size));
    });
    const Tensor all = Tensor::zeros(where, DType::f32, {4 * size}), own = Tensor::zeros(where, DType::f32, {4});
    const std::vector<std::int64_t> extents(static_cast<std::size_t>(size), 4);
    group.all_reduce_async(all).wait();
    group.reduce_scatter(all, own, extents);
    group.all_gather(own, all, extents);
    group.all_to_all({all.raw(), extents, all.raw(), extents, 4});
    if (rank == 0 && size > 1) group.send_async(own, 1).wait();
    if (rank == 1) group.receive_async(own, 0).wait();
    group.ledger().listen(nullptr);
    return noted;
  };
  EXPECT_EQ(calls(device, stream), calls(host, CpuStream(1)));
  EXPECT_EQ(device.traffic().all_reduce, host.traffic().all_reduce);
  EXPECT_EQ(device.traffic().reduce_scatter, host.traffic().reduce_scatter);
  EXPECT_EQ(device.traffic().all_gather, host.traffic().all_gather);
  EXPECT_EQ(device.traffic().all_to_all, host.traffic().all_to_all);
  EXPECT_EQ(device.traffic().send, host.traffic().send);
  EXPECT_EQ(device.traffic().all_reduce, size == 1 ? 0 : 16 * size);
}

TEST_F(PlacedTensors, TheLedgerSeesTheEndOfWhatIsDone) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const Tensor values = tensor_of(numbers_of<float>(rank, 100));
  world.all_reduce_async(values).wait();
  values_of<float>(values);
  world.barrier();
  const LedgerPage& page = world.ledger().page();
  for (std::int64_t number = 0; number < page.noted; ++number) EXPECT_GT(page.entry(number)->finished, 0) << number;
  EXPECT_EQ(page.waits_for, -1);
}

TEST_F(PlacedTensors, ARankThatStaysAwayIsNamedInTime) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const ProcessGroup hasty = tested(test_world());
  world.barrier();
  hasty.set_timeout(short_time());
  std::string message;
  if (rank != size - 1) {
    const Tensor values = tensor_of(std::vector<float>(1024));
    try {
      hasty.all_reduce_async(values).wait();
      values_of<float>(values);  // with NCCL wait() does not block the host; this does
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::failed);
      message = error.what();
    }
    EXPECT_THAT(message, HasSubstr("all_reduce of 4096 B on group world (rank " + std::to_string(rank) + " of "));
    EXPECT_THAT(message, HasSubstr("run.timeout_seconds"));
    EXPECT_THROW(hasty.all_reduce_async(values).wait(), Error);
    EXPECT_EQ(values_of<float>(tensor_of(std::vector<float>(9, 3.0F))), std::vector<float>(9, 3.0F)) << "works on";
  }
  const std::vector<std::string> all = world.all_gather(message);
  const std::string culprit = "rank " + std::to_string(size - 1) + " on ";
  EXPECT_EQ(std::ranges::count_if(all, [&](const auto& one) { return one.find(culprit) != one.npos; }), 1)
      << testing::PrintToString(all);
}

TEST_F(PlacedTensors, AnErrorOnItsWayOutDoesNotWait) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const Tensor values = tensor_of(std::vector<float>(64));
  if (rank != 0) {
    try {
      const ProcessGroup patient = tested(test_world().split(0, rank, "patient"));
      const Pending dropped = patient.all_reduce_async(values);
      fail(ExitCode::failed, "something else went wrong");
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "something else went wrong");
    }
    values_of<float>(values);
  } else {
    const ProcessGroup patient = tested(test_world().split(0, rank, "patient"));
  }
  world.barrier();
}

TEST_F(PlacedTensors, AGroupOfOneCopiesWhereItsTensorsLie) {
  const ProcessGroup alone = tested(ProcessGroup::self());
  const std::vector<float> values = numbers_of<float>(rank, 1000);
  const std::vector<std::int64_t> extents{1000};
  const Tensor all = tensor_of(values), own = Tensor::empty(stream, DType::f32, {1000}),
               back = Tensor::empty(stream, DType::f32, {1000}), rows = Tensor::empty(stream, DType::f32, {1000});
  alone.reduce_scatter(all, own, extents);
  alone.all_gather(own, back, extents);
  alone.all_to_all({back.raw(), extents, rows.raw(), extents, 4});
  alone.all_reduce_async(rows).wait();
  EXPECT_EQ(values_of<float>(rows), values);
}

TEST_F(PlacedTensors, EveryGroupOfAMeshIsThere) {
  const Mesh mesh = Mesh::create(tested(test_world()), {});
  for (const ProcessGroup* group : {&mesh.data, &mesh.tensor, &mesh.data_tensor, &mesh.expert_data}) {
    const Tensor values = tensor_of(std::vector<std::int32_t>(10, group->rank()));
    group->all_reduce_async(values).wait();
    EXPECT_EQ(values_of<std::int32_t>(values), std::vector<std::int32_t>(10, group->size() * (group->size() - 1) / 2));
  }
}

TEST_F(PlacedTensors, StreamsAndTransportsMustFit) {
  const ProcessGroup host = ProcessGroup::self();
  EXPECT_THROW(static_cast<void>(host.on(CpuStream(1), Transport::nccl)), Error);
  EXPECT_THROW(static_cast<void>(host.on(CpuStream(1), Transport::staged)), Error);
  EXPECT_NO_THROW(static_cast<void>(ProcessGroup::rehearsal(1, 3).on(RehearsalStream(), Transport::mpi)));
#ifdef LYCEUM_CUDA
  if (!tests_run_on_gpu()) return;
  EXPECT_THROW(static_cast<void>(host.on(stream, Transport::mpi)), Error);
  const ProcessGroup all = test_world();
  const GpuAssignment assigned = assign_gpus(all);
  EXPECT_EQ(assigned.device, all.rank() % CudaStream::device_count());  // all ranks are on one machine
  EXPECT_EQ(assigned.shared, all.size() > CudaStream::device_count());
#endif
}

}  // namespace
}  // namespace lyceum
