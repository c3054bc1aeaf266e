#include "core/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "core/host_memory.h"
#include "support/fake_system.h"

namespace lyceum {
namespace {

constexpr auto weights = MemoryKind::weights, activations = MemoryKind::activations;
std::size_t index_of(MemoryKind kind) { return static_cast<std::size_t>(kind); }

TEST(Allocator, CountsUseAndPeaksByKind) {
  const auto memory = Allocator::create();
  auto a = memory->allocate(1000, weights);
  auto b = memory->allocate(3000, activations);
  b.reset();
  auto c = memory->allocate(500, activations);
  const MemoryUse use = memory->use();
  EXPECT_EQ(use.in_use[index_of(weights)], 1000u);
  EXPECT_EQ(use.in_use[index_of(activations)], 500u);
  EXPECT_EQ(use.peak[index_of(activations)], 3000u);
  EXPECT_EQ(use.peak[index_of(MemoryKind::optimizer)], 0u);
  EXPECT_EQ(use.total, 1500u);
  EXPECT_EQ(use.total_peak, 4000u);
  EXPECT_GE(use.held, 4500u);  // the freed block is pooled
  EXPECT_EQ(use.held, use.held_peak);
  memory->trim();
  EXPECT_LT(memory->use().held, 3000u);
  EXPECT_GE(memory->use().held, 1500u);
  memory->reset_peaks();
  EXPECT_EQ(memory->use().peak[index_of(activations)], 500u);
  EXPECT_EQ(memory->use().total_peak, 1500u);
  EXPECT_EQ(memory->use().held_peak, memory->use().held);
  a.reset();
  c.reset();
  memory->trim();
  EXPECT_EQ(memory->use().total, 0u);
  EXPECT_EQ(memory->use().held, 0u);
}

TEST(Allocator, ReservedBlocksStayWithTheirReserve) {
  const auto memory = Allocator::create();
  memory->allocate(1000, activations).reset();  // pooled
  auto reserve = memory->start_reserving();
  EXPECT_THROW(memory->start_reserving(), Error);
  auto a = memory->allocate(1000, activations);
  auto b = memory->allocate(5000, activations);
  const std::byte *first = a.get(), *second = b.get();
  a.reset();
  EXPECT_EQ((a = memory->allocate(1000, activations)).get(), first) << "the blocks of the reserve are used again";
  b.reset();
  memory->stop_reserving();
  a.reset();
  for (const std::size_t bytes : {1000, 5000}) {
    const auto other = memory->allocate(bytes, weights);
    EXPECT_NE(other.get(), first);
    EXPECT_NE(other.get(), second);
  }
  const std::size_t held = memory->use().held;
  memory->trim();
  EXPECT_GT(held, memory->use().held);
  EXPECT_GE(memory->use().held, 6000u) << "reserved memory is not released";
  reserve.reset();
  EXPECT_EQ(memory->allocate(5000, weights).get(), second) << "without the reserve, its blocks are free for all uses";
  memory->trim();
  EXPECT_EQ(memory->use().held, 0u);
}

TEST(Allocator, WorkThatRunsAgainCountsForPeaksAgain) {
  const auto memory = Allocator::create();
  const auto kept = memory->allocate(100, weights);
  const auto reserve = memory->start_reserving();
  { const auto a = memory->allocate(1000, activations), b = memory->allocate(300, MemoryKind::buffers); }
  const auto c = memory->allocate(700, activations);
  memory->stop_reserving();
  memory->reset_peaks();
  const auto more = memory->allocate(50, weights);
  memory->count_replay(*reserve);
  const MemoryUse use = memory->use();
  EXPECT_EQ(use.peak[index_of(weights)], 150u);
  EXPECT_EQ(use.peak[index_of(activations)], 1700u);  // c is in use, and 1000 more were at the peak
  EXPECT_EQ(use.peak[index_of(MemoryKind::buffers)], 300u);
  EXPECT_EQ(use.total_peak, 850u + 1300u);
  EXPECT_EQ(use.total, 850u);
}

TEST(Allocator, BlocksAreAlignedApartAndWritable) {
  const auto memory = Allocator::create();
  std::vector<std::shared_ptr<std::byte>> blocks;
  std::vector<std::size_t> sizes{0, 1, 63, 64, 65, 1000, 100000, (1 << 20) - 1, 1 << 20, 3000001};
  for (const std::size_t size : sizes) {
    blocks.push_back(memory->allocate(size, weights));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 64, 0u);
    std::memset(blocks.back().get(), static_cast<int>(blocks.size()), size);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t at = 0; at < sizes[i]; ++at) ASSERT_EQ(blocks[i].get()[at], static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(memory->use().total, std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
}

TEST(Allocator, UsesFreedBlocksAgain) {
  const auto memory = Allocator::create();
  for (const std::size_t size : {100u, 5000u, 2000000u}) {
    std::byte* first = memory->allocate(size, weights).get();
    const std::size_t held = memory->use().held;
    EXPECT_EQ(memory->allocate(size, activations).get(), first);
    EXPECT_EQ(memory->allocate(size - size / 20, activations).get(), first) << "a slightly smaller request fits, too";
    EXPECT_EQ(memory->use().held, held);
  }
  const auto large = memory->allocate(1 << 16, weights);
  const std::size_t held = memory->use().held;
  const auto small = memory->allocate(1 << 15, weights);
  EXPECT_GT(memory->use().held, held) << "a large block is not split for a request of half its size";
}

TEST(Allocator, TheLimitIsNamedAndThePoolYieldsFirst) {
  const auto memory = Allocator::create(10 << 20);
  const auto kept = memory->allocate(4 << 20, weights);
  memory->allocate(5 << 20, activations).reset();
  EXPECT_NO_THROW(memory->allocate(6 << 20, activations));  // needs the pool to be trimmed
  try {
    memory->allocate(7 << 20, activations);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("7 MB more for activations"), testing::HasSubstr("weights 4 MB"),
                               testing::HasSubstr("limit of 10 MB"), testing::HasSubstr("batch.micro")));
    EXPECT_EQ(error.code(), ExitCode::failed);
  }
  EXPECT_EQ(memory->use().total, std::size_t{4 << 20});
  EXPECT_NO_THROW(memory->allocate(5 << 20, activations));
}

/// Sizes that fit no freed block, as those of a backward pass after a forward pass.
TEST(Allocator, ThePoolOfHostMemoryIsBoundedByThePeakInUse) {
  const auto memory = Allocator::create();
  constexpr std::size_t megabyte = std::size_t{1} << 20;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : {40 * megabyte, 10 * megabyte + 7, 25 * megabyte, 3 * megabyte, 60 * megabyte}) {
      const auto first = memory->allocate(size, activations), second = memory->allocate(size / 3, weights);
      std::memset(first.get(), round, size);  // a part may have been returned to the system
      EXPECT_EQ(first.get()[size - 1], static_cast<std::byte>(round));
    }
  }
  const MemoryUse use = memory->use();
  EXPECT_EQ(use.total_peak, 80 * megabyte);
  EXPECT_LE(use.held_peak, use.total_peak * 17 / 16 + 2 * 4096);
  EXPECT_GE(use.held, use.total_peak / 2) << "blocks are pooled";
}

/// Capacities are rounded up, but pages that nothing has written to take no memory.
TEST(Allocator, HoldsWhatWasHandedOut) {
  const auto memory = Allocator::create();
  constexpr std::size_t size = (std::size_t{33} << 20) + 1;
  auto block = memory->allocate(size, weights);
  EXPECT_EQ(memory->use().held, (std::size_t{33} << 20) + 4096);
  block.reset();
  block = memory->allocate((std::size_t{36} << 20), weights);  // the same block
  EXPECT_EQ(memory->use().held, std::size_t{36} << 20);
}

TEST(Allocator, RefusesMoreThanThereIsRoomFor) {
  const test::FakeSystem system("4:memory:/job\n");
  system.group_of_version_1("/job", 1000, 900, 0);
  const auto memory = Allocator::create_within(MemoryRoom(1, system.root()));
  memory->set_note("planned: 500 MB; ");
  constexpr std::size_t megabyte = 1000000;
  memory->allocate(5 * megabyte, activations).reset();
  const auto kept = memory->allocate(30 * megabyte, weights);
  system.resident(10000 + 35000);  // kB: both have been written to
  system.group_of_version_1("/job", 1000, 935, 0);
  try {
    memory->allocate(50 * megabyte, activations);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("out of memory: cannot allocate 47 MB more for activations .in use: "
                                       "weights 28 MB.*; the control group .*/job has 65 MB left of 1000 "
                                       "MB, and 67 MB are needed.*; planned: 500 MB; lower batch.micro"));
    EXPECT_EQ(error.code(), ExitCode::failed);
  }
  EXPECT_LT(memory->use().held, 31 * megabyte) << "the pool was returned first";
  system.group_of_version_1("/job", 1000, 930, 500);  // cached files give way
  EXPECT_NO_THROW(memory->allocate(50 * megabyte, activations));
}

TEST(Allocator, RefusesWhatNoMachineHas) {
  const auto memory = Allocator::create();
  EXPECT_THROW(memory->allocate(std::size_t{1} << 62, weights), Error);
  EXPECT_THROW(memory->allocate(~std::size_t{0}, weights), Error);
  EXPECT_EQ(memory->use().held, 0u);
}

TEST(Allocator, OutlivesItsBlocks) {
  std::shared_ptr<std::byte> block;
  {
    const auto memory = Allocator::create();
    block = memory->allocate(100, weights);
  }
  block.get()[99] = std::byte{1};
  block.reset();
}

TEST(Allocator, ManyThreads) {
  const auto memory = Allocator::create();
  const auto work = [&](std::size_t thread) {
    for (std::size_t round = 0; round < 300; ++round) {
      const std::size_t size = 64 * (1 + (round * 7 + thread) % 50);
      const auto block = memory->allocate(size, activations);
      std::memset(block.get(), static_cast<int>(thread), size);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(block.get()[i], static_cast<std::byte>(thread));
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->use().total, 0u);
  EXPECT_LE(memory->use().total_peak, 4u * 64 * 50);
  memory->trim();
  EXPECT_EQ(memory->use().held, 0u);
}

/// Memory of a device with room for two blocks of 1 MiB.
class BusyDevice : public HostMemory {
 public:
  explicit BusyDevice(std::function<void()> settle) : settle_(std::move(settle)) {}
  void settle() override { settle_(); }
  bool admits(std::size_t growth, std::size_t held) override { return growth + held <= 2 * mebibyte; }
  void give_back(std::byte* block, std::size_t bytes) override {
    ++returned;
    HostMemory::give_back(block, bytes);
  }
  bool discards(std::size_t /*capacity*/) const override { return false; }

  static constexpr std::size_t mebibyte = std::size_t{1} << 20;
  int returned = 0;

 private:
  std::function<void()> settle_;
};

TEST(Allocator, WaitsForTheDeviceBeforeBlocksReturnForLackOfMemory) {
  constexpr std::size_t mebibyte = BusyDevice::mebibyte;
  std::shared_ptr<std::byte> used;  // freed while the allocator waits
  int waits = 0, returned_before = 0;
  const BusyDevice* device = nullptr;
  auto source = std::make_unique<BusyDevice>([&] {
    ++waits;
    returned_before = device->returned;
    used.reset();
  });
  device = source.get();
  const auto memory = Allocator::create(std::move(source));
  used = memory->allocate(mebibyte, weights);
  memory->allocate(mebibyte, activations).reset();
  EXPECT_EQ(waits, 0);
  auto large = memory->allocate(2 * mebibyte, activations);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(returned_before, 0);
  EXPECT_EQ(device->returned, 2);
  EXPECT_THROW(memory->allocate(64, activations), Error);
  memory->trim();
  EXPECT_EQ(waits, 1) << "there is nothing to return";
  large.reset();
  memory->trim();
  EXPECT_EQ(waits, 2);
  memory->allocate(mebibyte, activations).reset();
  const auto reserve = memory->start_reserving();
  memory->trim();
  EXPECT_THROW(memory->allocate(2 * mebibyte, activations), Error);
  memory->stop_reserving();
  EXPECT_EQ(waits, 2) << "while work is recorded, nothing returns";
}

TEST(Allocator, KeepsItsBlocksIfTheDeviceFails) {
  constexpr std::size_t mebibyte = BusyDevice::mebibyte;
  bool fails = true;
  const auto memory = Allocator::create(std::make_unique<BusyDevice>([&] {
    if (fails) fail(ExitCode::failed, "another rank is gone");
  }));
  memory->allocate(mebibyte, activations).reset();
  EXPECT_THROW(memory->allocate(2 * mebibyte, activations), Error);
  EXPECT_EQ(memory->use().held, mebibyte);
  fails = false;
  EXPECT_NE(memory->allocate(2 * mebibyte, activations), nullptr);
}

TEST(Allocator, KindsHaveNames) {
  EXPECT_EQ(name_of(MemoryKind::weights), "weights");
  EXPECT_EQ(name_of(MemoryKind::buffers), "buffers");
}

TEST(Allocator, UntouchedMemoryIsAddressesOnly) {
  const auto memory = Allocator::create_untouched();
  constexpr std::size_t large = std::size_t{64} << 30;
  const auto block = memory->allocate_zeros(large, MemoryKind::weights);
  EXPECT_EQ(block.get()[large - 1], std::byte{0});
  EXPECT_EQ(memory->use().in_use[static_cast<std::size_t>(MemoryKind::weights)], large);
  for (int i = 0; i < 2; ++i) {  // a reused small block must be zero again
    const auto small = memory->allocate(1000, MemoryKind::activations);
    EXPECT_TRUE(std::all_of(small.get(), small.get() + 1000, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(small.get(), 1000, std::byte{255});
  }
}

/// A device of 1 MB whose blocks are only numbers; take() returns null if it is full.
class SmallDevice : public MemorySource {
 public:
  struct Log {
    std::size_t taken = 0, cleared = 0;
    int given_back = 0;
  };
  explicit SmallDevice(std::shared_ptr<Log> log) : log_(std::move(log)) {}
  std::byte* take(std::size_t bytes) override {
    if (log_->taken + bytes > std::size_t{1} << 20) return nullptr;
    log_->taken += bytes;
    return reinterpret_cast<std::byte*>(next_ += 1 << 24);
  }
  void give_back(std::byte*, std::size_t bytes) override {
    log_->taken -= bytes;
    ++log_->given_back;
  }
  void clear(std::byte*, std::size_t bytes) override { log_->cleared += bytes; }
  std::string_view name() const override { return "memory on GPU 5"; }

 private:
  std::shared_ptr<Log> log_;
  std::uintptr_t next_ = 0;
};

TEST(Allocator, TakesItsBlocksFromAnySource) {
  const auto log = std::make_shared<SmallDevice::Log>();
  auto memory = Allocator::create(std::make_unique<SmallDevice>(log));
  auto first = memory->allocate(500000, weights);
  std::byte* place = first.get();
  first.reset();
  EXPECT_EQ(log->given_back, 0);
  auto second = memory->allocate_zeros(490000, activations);  // reused, without writing through the host pointer
  EXPECT_EQ(second.get(), place);
  EXPECT_EQ(log->cleared, 490000u);
  EXPECT_EQ(memory->use().in_use[index_of(activations)], 490000u);
  auto third = memory->allocate(300000, weights);
  third.reset();
  third = memory->allocate(500000, weights);  // fits only after the block of 300,000 is returned
  EXPECT_EQ(log->given_back, 1);
  EXPECT_EQ(memory->use().peak[index_of(weights)], 500000u);
  EXPECT_EQ(memory->use().held, log->taken);
  try {
    memory->allocate(300000, weights);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("out of memory on GPU 5: cannot allocate 0 MB more for weights"));
  }
  second.reset();
  memory.reset();
  third.reset();  // the last owner of the allocator
  EXPECT_EQ(log->taken, 0u);
  EXPECT_EQ(log->given_back, 3);
}

}  // namespace
}  // namespace lyceum
