// Tests the code of the CUDA attention kernels, compiled for the host and run on emulated thread blocks.
#include "kernels/cuda/attention_tilings.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/attention_problem.h"
#include "kernels/emulated_attention.h"
#include "support/emulated_hopper.h"

namespace lyceum {
namespace {

using test::AttentionProblem;
using test::EmulatedBlock;
using test::EmulatedHopper;
using test::expect_near;
using test::launch_emulated;
using test::make_attention;
using test::same_bits;
using Order = EmulatedBlock::Order;

/// The kernels for tensor cores of compute capability 8.0.
struct Ampere {
  static void forward(const cuda::ForwardTask<bfloat16>& task, Order order) {
    cuda::with_tilings(task.shape, [&]<class Tilings>() {
      using Tiling = typename Tilings::Forward;
      launch_emulated<Tiling>(cuda::query_order(task.shape, Tiling::rows, 2), order,
                              [&](const auto& m, const auto& b) { cuda::attention_forward<Tiling>(m, task, b); });
    });
  }
  static void backward(const cuda::BackwardTask<bfloat16>& task, Order order) {
    cuda::with_tilings(task.shape, [&]<class Tilings>() {
      using Dq = typename Tilings::Dq;
      using Dkv = typename Tilings::Dkv;
      launch_emulated<Dq>(cuda::query_order(task.shape, Dq::rows, 2), order,
                          [&](const auto& m, const auto& b) { cuda::attention_dq<Dq>(m, task, b); });
      launch_emulated<Dkv>(cuda::key_order(task.shape, Dkv::rows, 2), order,
                           [&](const auto& m, const auto& b) { cuda::attention_dkv<Dkv>(m, task, b); });
    });
  }
};

/// The memory in which thread blocks add up dq. It is NaN at first, because the first block must overwrite it.
template <class Tiling>
struct HopperBackward {
  std::vector<float> sums;
  std::vector<std::uint32_t> turns;
  std::uint32_t started = 0;
  cuda::HopperBackwardTask task;

  explicit HopperBackward(const cuda::BackwardTask<bfloat16>& of)
      : sums(sub_tiles(of) * cuda::DqSums::sub_tile_elements, NAN),
        turns(sub_tiles(of)),
        task{of,
             {sums.data(), turns.data(), &started,
              static_cast<int>(cuda::DqSums::tiles_of(of.shape, Tiling::queries))}} {}

 private:
  static std::size_t sub_tiles(const cuda::BackwardTask<bfloat16>& of) {
    return static_cast<std::size_t>(cuda::DqSums::sub_tiles(of.shape, Tiling::queries));
  }
};

struct Hopper {
  static void forward(const cuda::ForwardTask<bfloat16>& task, Order order) {
    cuda::with_hopper_forward_tiling(task.shape, [&]<class Tiling>() {
      launch_emulated<Tiling, EmulatedHopper>(
          cuda::query_order(task.shape, Tiling::rows, 2), order,
          [&](const auto& m, const auto& b) { cuda::attention_forward_hopper<Tiling>(m, task, b); });
    });
  }
  static void backward(const cuda::BackwardTask<bfloat16>& task, Order order) {
    cuda::with_hopper_backward_tiling(task.shape, [&]<class Tiling>() {
      HopperBackward<Tiling> memory(task);
      const cuda::BlockOrder blocks = cuda::later_keys_first(task.shape, Tiling::rows, 2);
      EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, order);
      for (std::int64_t i = 0; i < blocks.blocks(); ++i) {
        block.run<EmulatedHopper>(
            [&](const EmulatedHopper& m) { cuda::attention_backward_hopper<Tiling>(m, memory.task, blocks); });
      }
    });
  }
};

template <class Device>
void forward(AttentionProblem<bfloat16>& problem, Order order) {
  Device::forward(cuda::task_of(problem.forward()), order);
}

std::vector<float> delta_of(AttentionProblem<bfloat16>& problem) {
  const AttentionShape& shape = problem.shape;
  std::vector<float> delta(static_cast<std::size_t>(cuda::delta_size(shape)));
  for (std::int64_t i = 0; i < cuda::delta_size(shape); ++i) {
    const std::int64_t row = i / shape.heads, col = i % shape.heads * shape.value_cols();
    const bfloat16 *out = problem.out.view().row(row) + col, *d_out = problem.d_out.view().row(row) + col;
    for (std::int64_t d = 0; d < shape.value_cols(); ++d) {
      delta[static_cast<std::size_t>(i)] += static_cast<float>(out[d]) * static_cast<float>(d_out[d]);
    }
  }
  return delta;
}

/// Kernels without backward say so, since a check for the function would skip the tests of one with another signature.
template <class Device>
constexpr bool forward_only = requires {
  Device::forward_only;
};

template <class Device>
void backward(AttentionProblem<bfloat16>& problem, Order order) {
  std::vector<float> delta = delta_of(problem);
  Device::backward(cuda::task_of(problem.backward(), delta.data()), order);
}

/// Compares results with the reference in double, and expects the same bits for both orders of warps. If the gap
/// between rows is a multiple of 8, kernels copy 16 bytes at a time, otherwise single elements.
template <class Device = Ampere>
void check_tensor_cores(const AttentionShape& shape, std::int64_t gap,
                        const std::vector<std::int32_t>& documents = {}) {
  SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.query_len << " of " << shape.key_len << ", "
                                  << shape.heads << "/" << shape.kv_heads << " x " << shape.head_dim << "/"
                                  << shape.value_cols() << ", gap " << gap << ", window " << shape.window);
  const auto fast = make_attention<bfloat16>(shape, gap), again = make_attention<bfloat16>(shape, gap);
  fast->first_keys = again->first_keys = documents;
  for (const auto& [problem, order] : {std::pair{fast.get(), Order::ascending}, {again.get(), Order::descending}}) {
    forward<Device>(*problem, order);
    if constexpr (!forward_only<Device>) backward<Device>(*problem, order);
  }
  const CpuStream stream(1);
  const auto exact = make_attention<double, bfloat16>(shape);
  exact->first_keys = documents;
  const auto expect_alike = [&](auto member) {
    EXPECT_TRUE(((*fast).*member).gaps_untouched());
    EXPECT_TRUE(same_bits(((*fast).*member).view(), ((*again).*member).view()));
  };
  lyceum::run(stream, exact->forward());
  expect_near(fast->out.view(), exact->out.view(), 0.02);
  expect_near(fast->log_sum_exp.view(), exact->log_sum_exp.view(), 1e-4);
  expect_near(fast->largest.view(), exact->largest.view(), 1e-4);
  expect_alike(&AttentionProblem<bfloat16>::out);
  EXPECT_TRUE(fast->log_sum_exp.gaps_untouched());
  EXPECT_TRUE(fast->largest.gaps_untouched());
  if constexpr (forward_only<Device>) return;
  lyceum::run(stream, exact->backward());
  expect_near(fast->dq.view(), exact->dq.view(), 0.03);
  expect_near(fast->dk.view(), exact->dk.view(), 0.06);
  expect_near(fast->dv.view(), exact->dv.view(), 0.06);
  expect_alike(&AttentionProblem<bfloat16>::dq);
  expect_alike(&AttentionProblem<bfloat16>::dk);
  expect_alike(&AttentionProblem<bfloat16>::dv);
}

TEST(CudaAttention, AgreesWithTheReference) {
  check_tensor_cores({1, 1, 1, 1, 1, 1}, 0);
  check_tensor_cores({2, 7, 7, 3, 3, 5}, 3);
  check_tensor_cores({2, 33, 33, 4, 2, 16}, 8);
  check_tensor_cores({1, 1, 131, 4, 2, 16}, 8);
  check_tensor_cores({2, 5, 70, 2, 1, 8}, 0);
  check_tensor_cores({1, 140, 150, 2, 1, 32}, 8);
}

TEST(CudaAttention, AgreesWithTheReferenceForHeadsOf64) {
  check_tensor_cores({1, 65, 65, 2, 2, 33}, 3);
  check_tensor_cores({1, 131, 131, 2, 1, 64}, 8);
}

TEST(CudaAttention, AgreesWithTheReferenceForHeadsOf128) {
  check_tensor_cores({1, 65, 65, 1, 1, 80}, 8);
  check_tensor_cores({1, 130, 140, 2, 1, 128}, 8);
}

TEST(CudaAttention, AgreesWithTheReferenceForHeadsOf256) {
  check_tensor_cores({1, 30, 40, 1, 1, 130}, 3);
  check_tensor_cores({1, 34, 70, 2, 1, 256}, 8);
}

/// Heads of values narrower or wider than those of queries and keys: 192 and 128 columns have their own tiles.
TEST(CudaAttention, AgreesWithTheReferenceForValuesOfOtherWidths) {
  check_tensor_cores({2, 33, 33, 4, 2, 24, 0, 16}, 8);
  check_tensor_cores({1, 40, 70, 2, 1, 5, 0, 30}, 3);
  check_tensor_cores({1, 130, 140, 2, 1, 192, 0, 128}, 8);
  check_tensor_cores({1, 70, 90, 2, 2, 130, 0, 121}, 3);
  check_tensor_cores({1, 34, 40, 1, 1, 128, 0, 192}, 0);
  check_tensor_cores({1, 66, 140, 1, 1, 192, 45, 128}, 8);
  const AttentionShape documents{2, 140, 200, 2, 1, 192, 0, 128};
  check_tensor_cores(documents, 8, test::documents_in(documents));
}

/// The kernels for 192 and 128 columns on Hopper GPUs: forward with warpgroup products. Those for backward are
/// Ampere's.
struct HopperForward {
  static constexpr bool forward_only = true;
  static void forward(const cuda::ForwardTask<bfloat16>& task, Order order) { Hopper::forward(task, order); }
};

TEST(CudaAttention, HopperAgreesWithTheReferenceForValuesOfOtherWidths) {
  check_tensor_cores<Hopper>({1, 66, 200, 2, 1, 48, 0, 64}, 8);
  check_tensor_cores<Hopper>({1, 130, 260, 2, 1, 128, 0, 64}, 8);
  check_tensor_cores<HopperForward>({1, 66, 260, 2, 1, 192, 0, 128}, 0);
  check_tensor_cores<HopperForward>({1, 333, 333, 4, 2, 192, 0, 128}, 8);
  check_tensor_cores<HopperForward>({1, 65, 129, 1, 1, 130, 0, 121}, 3);
  const AttentionShape documents{1, 150, 280, 1, 1, 192, 33, 128};
  check_tensor_cores<HopperForward>(documents, 8, test::documents_in(documents));
}

TEST(CudaAttention, HopperAgreesWithTheReferenceForHeadsOf64) {
  check_tensor_cores<Hopper>({1, 3, 5, 1, 1, 33}, 3);
  check_tensor_cores<Hopper>({1, 66, 200, 2, 1, 64}, 8);
  check_tensor_cores<Hopper>({2, 300, 300, 2, 1, 64}, 8);
}

TEST(CudaAttention, HopperAgreesWithTheReferenceForHeadsOf128) {
  check_tensor_cores<Hopper>({1, 65, 129, 1, 1, 80}, 8);
  check_tensor_cores<Hopper>({1, 66, 260, 2, 1, 128}, 0);
  check_tensor_cores<Hopper>({1, 333, 333, 4, 2, 128}, 8);
}

/// Checks the order in which the blocks of a head add to a tile of queries: blocks with later keys first, in turns 0,
/// 1, …, and only the last turn is marked as the last.
void check_turns(const AttentionShape& shape, const std::vector<std::int32_t>& first_keys) {
  constexpr int keys = 128, queries = 64;
  auto problem = make_attention<bfloat16>(shape);
  problem->first_keys = first_keys;
  const auto task = cuda::task_of(problem->backward(), nullptr);
  const int key_tiles = static_cast<int>(shape.key_len + keys - 1) / keys;
  for (int sequence = 0; sequence < shape.sequences; ++sequence) {
    const cuda::CausalOrder order = cuda::causal_order(task, sequence);
    std::vector<int> turns(static_cast<std::size_t>(shape.query_len + queries - 1) / queries);
    std::vector<bool> done(turns.size());
    for (int key_tile = key_tiles - 1; key_tile >= 0; --key_tile) {
      const cuda::QueryWalk walk(task, {sequence, key_tile}, key_tile * keys, keys, queries);
      for (int step = 0; step < walk.steps(); ++step) {
        const auto tile = static_cast<std::size_t>(walk.tile(step));
        const cuda::DqTurn turn(order, walk.tile(step) * queries, queries, key_tile, keys);
        EXPECT_FALSE(done[tile]);
        EXPECT_EQ(turn.number, turns[tile]++);
        done[tile] = turn.last;
      }
    }
    EXPECT_TRUE(std::ranges::all_of(done, std::identity()));
  }
}

TEST(CudaAttention, HopperBlocksTakeTurns) {
  for (const std::int64_t key_len : {1, 64, 128, 129, 200, 640, 1000}) {
    for (const std::int64_t query_len : {std::int64_t{1}, key_len / 3 + 1, key_len - key_len / 7, key_len}) {
      const AttentionShape shape{3, query_len, key_len, 1, 1, 1};
      for (const std::int64_t window : {0, 1, 63, 128, 150, 500}) {
        const AttentionShape windowed{3, query_len, key_len, 1, 1, 1, window};
        check_turns(windowed, {});
        check_turns(windowed, test::documents_in(shape));
      }
    }
  }
}

TEST(CudaAttention, HopperAddsToQueriesInTheOrderOfBlocks) {
  const auto problem = make_attention<bfloat16>({1, 300, 300, 1, 1, 64});
  forward<Hopper>(*problem, Order::ascending);
  std::vector<float> delta = delta_of(*problem);
  using Tiling = cuda::HopperTilings<64>::Backward;
  HopperBackward<Tiling> memory(cuda::task_of(problem->backward(), delta.data()));
  const auto blocks = cuda::later_keys_first(problem->shape, Tiling::rows, 1);
  ASSERT_EQ(blocks.blocks(), 3);
  EmulatedBlock block(Tiling::threads, Tiling::shared_bytes, Order::ascending);
  const auto run = [&] {
    block.run<EmulatedHopper>(
        [&](const EmulatedHopper& m) { cuda::attention_backward_hopper<Tiling>(m, memory.task, blocks); });
  };
  EXPECT_EQ(blocks.at(0).tile, 2);
  memory.started = 1;
  EXPECT_THROW(run(), Error) << "its second tile of queries waits for block 0";
  std::ranges::fill(memory.turns, 0);
  memory.started = 0;
  for (std::uint32_t index = 0; index < 3; ++index) {
    EXPECT_EQ(memory.started, index);
    EXPECT_NO_THROW(run());
  }
}

template <class Device = Ampere>
void check_documents(const AttentionShape& shape, std::int64_t gap) {
  check_tensor_cores<Device>(shape, gap, test::documents_in(shape));
}

TEST(CudaAttention, KeepsDocumentsApart) {
  check_documents({2, 33, 33, 4, 2, 16}, 8);
  check_documents({2, 140, 290, 2, 1, 32}, 8);
  check_documents({1, 131, 131, 2, 1, 64}, 8);
  check_documents({1, 130, 140, 1, 1, 128}, 8);
  check_documents({1, 60, 140, 1, 1, 256}, 8);
}

TEST(CudaAttention, HopperKeepsDocumentsApart) {
  check_documents<Hopper>({2, 70, 300, 2, 1, 64}, 8);
  check_documents<Hopper>({1, 150, 280, 1, 1, 128}, 0);
}

TEST(CudaAttention, SeesOnlyItsWindow) {
  check_tensor_cores({2, 33, 33, 4, 2, 16, 5}, 8);
  check_tensor_cores({1, 140, 290, 2, 1, 32, 70}, 8);
  check_tensor_cores({1, 131, 131, 2, 1, 64, 64}, 8);
  check_tensor_cores({1, 130, 140, 1, 1, 128, 1}, 8);
  check_tensor_cores({1, 60, 140, 1, 1, 256, 45}, 8);
  const AttentionShape documents{2, 140, 200, 2, 1, 32, 33};
  check_tensor_cores(documents, 8, test::documents_in(documents));
}

TEST(CudaAttention, HopperSeesOnlyItsWindow) {
  check_tensor_cores<Hopper>({1, 300, 300, 2, 1, 64, 40}, 8);
  check_tensor_cores<Hopper>({1, 150, 400, 1, 1, 64, 130}, 8);
  check_tensor_cores<Hopper>({1, 260, 260, 2, 1, 128, 100}, 8);
  const AttentionShape documents{1, 150, 280, 1, 1, 128, 33};
  check_tensor_cores<Hopper>(documents, 0, test::documents_in(documents));
}

template <class Device>
void check_keys_without_queries() {
  const auto problem = make_attention<bfloat16>({1, 0, 5, 2, 1, 8});
  forward<Device>(*problem, Order::ascending);
  backward<Device>(*problem, Order::ascending);
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(static_cast<float>(problem->dk.view().row(r)[c]), 0.0f);
      EXPECT_EQ(static_cast<float>(problem->dv.view().row(r)[c]), 0.0f);
    }
  }
}

TEST(CudaAttention, KeysWithoutQueriesHaveNoInfluence) {
  check_keys_without_queries<Ampere>();
  check_keys_without_queries<Hopper>();
}

template <class Device>
void check_nan() {
  const auto problem = make_attention<bfloat16>({2, 10, 10, 1, 1, 8});
  problem->q.view().row(4)[2] = bfloat16(NAN);
  problem->k.view().row(10 + 6)[1] = bfloat16(NAN);
  forward<Device>(*problem, Order::ascending);
  for (std::int64_t r = 0; r < 20; ++r) {
    EXPECT_EQ(std::isnan(static_cast<float>(problem->out.view().row(r)[0])), r == 4 || r >= 16) << "row " << r;
  }
}

TEST(CudaAttention, NanReachesTheQueriesThatSeeIt) {
  check_nan<Ampere>();
  check_nan<Hopper>();
}

/// Checks the shared memory of a thread block, which is limited to 163 KB at compute capability 8.0 and 227 KB at 9.0.
template <class Tilings>
void check_shared_memory(int limit) {
  EXPECT_LE(Tilings::Forward::shared_bytes, limit);
  if constexpr (requires { typename Tilings::Backward; }) {
    EXPECT_LE(Tilings::Backward::shared_bytes, limit);
  }
  if constexpr (requires { typename Tilings::Dq; }) {
    EXPECT_LE(Tilings::Dq::shared_bytes, limit);
    EXPECT_LE(Tilings::Dkv::shared_bytes, limit);
  }
}

TEST(CudaAttention, TilesFitIntoSharedMemory) {
  check_shared_memory<cuda::AttentionTilings<32>>(163 << 10);
  check_shared_memory<cuda::AttentionTilings<64>>(163 << 10);
  check_shared_memory<cuda::AttentionTilings<128>>(163 << 10);
  check_shared_memory<cuda::AttentionTilings<192, 128>>(163 << 10);
  check_shared_memory<cuda::AttentionTilings<256>>(163 << 10);
  check_shared_memory<cuda::HopperTilings<64>>(227 << 10);
  check_shared_memory<cuda::HopperTilings<128>>(227 << 10);
  check_shared_memory<cuda::HopperTilings<192, 128>>(227 << 10);
}

}  // namespace
}  // namespace lyceum
