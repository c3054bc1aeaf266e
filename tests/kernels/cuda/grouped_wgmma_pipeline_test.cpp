// Tests the protocol of the barriers in the wgmma kernels by simulation: actors (warps and loaders) run at random
// speeds, and each wait must be for the right phase.
#include <gtest/gtest.h>

#include <array>
#include <coroutine>
#include <deque>
#include <exception>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/grouped_wgmma_layout.h"

namespace lyceum::grouped {
namespace {

/// An mbarrier of the PTX ISA: a phase ends with the last of its expected arrivals; a waiting actor sees only the
/// parity of the last phase that has ended.
struct Barrier {
  int expected = 1, pending = 1, phase = 0;

  explicit Barrier(int arrivals) : expected(arrivals), pending(arrivals) {}
  void arrive() {
    if (--pending == 0) {
      pending = expected;
      ++phase;
    }
  }
  bool ended(std::uint32_t parity) const { return ((phase - 1) & 1) == static_cast<int>(parity); }
};

/// A coroutine that suspends while it waits for a condition.
struct Actor {
  struct promise_type {
    Actor get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

/// Simulates the blocks of a cluster (one block for most tilings). Each block has a loader and, for each multiplying
/// warpgroup, four warps that run independently. Picked rows are copied by four warps, of which the first is also the
/// loader; copies of a warp arrive at random times, but in order. A loader loads a for its block and its part of b for
/// all blocks.
template <class Tiling>
class Cluster {
 public:
  Cluster(std::vector<int> depths, bool picked)
      : depths_(std::move(depths)), copying_(picked ? 4 : 0), blocks_(Tiling::cluster, Block(copying_)) {}

  /// Resumes random actors until all have finished. Returns false if no actor finishes for a long time (a deadlock).
  bool run(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Actor> actors;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      actors.push_back(load(b));
      for (int warp = 0; warp < copying_; ++warp) {
        actors.push_back(copy(blocks_[b], warp));
        actors.push_back(memory(blocks_[b], warp));
      }
      for (int group = 0; group < 2; ++group) {
        for (int warp = 0; warp < 4; ++warp) actors.push_back(multiply(blocks_[b], group));
      }
    }
    std::vector<double> pace;  // relative speeds of the actors
    for (std::size_t i = 0; i < actors.size(); ++i) pace.push_back(std::exponential_distribution<>(1)(random) + 0.01);
    std::discrete_distribution<std::size_t> choice(pace.begin(), pace.end());
    std::size_t done = 0;
    for (int turns = 0; done < actors.size() && turns < 400000 * Tiling::cluster; ++turns) {
      auto& handle = actors[choice(random)].handle;
      if (handle.done()) continue;
      handle.resume();
      done += handle.done();
    }
    for (Actor& actor : actors) actor.handle.destroy();
    return done == actors.size();
  }
  int wrong() const { return wrong_; }
  int seen() const { return seen_; }

 private:
  static constexpr int tile_span = 1000;
  using Stages = std::array<int, Tiling::stages>;

  struct Copied {
    int tile, step;
    std::size_t stage;
  };
  struct Block {
    /// A full barrier also counts bytes; here, the bytes of each loader are one more arrival.
    explicit Block(int copying)
        : arrived(4),
          full(Tiling::stages, Barrier(1 + Tiling::cluster + copying)),
          empty(Tiling::stages, Barrier(Tiling::arrivals)),
          order(2, Barrier(4)) {
      for (Stages& part : loaded) part.fill(-1);
    }
    std::vector<int> arrived;
    std::array<std::deque<Copied>, 4> copies;
    std::array<Stages, 4> copied{};              // one per copying warp
    std::array<Stages, Tiling::cluster> loaded;  // one per loader
    std::vector<Barrier> full, empty, order;
  };

  Actor load(std::size_t loader) {
    Turn<Tiling::stages> turn;
    for (std::size_t tile = 0; tile < depths_.size(); ++tile) {
      for (int step = 0; step < depths_[tile]; ++step, turn.next()) {
        const auto stage = static_cast<std::size_t>(turn.stage);
        while (!blocks_[loader].empty[stage].ended(turn.parity ^ 1)) co_await std::suspend_always();
        for (Block& block : blocks_) block.loaded[loader][stage] = -1;  // the load has begun: contents are undefined
        co_await std::suspend_always();
        blocks_[loader].full[stage].arrive();
        for (Block& block : blocks_) {
          co_await std::suspend_always();
          block.loaded[loader][stage] = static_cast<int>(tile) * tile_span + step;
          block.full[stage].arrive();
        }
      }
    }
  }
  int steps() const { return std::accumulate(depths_.begin(), depths_.end(), 0); }
  Actor copy(Block& block, int warp) {
    const auto w = static_cast<std::size_t>(warp);
    Turn<Tiling::stages> turn;
    for (std::size_t tile = 0; tile < depths_.size(); ++tile) {
      for (int step = 0; step < depths_[tile]; ++step, turn.next()) {
        const auto stage = static_cast<std::size_t>(turn.stage);
        while (!block.empty[stage].ended(turn.parity ^ 1)) co_await std::suspend_always();
        block.copies[w].push_back({static_cast<int>(tile), step, stage});
        block.copied[w][stage] = -1;  // the copy has begun: contents are undefined
      }
    }
  }
  Actor memory(Block& block, int warp) {
    const auto w = static_cast<std::size_t>(warp);
    while (block.arrived[w] < steps()) {
      co_await std::suspend_always();
      if (block.copies[w].empty()) continue;
      const Copied copied = block.copies[w].front();
      block.copies[w].pop_front();
      block.copied[w][copied.stage] = copied.tile * tile_span + copied.step;
      block.full[copied.stage].arrive();
      ++block.arrived[w];
    }
  }
  Actor multiply(Block& block, int group) {
    Turn<Tiling::stages> turn;
    for (std::size_t tile = 0; tile < depths_.size(); ++tile) {
      const int index = static_cast<int>(tile), depth = depths_[tile];
      if (Tiling::ping_pong && index % 2 != group) {
        turn.skip(depth);
        continue;
      }
      while (Tiling::ping_pong && !block.order[static_cast<std::size_t>(group)].ended(order_parity(group, index / 2))) {
        co_await std::suspend_always();
      }
      int last = -1;
      for (int step = 0; step < depth; ++step, turn.next()) {
        const auto stage = static_cast<std::size_t>(turn.stage);
        while (!block.full[stage].ended(turn.parity)) co_await std::suspend_always();
        co_await std::suspend_always();
        check(block, stage, index, step);
        if (last >= 0) check(block, static_cast<std::size_t>(last), index, step - 1);  // still read by this product
        if (last >= 0) give_back(static_cast<std::size_t>(last));
        last = turn.stage;
      }
      if (Tiling::ping_pong) block.order[static_cast<std::size_t>(1 - group)].arrive();
      co_await std::suspend_always();
      check(block, static_cast<std::size_t>(last), index, depth - 1);
      give_back(static_cast<std::size_t>(last));
      co_await std::suspend_always();  // writes the results
    }
  }
  void give_back(std::size_t stage) {
    for (Block& block : blocks_) block.empty[stage].arrive();
  }
  void check(const Block& block, std::size_t stage, int tile, int step) {
    ++seen_;
    for (const Stages& part : block.loaded) wrong_ += part[stage] != tile * tile_span + step;
    for (int warp = 0; warp < copying_; ++warp) {
      wrong_ += block.copied[static_cast<std::size_t>(warp)][stage] != tile * tile_span + step;
    }
  }

  std::vector<int> depths_;
  int copying_;
  std::vector<Block> blocks_;
  int wrong_ = 0, seen_ = 0;
};

template <class Tiling>
void check_protocol(bool picked) {
  const std::vector<std::vector<int>> cases{
      {1}, {14, 14, 14, 14, 14}, {1, 1, 1, 1, 1, 1, 1}, {20, 3, 1, 57, 2, 5, 10}, {}};
  for (const std::vector<int>& depths : cases) {
    for (unsigned seed = 0; seed < 40; ++seed) {
      Cluster<Tiling> cluster(depths, picked);
      ASSERT_TRUE(cluster.run(seed)) << "deadlock, seed " << seed;
      ASSERT_EQ(cluster.wrong(), 0) << "stages with other contents, seed " << seed;
      int steps = 0;
      for (const int depth : depths) steps += depth;
      ASSERT_EQ(cluster.seen(), Tiling::cluster * 4 * (Tiling::ping_pong ? 1 : 2) * 2 * steps);
    }
  }
}

TEST(CudaWgmmaPipeline, CooperativeGroupsSeeEveryStage) {
  check_protocol<CooperativeTiling>(false);
  check_protocol<CooperativeTiling>(true);
}
TEST(CudaWgmmaPipeline, GroupsOfAClusterSeeEveryStage) {
  check_protocol<ClusteredTiling>(false);
  check_protocol<ClusteredTiling>(true);
}
TEST(CudaWgmmaPipeline, PingPongGroupsSeeTheirStages) {
  check_protocol<PingPongTiling>(false);
  check_protocol<PingPongTiling>(true);
  check_protocol<ClusteredPingPongTiling>(false);
  check_protocol<ClusteredPingPongTiling>(true);
}

TEST(CudaWgmmaPipeline, SkippingIsManySteps) {
  for (int count = 0; count < 30; ++count) {
    Turn<5> one, many;
    one.skip(3);
    many.skip(3);
    for (int i = 0; i < count; ++i) one.next();
    many.skip(count);
    EXPECT_EQ(one.stage, many.stage);
    EXPECT_EQ(one.parity, many.parity);
  }
}

}  // namespace
}  // namespace lyceum::grouped
