// Tests the stand-in for NCCL with several ranks: the number of communicators of a job, and that calls fail which are
// errors with NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/allocator.h"
#include "core/cuda_processors.h"
#include "host_stream.h"
#include "parallel/comm/cuda/nccl_carrier.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/pending_state.h"
#include "support/tested_groups.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// Returns the number of groups, other than the world, that this rank shares with other ranks.
int large_groups(const Mesh& mesh) {
  std::vector<const ProcessGroup*> groups{&mesh.data,   &mesh.tensor,        &mesh.pipeline,   &mesh.data_tensor,
                                          &mesh.expert, &mesh.expert_tensor, &mesh.expert_data};
  if (mesh.expert_copies) groups.push_back(&*mesh.expert_copies);
  if (mesh.expert_hosts) groups.insert(groups.end(), {&mesh.expert_hosts->across, &mesh.expert_hosts->within});
  return static_cast<int>(std::ranges::count_if(groups, [](const auto* group) { return group->size() > 1; }));
}

class HostNccl : public testing::Test {
 protected:
  HostNccl() { shared->timeout = patience; }

  /// Returns a communicator of all ranks of the job. Collective.
  std::shared_ptr<Communicator> communicator(const char* name) const {
    MPI_Comm handle = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &handle);
    return std::make_shared<Communicator>(handle, Communicator::Identity{name, 78}, shared);
  }
  std::shared_ptr<NcclLane> world_lane(const std::shared_ptr<Communicator>& group) const {
    return world_lane(group, *transport);
  }
  std::shared_ptr<NcclLane> world_lane(const std::shared_ptr<Communicator>& group, NcclTransport& by) const {
    std::vector<int> ranks(static_cast<std::size_t>(group->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    auto lane = by.lane(group, std::move(ranks), connect_tag);
    wait_until([&] { return lane->try_connect(); }, *group, connecting);
    return lane;
  }
  static Operation operation(const char* name, int peer = -1) {
    return {.name = name, .bytes = 32, .size = 32, .where = std::source_location::current(), .peer = peer};
  }

  const ProcessGroup world = test_world();
  const int rank = world.rank(), size = world.size();
  const CudaStream stream = std::get<CudaStream>(tested_stream());
  const std::shared_ptr<SharedState> shared = std::make_shared<SharedState>();
  const std::shared_ptr<NcclTransport> transport = std::make_shared<NcclTransport>(stream, shared);
  const Operation connecting{"connecting", 0, 0, std::source_location::current()};
};

TEST_F(HostNccl, TheGroupsOfAMeshTakeOneIdTogether) {
  if (size < 2 || tested_transport() != Transport::nccl) GTEST_SKIP() << "needs NCCL with two ranks";
  const int half = size / 2;
  const std::vector<MeshShape> shapes = {{.tensor = 2, .expert = half},
                                         {.pipeline = 2, .expert = half, .expert_hosts = half > 1 ? 2 : 1},
                                         {.pipeline = size >= 4 ? 2 : 1, .tensor = 2, .expert_tensor = 2}};
  for (const MeshShape& shape : shapes) {
    const host_nccl::Made before = host_nccl::made();
    const Mesh mesh = Mesh::create(tested(test_world()), shape);
    const host_nccl::Made after = host_nccl::made();
    EXPECT_GE(large_groups(mesh), 1);
    EXPECT_EQ(after.by_id - before.by_id, 1) << shape.text(size);
    EXPECT_EQ(after.by_split - before.by_split, large_groups(mesh)) << shape.text(size);
  }
}

TEST_F(HostNccl, ASplitThatOneRankStaysAwayFromCanBeAborted) {
  const auto group = communicator("world"), child = communicator("child");
  const auto parent = world_lane(group);
  if (size > 1 && rank != size - 1) {
    const auto lane = transport->lane(parent, child, 0);
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < 0.2) ASSERT_FALSE(lane->try_connect());
    EXPECT_EQ(lane->handle(), nullptr);
    shared->progress.give_up();
    EXPECT_EQ(lane->handle(), nullptr);
    EXPECT_EQ(parent->handle(), nullptr);
    EXPECT_EQ(values_of<float>(tensor_of(std::vector<float>(9, 3.0F))), std::vector<float>(9, 3.0F)) << "works on";
  }
  world.barrier();
  shared->progress.give_up();  // aborts the lanes; their destructors would wait for the split that was not completed
}

TEST_F(HostNccl, ARankThatIsLostInASplitIsReportedInTime) {
  const auto group = communicator("world"), child = communicator("child");
  shared->timeout = short_time();
  NcclCarrier carrier(transport, group, std::source_location::current());
  if (size > 1 && rank != size - 1) {
    try {
      carrier.split(child, 0, std::source_location::current());
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("split of 0 B on group world (rank " + std::to_string(rank)));
      EXPECT_THAT(error.what(), testing::HasSubstr("run.timeout_seconds"));
    }
    EXPECT_TRUE(group->broken());
    EXPECT_TRUE(child->broken());
    EXPECT_THROW(carrier.split(child, 0, std::source_location::current()), Error);
  } else if (size > 1) {  // this rank takes part until the call of NCCL, then stays away
    int largest = size;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, &largest, 1, MPI_INT, MPI_MAX, group->handle(), &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  world.barrier();
  shared->progress.give_up();
}

TEST_F(HostNccl, ASplitIsRejectedWhileOperationsArePending) {
  const auto group = communicator("world"), child = communicator("child");
  const auto parent = world_lane(group);
  const Tensor values = tensor_of(std::vector<float>(8, 1.0F));
  stream.synchronise();  // because the lane does not wait for the stream
  EXPECT_EQ(ncclAllReduce(values.raw(), values.raw(), 8, ncclFloat32, ncclSum, parent->handle(), parent->stream()),
            ncclInProgress);
  EXPECT_THROW(transport->lane(parent, child, 0), Error);
  wait_until([&] { return parent->enqueued(); }, *group, connecting);
  check(cudaStreamSynchronize(parent->stream()), "cudaStreamSynchronize");
  const auto lane = transport->lane(parent, child, 0);
  wait_until([&] { return lane->try_connect(); }, *group, connecting);
  EXPECT_EQ(values_of<float>(values), std::vector<float>(8, static_cast<float>(size)));
}

/// Two lanes of the same ranks. The stream of the first lane executes nothing until open() is called.
class OrderOfLanes {
 public:
  OrderOfLanes(std::shared_ptr<NcclTransport> transport, const std::shared_ptr<Communicator>& one,
               const std::shared_ptr<NcclLane>& lane_of_one, const std::shared_ptr<Communicator>& two,
               const std::shared_ptr<NcclLane>& lane_of_two)
      : first(transport, one, lane_of_one), second(transport, two, lane_of_two) {
    host_cuda::enqueue(lane_of_one->stream(), [open = open_] { return *open; });
  }
  void open() { *open_ = true; }

  NcclCarrier first, second;

 private:
  std::shared_ptr<bool> open_ = std::make_shared<bool>(false);
};

TEST_F(HostNccl, OnlySerialOperationsWaitForThoseOfOtherLanes) {
  for (const NcclOrder order : {NcclOrder::concurrent, NcclOrder::serial}) {
    const auto ordered = std::make_shared<NcclTransport>(stream, shared, NcclOptions{.order = order});
    const auto one = communicator("one"), two = communicator("two");
    const auto lane_of_two = world_lane(two, *ordered);
    OrderOfLanes lanes(ordered, one, world_lane(one, *ordered), two, lane_of_two);
    const Tensor x = tensor_of(std::vector<float>(8, 1.0F)), y = tensor_of(std::vector<float>(8, 2.0F));
    Pending before(lanes.first.all_reduce(operation("all_reduce"), x, Reduction::sum));
    Pending after(lanes.second.all_reduce(operation("all_reduce"), y, Reduction::sum));
    if (order == NcclOrder::concurrent) {
      while (!after.test()) {
      }
    } else {
      const auto in_its_stream = [&] {
        shared->progress.poll();
        return lane_of_two->oldest_flight() != nullptr;
      };
      wait_until(in_its_stream, *two, connecting);
      EXPECT_FALSE(after.test());  // would send its values to the other ranks if it did not wait
      world.barrier();             // then all would have been sent
      for (int poll = 0; poll < 1000; ++poll) ASSERT_FALSE(after.test());
    }
    EXPECT_FALSE(before.test());
    lanes.open();
    after.wait();
    before.wait();
    EXPECT_EQ(values_of<float>(x), std::vector<float>(8, static_cast<float>(size)));
    EXPECT_EQ(values_of<float>(y), std::vector<float>(8, static_cast<float>(2 * size)));
  }
}

TEST_F(HostNccl, OperationsBehindOneThatFailsThrowItsError) {
  const auto serial = std::make_shared<NcclTransport>(stream, shared, NcclOptions{.order = NcclOrder::serial});
  const auto one = communicator("one"), two = communicator("two"), child = communicator("child");
  const auto lane_of_two = world_lane(two, *serial);
  OrderOfLanes lanes(serial, one, world_lane(one, *serial), two, lane_of_two);
  lanes.open();
  const auto split = serial->lane(lane_of_two, child, 0);  // until it ends, calls on its parent fail
  const auto start = [&](NcclCarrier& carrier) {
    return Pending(carrier.all_reduce(operation("all_reduce"), tensor_of(std::vector<float>(8)), Reduction::sum));
  };
  Pending first = start(lanes.first), failing = start(lanes.second), behind = start(lanes.first);
  for (Pending* pending : {&behind, &failing}) {
    try {
      pending->wait();
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("ncclAllReduce failed on GPU"));
      EXPECT_THAT(error.what(), testing::HasSubstr("of group two: invalid usage"));
    }
  }
  first.wait();
  world.barrier();
}

TEST_F(HostNccl, MessagesDoNotWaitForSerialOperations) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const auto ordered = std::make_shared<NcclTransport>(stream, shared, NcclOptions{.order = NcclOrder::serial});
  const auto one = communicator("one"), two = communicator("two");
  OrderOfLanes lanes(ordered, one, world_lane(one, *ordered), two, world_lane(two, *ordered));
  const Tensor x = tensor_of(std::vector<float>(8, 1.0F)), y = tensor_of(std::vector<float>(8, 2.0F)),
               in = tensor_of(std::vector<float>(8)), out = tensor_of(std::vector<float>(8, static_cast<float>(rank)));
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  Pending receive(lanes.second.receive(operation("receive", last), in));
  Pending before(lanes.first.all_reduce(operation("all_reduce"), x, Reduction::sum));
  Pending after(lanes.second.all_reduce(operation("all_reduce"), y, Reduction::sum));
  Pending send(lanes.second.send(operation("send", next), out));
  while (!receive.test() || !send.test()) {
  }
  EXPECT_FALSE(after.test());
  lanes.open();
  before.wait();
  after.wait();
  receive.wait();
  send.wait();
  EXPECT_EQ(values_of<float>(in), std::vector<float>(8, static_cast<float>(last)));
  EXPECT_EQ(values_of<float>(y), std::vector<float>(8, static_cast<float>(2 * size)));
}

/// Memory of a GPU for at most two blocks of 1 MiB, one of which is in use: the next larger one makes the allocator
/// return the other to the driver, which waits for all work of the GPU.
class FullMemory {
 public:
  explicit FullMemory(const CudaStream& stream) : memory_(stream.memory()) {
    used_ = memory_.allocate(mebibyte, MemoryKind::buffers);
    memory_.allocate(mebibyte - mebibyte / 4, MemoryKind::buffers).reset();
  }
  void demand() { memory_.allocate(mebibyte, MemoryKind::buffers).reset(); }
  static constexpr std::size_t mebibyte = std::size_t{1} << 20, limit = 2 * mebibyte + mebibyte / 8;

 private:
  Allocator& memory_;
  std::shared_ptr<std::byte> used_;
};

TEST_F(HostNccl, MemoryReturnsToTheDriverOnceOtherRanksHaveJoined) {
  const CudaStream full(stream.device(), FullMemory::limit);
  const ProcessGroup group = test_world().on(full, Transport::nccl, tested_nccl());
  const Tensor x = tensor_of(full, {8}, std::vector<float>(8, 1.0F));
  group.all_reduce_async(x).wait();  // connects
  FullMemory memory(full);
  const Tensor word = Tensor::zeros(CpuStream(1), DType::f32, {1});
  if (rank > 0) world.receive_async(word, 0).wait();
  const LedgerPage& page = world.ledger().page();
  const std::int64_t number = page.noted;
  group.all_reduce_async(x).wait();  // on the GPU
  if (rank == 0) {
    for (int other = 1; other < size; ++other) world.send_async(word, other).wait();
    memory.demand();
    if (size > 1) EXPECT_GT(page.entry(number)->finished, 0) << "it ended before memory was freed";
  }
  EXPECT_EQ(values_of<float>(full, x), std::vector<float>(8, static_cast<float>(size * size)));
  world.barrier();
}

TEST_F(HostNccl, AReceiveAheadThatWaitsForItsFirstSendDoesNotHoldMemory) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const CudaStream full(stream.device(), FullMemory::limit);
  const ProcessGroup group = test_world().on(full, Transport::nccl, tested_nccl());
  const Tensor x = tensor_of(full, {8}, std::vector<float>(8, rank == 0 ? 1.0F : 0.0F));
  FullMemory memory(full);
  const Tensor word = Tensor::zeros(CpuStream(1), DType::f32, {1});
  if (rank == 0) {
    world.receive_async(word, 1).wait();
    group.send_async(x, 1).wait();
  } else if (rank == 1) {
    Pending pending = group.receive_async(x, 0);
    memory.demand();
    world.send_async(word, 0).wait();
    pending.wait();
    EXPECT_EQ(values_of<float>(full, x), std::vector<float>(8, 1.0F));
  }
  full.synchronise();
  world.barrier();
}

TEST_F(HostNccl, ARankThatIsLostBeforeItsFirstOperationDoesNotHoldMemory) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const CudaStream full(stream.device(), FullMemory::limit);
  const ProcessGroup hasty = test_world().on(full, Transport::nccl, tested_nccl());
  const Tensor x = Tensor::zeros(full, DType::f32, {8});
  full.synchronise();
  FullMemory memory(full);
  world.barrier();
  hasty.set_timeout(short_time());
  if (rank == 0) {
    Pending pending = hasty.all_reduce_async(x);
    memory.demand();
    std::string message;
    try {
      pending.wait();
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_THAT(message, testing::HasSubstr("all_reduce of 32 B on group world (rank 0 of "));
    EXPECT_THAT(message, testing::HasSubstr("run.timeout_seconds"));
    memory.demand();
  }
  world.barrier();
}

TEST_F(HostNccl, ALostRankEndsTheWaitForMemory) {
  if (size < 2) GTEST_SKIP() << "needs two ranks";
  const CudaStream full(stream.device(), FullMemory::limit);
  const ProcessGroup hasty = test_world().on(full, Transport::nccl, tested_nccl());
  const Tensor x = Tensor::zeros(full, DType::f32, {8});
  hasty.all_reduce_async(x).wait();  // connects
  full.synchronise();
  FullMemory memory(full);
  world.barrier();
  hasty.set_timeout(short_time());
  std::string message;
  if (rank == 0) {
    hasty.all_reduce_async(x).wait();  // on the GPU
    try {
      memory.demand();
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_THAT(message, testing::HasSubstr("all_reduce of 32 B on group world (rank 0 of "));
    EXPECT_THAT(message, testing::HasSubstr(" waited "));
    EXPECT_THAT(message, testing::HasSubstr("run.timeout_seconds"));
    memory.demand();  // the operations were aborted
  }
  world.barrier();
}

TEST_F(HostNccl, EveryLaneHasTheChannelsOfItsTransport) {
  for (const int channels : {0, 3}) {
    const auto limited = std::make_shared<NcclTransport>(stream, shared, NcclOptions{.channels = channels});
    const auto group = communicator("world"), child = communicator("child");
    const auto parent = world_lane(group, *limited);
    const auto lane = limited->lane(parent, child, 0);
    wait_until([&] { return lane->try_connect(); }, *group, connecting);
    const int expected = channels > 0 ? channels : INT_MIN;
    EXPECT_EQ(host_nccl::configuration(parent->handle()).maxCTAs, expected);
    EXPECT_EQ(host_nccl::configuration(lane->handle()).maxCTAs, expected);
    EXPECT_EQ(host_nccl::configuration(lane->handle()).minCTAs, INT_MIN);
  }
}

TEST_F(HostNccl, PersistentKernelsLeaveMultiprocessorsForItsChannels) {
  const CudaStream free(stream.device()), limited(stream.device());
  {
    const ProcessGroup one = test_world().on(free, Transport::nccl, tested_nccl());
    const ProcessGroup two = test_world().on(limited, Transport::nccl, {.channels = 1});
    EXPECT_EQ(persistent_processors(free), free.processors());
    EXPECT_EQ(persistent_processors(limited), limited.processors() - (size > 1 ? 1 : 0));
  }
  EXPECT_EQ(persistent_processors(limited), limited.processors());
}

TEST_F(HostNccl, NothingIsShared) {
  const auto parent = world_lane(communicator("world"));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(parent->handle(), 0, rank, &child, &config), ncclInvalidArgument);
}

TEST_F(HostNccl, RanksWithoutAColourGetNoCommunicator) {
  const auto parent = world_lane(communicator("world"));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(parent->handle(), rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, -rank, &child, &config),
            ncclInProgress);
  wait_until([&] { return parent->enqueued(); }, parent->group(), connecting);
  EXPECT_EQ(child == nullptr, rank == 0);
  if (child) EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

}  // namespace
}  // namespace lyceum
