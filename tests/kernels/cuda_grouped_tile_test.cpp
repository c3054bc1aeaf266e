// The tiles of the CUDA kernels and their plan, played on the host.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda_host_block.h"
#include "kernels/grouped_bank.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::Product;

/// What the plan's kernel computes.
struct HostPlan {
  std::vector<grouped::Expert> ordered;
  std::vector<std::int32_t> first_tile;

  HostPlan(const std::vector<grouped::Expert>& given, int tile_m, int tile_n)
      : ordered(given.size()), first_tile(given.size() + 1) {
    const auto count = static_cast<std::int32_t>(given.size());
    std::vector<std::int32_t> k, tiles;
    for (const grouped::Expert& expert : given) {
      k.push_back(expert.k);
      tiles.push_back(grouped::tiles_of(expert, tile_m, tile_n));
    }
    for (std::int32_t e = 0; e < count; ++e) {
      const grouped::Place place = grouped::place_of(e, k.data(), tiles.data(), count);
      ordered[static_cast<std::size_t>(place.slot)] = given[static_cast<std::size_t>(e)];
      first_tile[static_cast<std::size_t>(place.slot)] = place.first_tile;
      if (place.slot == count - 1) first_tile.back() = place.first_tile + tiles[static_cast<std::size_t>(e)];
    }
  }
};

/// What the kernels do, with `blocks` blocks.
template <Product product, bool picked = false>
void run_on_host(Bank<bfloat16>& bank, int blocks = 3) {
  using Tiling = grouped::MmaTiling;
  const Segments segments = bank.table.view();
  const auto x = bank.x_layout.over(bank.x.data()), y = bank.y_layout.over(bank.y.data());
  grouped::Rows<bfloat16> rows{segments.begin.data(), segments.rows.data(), x.offset.data(), y.offset.data(),
                               x.width.data(),        y.width.data(),       bank.x.data(),   bank.y.data()};
  std::vector<std::int32_t> index;
  for (const std::int64_t source : bank.source) {
    index.push_back(source < 0 ? -1 : static_cast<std::int32_t>(source / bank.picked.divisor));
  }
  if (picked) {
    rows.x = bank.picked.x.data;
    rows.x_stride = bank.picked.x.stride;
    rows.picked = index.data();
  }
  std::vector<grouped::Expert> experts;
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const auto i = static_cast<std::size_t>(e);
    const auto weight_of = [](auto& matrix) {
      return grouped::Weight{matrix.view().data, matrix.view().stride, static_cast<std::int32_t>(matrix.view().rows),
                             static_cast<std::int32_t>(matrix.view().cols)};
    };
    const bool gradient = product == Product::weight_grad;
    experts.push_back(grouped::expert_of(
        product, rows, gradient ? weight_of(*bank.owned_gradients[i]) : weight_of(*bank.owned[i]), e));
  }
  const HostPlan plan(experts, Tiling::m, Tiling::n);
  for (int index = 0; index < blocks; ++index) {
    HostMmaBlock block;
    std::int32_t slot = 0;
    for (std::int32_t tile = index; tile < plan.first_tile.back(); tile += blocks) {
      slot = grouped::slot_of(plan.first_tile.data(), slot, tile);
      const auto at = static_cast<std::size_t>(slot);
      const grouped::Corner corner =
          grouped::corner_of(plan.ordered[at], tile - plan.first_tile[at], Tiling::m, Tiling::n);
      grouped::MmaTile<product, picked, HostMmaBlock>(block, plan.ordered[at], corner).run();
    }
    EXPECT_EQ(block.races(), 0);
  }
}

template <Product product>
void check_rows(const Case& c) {
  constexpr bool transpose = product == Product::forward;
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, transpose, false, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, transpose, false, c.gap);
  poison(bank, bank.x_layout, bank.x);
  run_on_host<product>(bank);
  lyceum::run(CpuStream(1), exact.product(transpose));
  for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " forward" : " dgrad"));
    expect_rounded<bfloat16>(bank.y_of(e), exact.y_of(e));  // the padding too: zeros
  }
}

void check_weight_grad(const Case& c) {
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, false, true, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, false, true, c.gap);
  poison(bank, bank.x_layout, bank.x);
  poison(bank, bank.y_layout, bank.y);
  run_on_host<Product::weight_grad>(bank);
  lyceum::run(CpuStream(1), exact.weight_grad());
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_rounded<bfloat16>(bank.gradients[e], exact.gradients[e]);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
}

template <Product product>
void check_picked(const Case& c) {
  constexpr bool forward = product == Product::forward;
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, forward, !forward, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, forward, !forward, c.gap);
  bank.pick<bfloat16>(true, c.gap);
  exact.pick<bfloat16>(false, c.gap);
  if (!forward) poison(bank, bank.y_layout, bank.y);
  run_on_host<product, true>(bank);
  forward ? lyceum::run(CpuStream(1), exact.product(true)) : lyceum::run(CpuStream(1), exact.weight_grad());
  for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e << (forward ? " forward" : " gradient"));
    const auto i = static_cast<std::size_t>(e);
    if (forward) {
      expect_rounded<bfloat16>(bank.y_of(e), exact.y_of(e));
    } else {
      expect_rounded<bfloat16>(bank.gradients[i], exact.gradients[i]);
    }
  }
}

/// Some weights aligned, some not.
const Case mixed{aligned.rows, aligned.in, aligned.out, 1};

class CudaTiles : public testing::TestWithParam<Case> {};

TEST_P(CudaTiles, AgreeWithTheReference) {
  check_rows<Product::forward>(GetParam());
  check_rows<Product::dgrad>(GetParam());
  check_weight_grad(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaTiles, testing::Values(uneven, all_empty, one, aligned, mixed));

class CudaPickedTiles : public testing::TestWithParam<Case> {};

TEST_P(CudaPickedTiles, AgreeWithTheReference) {
  check_picked<Product::forward>(GetParam());
  check_picked<Product::weight_grad>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaPickedTiles, testing::Values(copies, aligned_copies, all_empty, one));

TEST(CudaTilePlan, EveryTileIsTakenOnceAndTheDearestFirst) {
  std::vector<grouped::Expert> experts(7);
  const int m[] = {130, 0, 1, 256, 128, 0, 500}, n[] = {300, 64, 7, 128, 0, 5, 129}, k[] = {64, 9, 853, 64, 64, 0, 100};
  for (std::size_t e = 0; e < experts.size(); ++e) experts[e].m = m[e], experts[e].n = n[e], experts[e].k = k[e];
  const HostPlan plan(experts, 128, 256);
  std::vector<std::vector<int>> covered(experts.size());
  for (std::int32_t tile = 0, slot = 0; tile < plan.first_tile.back(); ++tile) {
    slot = grouped::slot_of(plan.first_tile.data(), slot, tile);
    const grouped::Expert& expert = plan.ordered[static_cast<std::size_t>(slot)];
    const auto corner = grouped::corner_of(expert, tile - plan.first_tile[static_cast<std::size_t>(slot)], 128, 256);
    EXPECT_TRUE(corner.m < expert.m && corner.n < expert.n);
    covered[static_cast<std::size_t>(slot)].push_back(corner.m * 1000 + corner.n);
  }
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    const grouped::Expert& expert = plan.ordered[slot];
    EXPECT_LE(expert.k, plan.ordered[slot == 0 ? 0 : slot - 1].k);
    std::vector<int> all;
    for (int row = 0; row < expert.m; row += 128) {
      for (int col = 0; col < expert.n; col += 256) all.push_back(row * 1000 + col);
    }
    EXPECT_EQ(covered[slot], all);
  }
}

TEST(CudaTilePlan, AnExpertWithoutRowsKeepsItsGradient) {
  auto bank = Bank<bfloat16>::made<bfloat16>({0, 3}, {8, 8}, {8, 8}, false, true);
  const std::vector<float> before(bank.gradients[0].row(0), bank.gradients[0].row(8));
  run_on_host<Product::weight_grad>(bank);
  EXPECT_EQ(std::vector<float>(bank.gradients[0].row(0), bank.gradients[0].row(8)), before);
}

}  // namespace
}  // namespace lyceum
