// Tests NcclCarrier alone with one rank, which is possible with the real library on a single GPU. (Process groups of
// one rank do not use NCCL.)
#include "parallel/comm/cuda/nccl_carrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "parallel/comm/cuda/make_transport.h"
#include "parallel/comm/pending_state.h"
#include "support/tested_groups.h"

namespace lyceum {
namespace {

class NcclCarrierTest : public testing::Test {
 protected:
  const Stream stream = tested_stream();
  const std::shared_ptr<SharedState> shared = std::make_shared<SharedState>();
  const std::shared_ptr<Communicator> alone =
      std::make_shared<Communicator>(Communicator::Identity{"alone", 77}, shared, std::vector<int>{0}, 0);
  const std::shared_ptr<TensorTransport> transport = make_nccl_transport(std::get<CudaStream>(stream), shared);
  const std::unique_ptr<Carrier> carrier = transport->carrier(alone, std::source_location::current());

  static Operation operation(const char* name, std::int64_t bytes) {
    return {.name = name, .bytes = bytes, .size = bytes, .where = std::source_location::current()};
  }
  static std::vector<float> numbers(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), -7.0F);
    return values;
  }
};

TEST_F(NcclCarrierTest, EveryCollectiveOfOneRankKeepsItsValues) {
  const std::int64_t count = 1003;
  const std::vector<float> values = numbers(count);
  const std::vector<std::int64_t> extents{count};
  const Tensor x = tensor_of(values), y = Tensor::zeros(stream, DType::f32, {count}),
               z = Tensor::zeros(stream, DType::f32, {count}), rows = Tensor::zeros(stream, DType::f32, {count}),
               others = Tensor::zeros(stream, DType::f32, {count});
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
    Pending(carrier->all_reduce(operation("all_reduce", 4 * count), x, reduction)).wait();
  }
  Pending(carrier->reduce_scatter(operation("reduce_scatter", 4 * count), {x, y, extents})).wait();
  Pending(carrier->all_gather(operation("all_gather", 4 * count), {z, y, extents})).wait();
  const std::vector<ProcessGroup::AllToAll> exchanges{{z.raw(), extents, rows.raw(), extents, 4},
                                                      {x.raw(), extents, others.raw(), extents, 4}};
  Pending(carrier->all_to_all(operation("all_to_all", 0), exchanges)).wait();
  EXPECT_EQ(values_of<float>(rows), values);
  EXPECT_EQ(values_of<float>(others), values);
  shared->progress.poll();
  const LedgerPage& page = shared->ledger.page();
  EXPECT_EQ(page.noted, 6);
  for (std::int64_t number = 0; number < page.noted; ++number) EXPECT_GT(page.entry(number)->finished, 0) << number;
}

TEST_F(NcclCarrierTest, EveryTypeIsReduced) {
  const auto check = [&]<class T>() {
    const std::vector<T> values{T(1), T(2), T(100)};
    const Tensor x = tensor_of(values);
    Pending(carrier->all_reduce(operation("all_reduce", 0), x, Reduction::sum)).wait();
    EXPECT_EQ(values_of<T>(x), values);
  };
  check.operator()<float>();
  check.operator()<double>();
  check.operator()<std::int32_t>();
  check.operator()<std::int64_t>();
  const Tensor x = tensor_of(std::vector<bfloat16>(5, bfloat16(1.5F)));
  Pending(carrier->all_reduce(operation("all_reduce", 0), x, Reduction::sum)).wait();
  for (const bfloat16 value : values_of<bfloat16>(x)) EXPECT_EQ(static_cast<float>(value), 1.5F);
}

TEST_F(NcclCarrierTest, ManyPendingOperationsKeepTheirOrder) {
  const Tensor x = tensor_of(numbers(4096));
  std::vector<Tensor> copies;
  std::vector<Pending> pending;
  for (int i = 0; i < 20; ++i) {
    copies.push_back(Tensor::empty(stream, DType::f32, {4096}));
    pending.push_back(Pending(carrier->all_gather(
        operation("all_gather", 4 * 4096), {copies.back(), i ? copies[static_cast<std::size_t>(i) - 1] : x, {4096}})));
  }
  while (!pending.back().test()) {
  }
  for (Pending& one : pending) one.wait();
  EXPECT_EQ(values_of<float>(copies.back()), numbers(4096));
}

TEST_F(NcclCarrierTest, ALaneIsSplitOffAnIdleOne) {
  const auto lanes = std::make_shared<NcclTransport>(std::get<CudaStream>(stream), shared);
  const auto connected = [&](const std::shared_ptr<NcclLane>& lane) {
    wait_until([&] { return lane->try_connect(); }, *alone, operation("connecting", 0));
    return lane;
  };
  std::shared_ptr<NcclLane> parent = connected(lanes->lane(alone, {0}, connect_tag));
  EXPECT_TRUE(parent->idle());
  NcclCarrier child(lanes, alone, connected(lanes->lane(parent, alone, 3)));
  const std::shared_ptr<NcclLane> second = connected(lanes->lane(parent, alone, 0));
  EXPECT_NE(second->handle(), parent->handle());
  parent.reset();
  const Tensor x = tensor_of(numbers(1000));
  Pending(child.all_reduce(operation("all_reduce", 4000), x, Reduction::sum)).wait();
  EXPECT_EQ(values_of<float>(x), numbers(1000));
}

TEST_F(NcclCarrierTest, RejectsWorkAfterAnAbort) {
  const Tensor x = tensor_of(numbers(10));
  Pending(carrier->all_reduce(operation("all_reduce", 40), x, Reduction::sum)).wait();
  shared->progress.give_up();
  EXPECT_EQ(values_of<float>(x), numbers(10));
  EXPECT_THROW(Pending(carrier->all_reduce(operation("all_reduce", 40), x, Reduction::sum)).wait(), Error);
}

}  // namespace
}  // namespace lyceum
