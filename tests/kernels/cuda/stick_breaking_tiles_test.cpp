// Tests the kernels of stick-breaking attention for tensor cores, compiled for the host and run on emulated thread
// blocks.
#include "kernels/cuda/stick_breaking_tiles.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/attention_problem.h"
#include "kernels/emulated_attention.h"

namespace lyceum {
namespace {

using test::AttentionProblem;
using test::expect_near;
using test::launch_emulated;
using test::make_attention;
using test::same_bits;
using Order = test::EmulatedBlock::Order;
using Problem = AttentionProblem<bfloat16>;

void forward(Problem& problem, Order order) {
  const cuda::StickTilesTask task{cuda::task_of(problem.stick_forward())};
  cuda::with_square_tilings(task.shape.head_dim, [&]<class Tilings>() {
    using Tiling = typename Tilings::Forward;
    launch_emulated<Tiling>(cuda::query_order(task.shape, Tiling::rows, 2), order,
                            [&](const auto& m, const auto& b) { cuda::stick_forward<Tiling>(m, task, b); });
  });
}

/// Computes the backward pass in sections of `section` keys. Scratch memory is NaN at first.
void backward(Problem& problem, Order order, int section) {
  const auto whole = cuda::task_of(problem.stick_backward());
  cuda::with_square_tilings(whole.shape.head_dim, [&]<class Tilings>() {
    using Dq = typename Tilings::Dq;
    using Dkv = cuda::StickDkvTiling<typename Tilings::Dkv>;
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    cuda::StickSectionTask task(whole, Dq::rows, section);
    const auto size = [](std::int64_t numbers) { return static_cast<std::size_t>(numbers); };
    std::vector<cuda::StickAt> at(size(task.spans()), {nan, nan});
    std::vector<double> behind(size(task.rows()), nan);
    std::vector<float> older(size(task.rows()), nan), dq_sums(size(task.sums(Dq::dim)), nan);
    task.at = at.data();
    task.behind = behind.data();
    task.older = older.data();
    task.dq_sums = dq_sums.data();
    for (; task.first < task.shape.key_len; task.first += task.section) {
      launch_emulated<Dq>(cuda::query_order(task.shape, Dq::rows, 2), order,
                          [&](const auto& m, const auto& b) { cuda::stick_dq<Dq>(m, task, b); });
      launch_emulated<Dkv>(task.key_order(Dkv::rows, 2), order,
                           [&](const auto& m, const auto& b) { cuda::stick_dkv<Dkv>(m, task, b); });
    }
  });
}

struct Tolerances {
  double out = 0.02, dq = 0.03, dkv = 0.06;
};

/// Compares results with the reference in double, and expects the same bits for both orders of warps and all lengths of
/// sections. If the gap between rows is a multiple of 8, kernels copy 16 bytes at a time, otherwise single elements.
/// `prepare` changes the inputs of a problem, of any type, before it is computed.
template <class Prepare>
void check(const AttentionShape& shape, std::int64_t gap, const Tolerances& tolerances, Prepare&& prepare) {
  SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.query_len << " of " << shape.key_len << ", "
                                  << shape.heads << "/" << shape.kv_heads << " x " << shape.head_dim << ", gap "
                                  << gap);
  const auto fast = make_attention<bfloat16>(shape, gap), again = make_attention<bfloat16>(shape, gap);
  prepare(*fast);
  forward(*fast, Order::ascending);
  backward(*fast, Order::ascending, 128);
  prepare(*again);
  forward(*again, Order::descending);
  backward(*again, Order::descending, 1024);
  const CpuStream stream(1);
  const auto exact = make_attention<double, bfloat16>(shape);
  prepare(*exact);
  lyceum::run(stream, exact->stick_forward());
  lyceum::run(stream, exact->stick_backward());
  expect_near(fast->out.view(), exact->out.view(), tolerances.out);
  expect_near(fast->dq.view(), exact->dq.view(), tolerances.dq);
  expect_near(fast->dk.view(), exact->dk.view(), tolerances.dkv);
  expect_near(fast->dv.view(), exact->dv.view(), tolerances.dkv);
  for (std::int64_t r = 0; r < exact->log_rest.view().rows; ++r) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const double wanted = exact->log_rest.view().row(r)[h];
      EXPECT_NEAR(fast->log_rest.view().row(r)[h], wanted, 1e-5 + 1e-6 * std::abs(wanted)) << "row " << r;
    }
  }
  for (auto member : {&Problem::out, &Problem::dq, &Problem::dk, &Problem::dv}) {
    EXPECT_TRUE(((*fast).*member).gaps_untouched());
    EXPECT_TRUE(same_bits(((*fast).*member).view(), ((*again).*member).view()));
  }
  EXPECT_TRUE(fast->log_rest.gaps_untouched());
  EXPECT_TRUE(same_bits(fast->log_rest.view(), again->log_rest.view()));
}
void check(const AttentionShape& shape, std::int64_t gap) {
  check(shape, gap, {}, [](auto&) {});
}

void check_documents(const AttentionShape& shape, std::int64_t gap) {
  check(shape, gap, {}, [&](auto& problem) { problem.first_keys = test::documents_in(shape); });
}

TEST(CudaSticks, KeepDocumentsApart) {
  check_documents({2, 33, 33, 4, 2, 16}, 8);
  check_documents({2, 70, 290, 1, 1, 32}, 8);
  check_documents({1, 131, 131, 2, 1, 64}, 8);
  check_documents({1, 60, 140, 1, 1, 128}, 8);
  check_documents({1, 34, 134, 1, 1, 256}, 8);
}

TEST(CudaSticks, AgreeWithTheReference) {
  check({1, 1, 1, 1, 1, 1}, 0);
  check({2, 7, 7, 1, 1, 5}, 3);
  check({1, 33, 33, 4, 2, 16}, 8);
  check({1, 1, 131, 1, 1, 16}, 8);
  check({1, 160, 200, 1, 1, 32}, 8);  // the first block of queries sees no key of the last spans
}

TEST(CudaSticks, AgreeWithTheReferenceForHeadsOf64) {
  check({2, 35, 65, 1, 1, 33}, 3);
  check({1, 66, 131, 2, 1, 64}, 8);
}

TEST(CudaSticks, AgreeWithTheReferenceForHeadsOf128) {
  check({1, 65, 65, 1, 1, 80}, 8);
  check({1, 130, 140, 1, 1, 128}, 8);
}

TEST(CudaSticks, AgreeWithTheReferenceForHeadsOf256) {
  check({1, 30, 40, 1, 1, 130}, 3);
  check({1, 34, 134, 1, 1, 256}, 8);
}

TEST(CudaSticks, GoThroughManySectionsOfKeys) { check({1, 20, 300, 2, 1, 24}, 8); }

/// Returns a `prepare` that sets q and k such that q·k is exactly score(key).
template <class Score>
auto with_scores(Score&& score) {
  return [score](auto& problem) {
    using T = std::remove_reference_t<decltype(problem.q.view().row(0)[0])>;
    problem.scale = 1;
    const auto set = [](auto& matrix, auto&& first) {
      for (std::int64_t r = 0; r < matrix.view().rows; ++r) {
        for (std::int64_t c = 0; c < matrix.view().cols; ++c) matrix.view().row(r)[c] = T(c == 0 ? first(r) : 0.0f);
      }
    };
    set(problem.q, [](std::int64_t) { return 1.0f; });
    set(problem.k, score);
  };
}

/// Keys that take the whole rest of the stick or none of it, and ordinary keys before and after many of both kinds.
TEST(CudaSticks, TakeScoresOfAnySize) {
  const auto score = [](std::int64_t key) {
    if (key % 50 < 40) return key % 3 == 0 ? -16384.0f : -8192.0f;
    if (key % 50 == 40) return 8192.0f;
    if (key % 3 == 0) return 0.0f;
    return key % 3 == 1 ? -2.5f : 30.0f;
  };
  check({1, 20, 190, 1, 1, 8}, 0, {}, with_scores(score));
  check({1, 3, 20, 1, 1, 8}, 0, {}, with_scores([](std::int64_t) { return 16384.0f; }));
  check({1, 3, 20, 1, 1, 8}, 0, {}, with_scores([](std::int64_t) { return -16384.0f; }));
}

/// Gradients are proportional to the scale, and so are their errors.
TEST(CudaSticks, TakeLargeScoresOfAllSizes) {
  for (const double scale : {12.0, 2500.0}) {
    check({1, 20, 70, 2, 1, 16}, 0, {0.05, 0.06 * scale, 0.06 * scale}, [&](auto& problem) { problem.scale = scale; });
  }
}

/// All scores are equal: low ones, with which the stick lasts for all keys, and high ones, with which it is used up.
TEST(CudaSticks, LongSticksKeepTheirEnds) {
  for (const float score : {-8.0f, 3.0f}) {
    SCOPED_TRACE(score);
    check({1, 3, 500, 1, 1, 2}, 0, {}, with_scores([=](std::int64_t) { return score; }));
  }
}

TEST(CudaSticks, KeysWithoutQueriesHaveNoInfluence) {
  const auto problem = make_attention<bfloat16>({1, 0, 5, 2, 1, 8});
  forward(*problem, Order::ascending);
  backward(*problem, Order::ascending, 128);
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(static_cast<float>(problem->dk.view().row(r)[c]), 0.0f);
      EXPECT_EQ(static_cast<float>(problem->dv.view().row(r)[c]), 0.0f);
    }
  }
}

TEST(CudaSticks, NanReachesTheQueriesThatSeeIt) {
  const auto problem = make_attention<bfloat16>({2, 10, 10, 1, 1, 8});
  problem->q.view().row(4)[2] = bfloat16(NAN);
  problem->k.view().row(10 + 6)[1] = bfloat16(NAN);
  forward(*problem, Order::ascending);
  backward(*problem, Order::ascending, 128);
  for (std::int64_t r = 0; r < 20; ++r) {
    EXPECT_EQ(std::isnan(static_cast<float>(problem->out.view().row(r)[0])), r == 4 || r >= 16) << "row " << r;
    EXPECT_EQ(std::isnan(static_cast<float>(problem->dq.view().row(r)[0])), r == 4 || r >= 16) << "row " << r;
  }
}

template <int dim>
void check_tiles() {
  using Dq = typename cuda::AttentionTilings<dim>::Dq;
  using Dkv = cuda::StickDkvTiling<typename cuda::AttentionTilings<dim>::Dkv>;
  EXPECT_LE(Dkv::shared_bytes, 163 << 10);  // limit of compute capability 8.0; other tilings are softmax attention's
  EXPECT_EQ(128 % Dq::keys, 0);
  EXPECT_EQ(128 % Dkv::rows, 0);
  EXPECT_EQ(Dq::rows % Dkv::queries, 0);
}

TEST(CudaSticks, TilesFitIntoSharedMemoryAndSections) {
  check_tiles<32>();
  check_tiles<64>();
  check_tiles<128>();
  check_tiles<256>();
}

}  // namespace
}  // namespace lyceum
