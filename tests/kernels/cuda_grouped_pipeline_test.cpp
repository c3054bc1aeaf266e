// The protocol of the wgmma kernels' barriers: who waits for which phase, played with every actor at its own pace.
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

/// PTX ISA, mbarrier: a phase ends with the last of its arrivals; who waits can tell only the parity of the phase that
/// ended last.
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

/// An actor: runs until it waits for a condition.
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

/// One block of a kernel: the loader and, for each multiplying warpgroup, its four warps, which run apart. With picked
/// rows four warps copy them, whose copies arrive when they like, though in order, and the first also loads.
template <class Tiling>
class Block {
 public:
  Block(std::vector<int> depths, bool picked)
      : depths_(std::move(depths)),
        copying_(picked ? 4 : 0),
        arrived_(4),
        full_(Tiling::stages, Barrier(1 + copying_)),
        empty_(Tiling::stages, Barrier(Tiling::arrivals)),
        order_(2, Barrier(4)),
        content_(Tiling::stages, -1) {}

  /// Lets a random actor go on until all are done; false when nobody is done for long: a deadlock.
  bool run(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Actor> actors{load()};
    for (int warp = 0; warp < copying_; ++warp) {
      actors.push_back(copy(warp));
      actors.push_back(memory(warp));
    }
    for (int group = 0; group < 2; ++group) {
      for (int warp = 0; warp < 4; ++warp) actors.push_back(multiply(group));
    }
    std::vector<double> pace;  // some actors are slow for a while
    for (std::size_t i = 0; i < actors.size(); ++i) pace.push_back(std::exponential_distribution<>(1)(random) + 0.01);
    std::discrete_distribution<std::size_t> choice(pace.begin(), pace.end());
    std::size_t done = 0;
    for (int turns = 0; done < actors.size() && turns < 400000; ++turns) {
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

  Actor load() {
    Turn<Tiling::stages> turn;
    for (std::size_t tile = 0; tile < depths_.size(); ++tile) {
      for (int step = 0; step < depths_[tile]; ++step, turn.next()) {
        const auto stage = static_cast<std::size_t>(turn.stage);
        while (!empty_[stage].ended(turn.parity ^ 1)) co_await std::suspend_always();
        content_[stage] = -1;  // being overwritten
        co_await std::suspend_always();
        content_[stage] = static_cast<int>(tile) * tile_span + step;
        full_[stage].arrive();
      }
    }
  }
  struct Copied {
    int tile, step;
    std::size_t stage;
  };
  int steps() const { return std::accumulate(depths_.begin(), depths_.end(), 0); }
  Actor copy(int warp) {
    Turn<Tiling::stages> turn;
    for (std::size_t tile = 0; tile < depths_.size(); ++tile) {
      for (int step = 0; step < depths_[tile]; ++step, turn.next()) {
        const auto stage = static_cast<std::size_t>(turn.stage);
        while (!empty_[stage].ended(turn.parity ^ 1)) co_await std::suspend_always();
        copies_[static_cast<std::size_t>(warp)].push_back({static_cast<int>(tile), step, stage});
        part_[static_cast<std::size_t>(warp)][stage] = -1;  // may be overwritten from now on
      }
    }
  }
  Actor memory(int warp) {
    const auto w = static_cast<std::size_t>(warp);
    while (arrived_[w] < steps()) {
      co_await std::suspend_always();
      if (copies_[w].empty()) continue;
      const Copied copied = copies_[w].front();
      copies_[w].pop_front();
      part_[w][copied.stage] = copied.tile * tile_span + copied.step;
      full_[copied.stage].arrive();
      ++arrived_[w];
    }
  }
  Actor multiply(int group) {
    Turn<Tiling::stages> turn;
    for (std::size_t tile = 0; tile < depths_.size(); ++tile) {
      const int index = static_cast<int>(tile), depth = depths_[tile];
      if (Tiling::ping_pong && index % 2 != group) {
        turn.skip(depth);
        continue;
      }
      while (Tiling::ping_pong && !order_[static_cast<std::size_t>(group)].ended(order_parity(group, index / 2))) {
        co_await std::suspend_always();
      }
      int last = -1;
      for (int step = 0; step < depth; ++step, turn.next()) {
        const auto stage = static_cast<std::size_t>(turn.stage);
        while (!full_[stage].ended(turn.parity)) co_await std::suspend_always();
        co_await std::suspend_always();
        check(stage, index, step);
        if (last >= 0) check(static_cast<std::size_t>(last), index, step - 1);  // may still be read
        if (last >= 0) empty_[static_cast<std::size_t>(last)].arrive();
        last = turn.stage;
      }
      if (Tiling::ping_pong) order_[static_cast<std::size_t>(1 - group)].arrive();
      co_await std::suspend_always();
      check(static_cast<std::size_t>(last), index, depth - 1);
      empty_[static_cast<std::size_t>(last)].arrive();
      co_await std::suspend_always();  // the results are written
    }
  }
  void check(std::size_t stage, int tile, int step) {
    ++seen_;
    wrong_ += content_[stage] != tile * tile_span + step;
    for (int warp = 0; warp < copying_; ++warp) {
      wrong_ += part_[static_cast<std::size_t>(warp)][stage] != tile * tile_span + step;
    }
  }

  std::vector<int> depths_;
  int copying_;
  std::vector<int> arrived_;
  std::array<std::deque<Copied>, 4> copies_;
  std::array<std::array<int, Tiling::stages>, 4> part_{};
  std::vector<Barrier> full_, empty_, order_;
  std::vector<int> content_;
  int wrong_ = 0, seen_ = 0;
};

template <class Tiling>
void check_protocol(bool picked) {
  const std::vector<std::vector<int>> cases{
      {1}, {14, 14, 14, 14, 14}, {1, 1, 1, 1, 1, 1, 1}, {20, 3, 1, 57, 2, 5, 10}, {}};
  for (const std::vector<int>& depths : cases) {
    for (unsigned seed = 0; seed < 40; ++seed) {
      Block<Tiling> block(depths, picked);
      ASSERT_TRUE(block.run(seed)) << "deadlock, seed " << seed;
      ASSERT_EQ(block.wrong(), 0) << "stages with other contents, seed " << seed;
      int steps = 0;
      for (const int depth : depths) steps += depth;
      ASSERT_EQ(block.seen(), 4 * (Tiling::ping_pong ? 1 : 2) * 2 * steps);
    }
  }
}

TEST(CudaWgmmaPipeline, CooperativeGroupsSeeEveryStage) {
  check_protocol<CooperativeTiling>(false);
  check_protocol<CooperativeTiling>(true);
}
TEST(CudaWgmmaPipeline, PingPongGroupsSeeTheirStages) {
  check_protocol<PingPongTiling>(false);
  check_protocol<PingPongTiling>(true);
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
