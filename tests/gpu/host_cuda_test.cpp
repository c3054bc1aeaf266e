// Tests the stand-in for CUDA on the host: code that is wrong on a GPU must fail here, too.
#include <gtest/gtest.h>

#include <thread>

#include "core/allocator.h"
#include "core/cuda_stream.h"
#include "host_stream.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum {
namespace {

__global__ void count_up(int* values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

/// Every thread reads the values that its neighbours wrote, after a barrier if `synchronise`, else with a race.
__global__ void add_neighbours(int* sums, int first, bool synchronise) {
  __shared__ int values[64];
  values[threadIdx.x] = first + static_cast<int>(threadIdx.x);
  if (synchronise) __syncthreads();
  sums[threadIdx.x] = values[(threadIdx.x + 1) % 64] + values[(threadIdx.x + 63) % 64];
}

__global__ void some_lanes_stay_away() {
  if (threadIdx.x != 5) __syncwarp();
}

class HostCuda : public testing::Test {
 protected:
  int* allocate(std::size_t count) {
    memory_ = stream_.memory().allocate_zeros(count * sizeof(int), MemoryKind::buffers);
    return reinterpret_cast<int*>(memory_.get());
  }
  int read(const int* device) const {
    int value = 0;
    check(cudaMemcpyAsync(&value, device, sizeof value, cudaMemcpyDeviceToHost, stream_.handle()), "copy");
    stream_.synchronise();
    return value;
  }

  CudaStream stream_;
  std::shared_ptr<std::byte> memory_;
};

TEST_F(HostCuda, TheHostCannotTouchDeviceMemory) {
  int* const values = allocate(64);
  start(stream_, "count_up", count_up, 1, 64, values);
  EXPECT_EQ(read(values + 63), 1);
  EXPECT_DEATH(values[63] = 2, "host code accesses device memory");
}

TEST_F(HostCuda, EveryThreadOfTheHostHasItsTurn) {
  int* const values = allocate(64);
  std::thread([&] { start(stream_, "count_up", count_up, 1, 64, values); }).join();
  EXPECT_EQ(read(values), 1);
  EXPECT_DEATH(values[0] = 2, "host code accesses device memory");
}

__global__ void never_launched_before() {}

TEST_F(HostCuda, NoKernelIsLoadedWhileTheDeviceWaitsForOtherRanks) {
  if (host_cuda::loads_eagerly()) GTEST_SKIP() << "all kernels are loaded at the start";
  int* const values = allocate(64);
  start(stream_, "count_up", count_up, 1, 64, values);
  host_cuda::await_others(1);
  EXPECT_NO_THROW(start(stream_, "count_up", count_up, 1, 64, values));
  EXPECT_THROW(start(stream_, "never_launched_before", never_launched_before, 1, 32), Error);
  host_cuda::await_others(-1);
  EXPECT_NO_THROW(start(stream_, "never_launched_before", never_launched_before, 1, 32));
  EXPECT_EQ(read(values), 2);
}

TEST_F(HostCuda, AMissingBarrierShows) {
  int* const sums = allocate(64);
  start(stream_, "add_neighbours", add_neighbours, 1, 64, sums, 100, true);
  EXPECT_EQ(read(sums + 10), 220);
  start(stream_, "add_neighbours", add_neighbours, 1, 64, sums, 500, false);
  EXPECT_NE(read(sums + 10), 1020);
}

TEST_F(HostCuda, LanesThatStayAwayEndTheProgram) {
  EXPECT_DEATH(start(stream_, "some_lanes_stay_away", some_lanes_stay_away, 1, 32),
               "threads wait at a barrier that others do not reach");
}

}  // namespace
}  // namespace lyceum
