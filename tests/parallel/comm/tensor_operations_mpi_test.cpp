// Reduce-scatter, all-gather and messages between two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <thread>

#include "support/errors.h"
#include "support/tested_groups.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

using testing::HasSubstr;

class TensorOperations : public testing::Test {
 protected:
  ProcessGroup world = tested(test_world());
  const int rank = world.rank(), size = world.size();
  const Stream stream = tested_stream();

  std::size_t self() const { return static_cast<std::size_t>(rank); }

  /// Returns partitions of `count` elements: an even one; all on one rank; increasing with the rank, with none on the
  /// first.
  std::vector<std::vector<std::int64_t>> partitions(std::int64_t count) const {
    std::vector<std::vector<std::int64_t>> all(3, std::vector<std::int64_t>(static_cast<std::size_t>(size), 0));
    for (int r = 0; r < size; ++r) {
      const auto at = static_cast<std::size_t>(r);
      all[0][at] = count * (r + 1) / size - count * r / size;
      all[1][at] = r == size / 2 ? count : 0;
      all[2][at] = count * r / (size * size);
    }
    return all;
  }
  std::int64_t begin_of(const std::vector<std::int64_t>& extents) const {
    return std::accumulate(extents.begin(), extents.begin() + rank, std::int64_t{0});
  }
};

std::int64_t total(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
}

/// Returns values whose sums are not exact in f32, so that another order of summation gives other bits.
template <class T>
Tensor contribution(int rank, std::int64_t count, std::int64_t salt) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto mixed =
        (i + 1 + static_cast<std::uint64_t>(salt)) * 2654435761U + static_cast<std::uint64_t>(rank) * 40503U;
    values[i] = static_cast<T>((static_cast<double>(mixed % 200003) - 100001.0) / 7.0);
  }
  return tensor_of(values);
}

/// Expects the same bits, or nearly the same sums if the transport adds in another order.
template <class T>
void expect_slice(const Tensor& own, const Tensor& sums, std::int64_t first) {
  const std::vector<T> values = values_of<T>(own), all = values_of<T>(sums);
  const auto slice = std::span(all).subspan(static_cast<std::size_t>(first), values.size());
  if (sums_in_rank_order()) {
    ASSERT_TRUE(values.empty() || std::memcmp(values.data(), slice.data(), own.bytes()) == 0);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(std::abs(static_cast<double>(values[i]) - static_cast<double>(slice[i])) <= 0.1) << i;
  }
}

/// Returns the sizes to test. On the host, large sizes take several chunks or rounds; on a GPU they are not needed.
std::span<const std::int64_t> sizes() {
  static constexpr std::array<std::int64_t, 8> all{0, 1, 2, 7, 1000, 65537, 262145, 600011};
  return std::span(all).first(tests_run_on_gpu() ? 6 : 8);
}

TEST_F(TensorOperations, ReduceScatterGivesTheBitsOfTheSliceOfAllReduce) {
  for (const std::int64_t count : sizes()) {
    for (const std::vector<std::int64_t>& extents : partitions(count)) {
      const auto check = [&]<class T>() {
        const Tensor values = contribution<T>(rank, total(extents), count);
        const Tensor sums = contribution<T>(rank, total(extents), count);
        const std::vector<std::byte> before = bytes_of(values);
        world.all_reduce_async(sums).wait();
        const Tensor own = Tensor::empty(stream, dtype_of<T>, {extents[self()]});
        world.reduce_scatter(values, own, extents);
        expect_slice<T>(own, sums, begin_of(extents));
        ASSERT_EQ(bytes_of(values), before) << "read only";
        // In place: `inside` is this rank's part of `values`.
        const Tensor inside = values.view(begin_of(extents), {extents[self()]});
        world.reduce_scatter(values, inside, extents);
        expect_slice<T>(inside, sums, begin_of(extents));
      };
      check.operator()<float>();
      check.operator()<double>();
      check.operator()<std::int64_t>();
    }
  }
}

TEST_F(TensorOperations, AllGatherOfEveryTypeFromOutsideAndInPlace) {
  std::vector<std::byte> pattern(600011 * 8);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 37 + i / 251);
  for (const std::int64_t count : sizes()) {
    for (const std::vector<std::int64_t>& extents : partitions(count)) {
      for (const DType type : {DType::f32, DType::bf16, DType::f64, DType::u8}) {
        for (const bool in_place : {false, true}) {
          const Tensor values = Tensor::empty(stream, type, {total(extents)});
          set_bytes(values, std::vector<std::byte>(values.bytes(), std::byte{0xEE}).data());
          const std::int64_t first = begin_of(extents);
          const Tensor own =
              in_place ? values.view(first, {extents[self()]}) : Tensor::empty(stream, type, {extents[self()]});
          const auto at = static_cast<std::size_t>(first) * size_of(type);
          set_bytes(own, pattern.data() + at);
          world.all_gather(own, values, extents);
          const std::vector<std::byte> gathered = bytes_of(values);
          ASSERT_TRUE(std::equal(gathered.begin(), gathered.end(), pattern.begin())) << count << " " << name_of(type);
        }
      }
    }
  }
}

TEST_F(TensorOperations, NotANumberReachesTheRankThatOwnsIt) {
  const std::int64_t each = 50003;
  const std::vector<std::int64_t> extents(static_cast<std::size_t>(size), each);
  std::vector<float> contributed(static_cast<std::size_t>(each * size));
  const std::int64_t at = each * (size - 1) + 17;
  if (rank == 0) contributed[static_cast<std::size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
  const Tensor values = tensor_of(contributed);
  const Tensor own = Tensor::empty(stream, DType::f32, {each});
  world.reduce_scatter(values, own, extents);
  const std::vector<float> sums = values_of<float>(own);
  for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(std::isnan(sums[i]), rank == size - 1 && i == 17) << i;
}

TEST_F(TensorOperations, OperationsOfAllKindsInFlightFinishInAnyOrder) {
  struct Round {
    std::vector<std::int64_t> extents;
    Tensor values, sums, own, gathered, message, heard;
  };
  std::vector<Round> rounds;
  std::vector<Pending> pending;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (std::int64_t k = 0; k < 5; ++k) {
    Round round;
    round.extents = partitions(30011 * k + k)[static_cast<std::size_t>(k % 3)];
    const Shape shape{total(round.extents)};
    round.values = contribution<float>(rank, shape.size(), k);
    round.sums = contribution<float>(rank, shape.size(), k);
    round.gathered = Tensor::empty(stream, DType::bf16, shape);
    round.own = Tensor::empty(stream, DType::f32, {round.extents[self()]});
    const Tensor part = tensor_of(
        std::vector<bfloat16>(static_cast<std::size_t>(round.extents[self()]), bfloat16(static_cast<float>(rank))));
    pending.push_back(world.reduce_scatter_async(round.values, round.own, round.extents));
    pending.push_back(world.all_gather_async(part, round.gathered, round.extents));
    pending.push_back(world.all_reduce_async(round.sums));
    if (size > 1) {
      round.message = tensor_of(std::vector<std::int64_t>(static_cast<std::size_t>(1000 * k), 100 * k + rank));
      round.heard = Tensor::empty(stream, DType::i64, {1000 * k});
      pending.push_back(world.receive_async(round.heard, previous));
      pending.push_back(world.send_async(round.message, next));
    }
    rounds.push_back(std::move(round));
    pending[static_cast<std::size_t>(rank) * 7 % pending.size()].test();
  }
  for (std::size_t k = 0; k < pending.size(); ++k) pending[(k * 3 + self()) % pending.size()].wait();
  for (std::size_t k = 0; k < pending.size(); ++k) pending[k].wait();
  for (std::size_t k = 0; k < rounds.size(); ++k) {
    const Round& round = rounds[k];
    expect_slice<float>(round.own, round.sums, begin_of(round.extents));
    const std::vector<bfloat16> gathered = values_of<bfloat16>(round.gathered);
    std::size_t at = 0;
    for (int r = 0; r < size; ++r) {
      for (std::int64_t i = 0; i < round.extents[static_cast<std::size_t>(r)]; ++i) {
        ASSERT_EQ(static_cast<float>(gathered[at++]), static_cast<float>(r));
      }
    }
    if (size == 1) continue;
    for (const std::int64_t value : values_of<std::int64_t>(round.heard)) {
      ASSERT_EQ(value, 100 * static_cast<std::int64_t>(k) + previous);
    }
  }
}

TEST_F(TensorOperations, AnOperationInFlightHoldsUpNothingElse) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const Tensor sum = tensor_of(std::vector<float>(1000, 1.0F));
  const Tensor first = tensor_of(std::vector<float>(10, 1.0F));
  world.all_reduce_async(first).wait();
  EXPECT_EQ(values_of<float>(first)[9], static_cast<float>(size));  // all ranks are connected
  if (rank == size - 1) MPI_Barrier(MPI_COMM_WORLD);
  Pending pending = world.all_reduce_async(sum);
  if (rank < size - 1) {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(pending.test()) << "rank " << size - 1 << " has not joined yet";
    const std::vector<float> other(100, 2.0F);
    EXPECT_EQ(values_of<float>(tensor_of(other)), other);  // waits for all work in the stream
    MPI_Barrier(MPI_COMM_WORLD);
  }
  const auto start = std::chrono::steady_clock::now();
  while (!pending.test()) ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(values_of<float>(sum), std::vector<float>(1000, static_cast<float>(size)));
}

TEST_F(TensorOperations, MessagesBetweenTwoRanksKeepTheirOrder) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  // Every rank sends several messages to every other rank before any rank receives: one is empty, one is large.
  const auto content = [](int from, std::int64_t length) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(length));
    std::iota(values.begin(), values.end(), static_cast<std::int32_t>(1000 * from + length));
    return values;
  };
  const std::int64_t lengths[] = {5, 0, 200003, 1};
  std::vector<Pending> sent;
  for (int to = 0; to < size; ++to) {
    if (to == rank) continue;
    for (const std::int64_t length : lengths) {
      sent.push_back(world.send_async(tensor_of(content(rank, length)), to));
    }
  }
  for (int from = size; from-- > 0;) {
    if (from == rank) continue;
    for (const std::int64_t length : lengths) {
      const Tensor message = Tensor::zeros(stream, DType::i32, {length});
      world.receive_async(message, from).wait();
      ASSERT_EQ(values_of<std::int32_t>(message), content(from, length));
    }
  }
  for (Pending& one : sent) one.wait();
}

TEST_F(TensorOperations, WhatDoesNotFitIsRefused) {
  std::vector<std::int64_t> extents(static_cast<std::size_t>(size), 3);
  const auto make = [&](DType type, std::int64_t count) { return Tensor::zeros(stream, type, {count}); };
  const Tensor all = make(DType::f32, 3 * size), own = make(DType::f32, 3);
  expect_failure([&] { world.reduce_scatter(all, make(DType::f32, 2), extents); },
                 "has 3 elements, but its tensor has 2");
  expect_failure([&] { world.reduce_scatter(make(DType::f32, 1), own, extents); }, "but the tensor has 1");
  expect_failure([&] { world.all_gather(make(DType::f64, 3), all, extents); },
                 "the part is f64, but the whole tensor f32");
  expect_failure([&] { world.reduce_scatter(make(DType::u8, 3 * size), make(DType::u8, 3), extents); }, "u8");
  extents[0] = -3;
  expect_failure([&] { world.all_gather(own, all, extents); }, "the extent -3 is negative");
  extents.push_back(1);
  expect_failure([&] { world.all_gather(own, all, extents); }, "extents for");
  expect_failure([&] { world.send_async(own, rank).wait(); }, "the group has no such rank");
  expect_failure([&] { world.receive_async(own, size).wait(); }, "the group has no such rank");
  expect_failure([&] { world.receive_async(own, -1).wait(); }, "the group has no such rank");
}

TEST_F(TensorOperations, AMessageOfAnotherSizeIsNamedAtItsReceiver) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  if (!detects_size_mismatch()) GTEST_SKIP() << "NCCL takes the receiver's size for granted";
  for (const std::int64_t sent : {0, 1, 3}) {
    const ProcessGroup group = world.split(0, rank, "stages");
    if (rank == 0) group.send_async(Tensor::zeros(stream, DType::f64, {sent}), 1).wait();
    if (rank != 1) continue;
    const std::string wrong =
        sent < 2 ? "rank 0 sent " + std::to_string(8 * sent) + " B where 16 B were expected" : std::string("truncated");
    const std::string place = "receive of 16 B from rank 0 on group stages (rank 1 of " + std::to_string(size) + ")";
    const auto receive = [&] { group.receive_async(Tensor::zeros(stream, DType::f64, {2}), 0).wait(); };
    expect_failure(
        [&] {
          try {
            receive();
          } catch (const Error& error) {
            EXPECT_THAT(error.what(), HasSubstr(place));
            throw;
          }
        },
        wrong);
    expect_failure(receive, "an earlier operation on this group was aborted");
  }
  world.barrier();
}

TEST_F(TensorOperations, APartnerThatStaysAwayEndsTheWait) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const std::string place =
      " on group world (rank " + std::to_string(rank) + " of " + std::to_string(size) + ") waited ";
  const std::vector<std::int64_t> extents(static_cast<std::size_t>(size), 2);
  const Tensor all = Tensor::zeros(stream, DType::f32, {2 * size}), own = Tensor::zeros(stream, DType::f32, {2});
  // too large to be sent before the receiver takes part
  const Tensor large = Tensor::zeros(stream, DType::f32, {1 << 20});
  const std::string bytes = std::to_string(8 * size);
  const std::vector<std::pair<std::string, std::function<void(const ProcessGroup&)>>> calls{
      {"reduce_scatter of " + bytes + " B", [&](const ProcessGroup& g) { g.reduce_scatter(all, own, extents); }},
      {"all_gather of 8 B", [&](const ProcessGroup& g) { g.all_gather(own, all, extents); }},
      {"receive of 8 B from rank " + std::to_string(size - 1),
       [&](const ProcessGroup& g) { g.receive_async(own, size - 1).wait(); }},
      {"send of 4194304 B to rank " + std::to_string(size - 1),
       [&](const ProcessGroup& g) { g.send_async(large, size - 1).wait(); }}};
  for (const auto& [operation, call] : calls) {
    const ProcessGroup hasty = tested(test_world());
    hasty.set_timeout(short_time());
    const auto wait_for_call = [&, &call = call] {
      call(hasty);
      bytes_of(own);  // with NCCL wait() does not block the host; this does
    };
    if (rank != size - 1) expect_failure(wait_for_call, operation + place);
    world.barrier();
  }
}

TEST_F(TensorOperations, TrafficCountsPartsAndMessages) {
  const ProcessGroup group = world.split(0, rank, "counted");
  std::vector<std::int64_t> extents(static_cast<std::size_t>(size), 4);
  extents[0] = 7;
  const Tensor all = Tensor::zeros(stream, DType::f32, {total(extents)});
  const Tensor own = Tensor::zeros(stream, DType::f32, {extents[self()]});
  group.reduce_scatter(all, own, extents);
  group.all_gather(own, all, extents);
  if (rank == 0 && size > 1) group.send_async(all, 1).wait();
  if (rank == 1) group.receive_async(all, 0).wait();
  const bool alone = size == 1;
  EXPECT_EQ(group.traffic().reduce_scatter, alone ? 0 : 4 * total(extents));
  EXPECT_EQ(group.traffic().all_gather, alone ? 0 : 4 * extents[self()]);
  EXPECT_EQ(group.traffic().send, alone || rank != 0 ? 0 : 4 * total(extents));
  EXPECT_EQ(group.traffic().all_reduce, 0);
}

TEST_F(TensorOperations, AGroupOfOneCopies) {
  const ProcessGroup alone = tested(ProcessGroup::self());
  const std::vector<std::int64_t> extents{5};
  const std::vector<float> values{1, -2, 3, -4, 5};
  const Tensor all = tensor_of(values), own = Tensor::zeros(stream, DType::f32, {5});
  alone.reduce_scatter(all, own, extents);
  EXPECT_EQ(values_of<float>(own), values);
  const Tensor back = Tensor::zeros(stream, DType::f32, {5});
  alone.all_gather(own, back, extents);
  EXPECT_EQ(values_of<float>(back), values);
}

}  // namespace
}  // namespace lyceum
