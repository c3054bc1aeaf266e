// Exchanges of rows that overlap with other work, and with a second alternating task.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/elementwise.h"
#include "parallel/comm/turns.h"
#include "parallel/expert/token_exchange.h"
#include "support/errors.h"
#include "support/tested_groups.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t width = 3;

class RowsTest : public testing::Test {
 protected:
  const ProcessGroup world = tested(test_world());
  const int rank = world.rank(), size = world.size();
  const Stream stream = tested_stream();

  /// Returns the number of rows that rank `from` sends to rank `to`: uneven, some 0.
  static std::int64_t rows(int from, int to, int salt) { return (from * 5 + to * 3 + salt) % 4; }
  static float value(int from, int to, std::int64_t row, int salt) {
    return static_cast<float>(1000 * from + 100 * to + 10 * salt) + static_cast<float>(row) / 4;
  }

  struct Exchange {
    std::vector<std::int64_t> sends, receives;
    std::vector<float> sent, expected;
  };
  Exchange exchange(int salt) const {
    Exchange one;
    for (int other = 0; other < size; ++other) {
      one.sends.push_back(rows(rank, other, salt));
      one.receives.push_back(rows(other, rank, salt));
      for (std::int64_t i = 0; i < one.sends.back() * width; ++i) one.sent.push_back(value(rank, other, i, salt));
      for (std::int64_t i = 0; i < one.receives.back() * width; ++i) {
        one.expected.push_back(value(other, rank, i, salt));
      }
    }
    return one;
  }
  RowsInFlight start(const Exchange& one) const {
    const Tensor sent = tensor_of(one.sent);
    return {stream, world, sent.view(0, {std::ssize(one.sent) / width, width}), one.sends, one.receives};
  }
};

TEST_F(RowsTest, ArriveWhereTheyBelong) {
  const Exchange one = exchange(1), other = exchange(2);
  RowsInFlight rows = start(one), more = start(other);
  more.wait(stream);
  EXPECT_EQ(values_of<float>(rows.arrived(stream)), one.expected);
  EXPECT_EQ(values_of<float>(more.arrived(stream)), other.expected);
}

TEST_F(RowsTest, SeveralTensorsArriveTogether) {
  const Exchange one = exchange(1);
  const Tensor sent = tensor_of(one.sent).view(0, {std::ssize(one.sent) / width, width});
  const Tensor doubled = Tensor::empty(stream, DType::f32, sent.shape());
  launch(stream, Add<float>{.a = sent.span<float>(), .b = sent.span<float>(), .y = doubled.span<float>()});
  RowsInFlight rows(stream, world, std::vector<Tensor>{sent, doubled}, one.sends, one.receives);
  const Tensor second = rows.destination(1);
  const std::vector<Tensor> received = rows.all_arrived(stream);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[1].raw(), second.raw());
  std::vector<float> twice = one.expected;
  for (float& value : twice) value *= 2;
  EXPECT_EQ(values_of<float>(received[0]), one.expected);
  EXPECT_EQ(values_of<float>(received[1]), twice);
}

/// Both tasks exchange rows repeatedly; the rows of one are in flight while the other starts its exchange.
TEST_F(RowsTest, OfTwoTasksOneStartsWhereTheOtherWouldWait) {
  std::string log;
  const auto task = [&](char name, int salt) {
    return [&, name, salt] {
      for (int i = 0; i < 3; ++i) {
        const Exchange one = exchange(salt + 2 * i);
        log += std::string("start ") + name + ", ";
        RowsInFlight rows = start(one);
        const Tensor received = rows.arrived(stream);
        log += std::string("take ") + name + ", ";
        EXPECT_EQ(values_of<float>(received), one.expected) << name << i;
      }
    };
  };
  world.turns().run(task('a', 0), task('b', 1));
  EXPECT_EQ(log,
            "start a, start b, take a, start a, take b, start b, take a, start a, take b, start b, take a, take b, ");
}

/// The other ranks send nothing until the second task of rank 0 has computed its result.
TEST_F(RowsTest, WhatTheOtherTaskComputesDoesNotWaitForThem) {
  const ProcessGroup others = test_world();
  const Exchange one = exchange(1);
  const auto travel = [&] {
    if (rank > 0) others.barrier();
    RowsInFlight rows = start(one);
    EXPECT_EQ(values_of<float>(rows.arrived(stream)), one.expected);
  };
  const auto compute = [&] {
    const Tensor values = tensor_of(std::vector<float>(5, 1.5F));
    launch(stream, Add<float>{.a = values.span<float>(), .b = values.span<float>(), .y = values.span<float>()});
    EXPECT_EQ(values_of<float>(values), std::vector<float>(5, 3.0F));
    if (rank == 0) others.barrier();
  };
  world.turns().run(travel, compute);
}

TEST_F(RowsTest, AnErrorOfOneTaskAbandonsExchangesOfTheOther) {
  const ProcessGroup own = tested(test_world());
  const auto waits = [&] {
    const Exchange one = exchange(1);
    RowsInFlight rows(stream, own, tensor_of(one.sent).view(0, {std::ssize(one.sent) / width, width}), one.sends,
                      one.receives);
    rows.arrived(stream);
    ADD_FAILURE() << "went on";
  };
  const auto fails = [&] { fail(ExitCode::failed, "the second task failed"); };
  expect_failure([&] { own.turns().run(waits, fails); }, "the second task failed");
  world.barrier();
  if (size == 1) return;
  EXPECT_THROW(own.all_reduce_async(tensor_of(std::vector<float>{1})).wait(), Error);
  world.barrier();
}

}  // namespace
}  // namespace lyceum
