#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/grouped_bank.h"

namespace lyceum::test {

/// The plan of a grouped product, computed on the host as the planning kernels compute it on the device.
struct HostPlan {
  std::vector<grouped::Expert> ordered;
  std::vector<std::int32_t> first_tile;
  std::vector<std::int32_t> picked;  // row of x or dy that each row of the experts is picked from

  HostPlan(const std::vector<grouped::Expert>& given, int tile_m, int tile_n)
      : ordered(given.size()), first_tile(given.size() + 1) {
    const auto count = static_cast<std::int32_t>(given.size());
    std::vector<std::int32_t> k, tiles;
    for (const grouped::Expert& expert : given) {
      k.push_back(expert.k);
      tiles.push_back(grouped::tiles_of(expert, tile_m, tile_n));
    }
    for (std::int32_t e = 0; e < count; ++e) {
      const grouped::ExpertSlot own = grouped::slot_of_expert(e, k.data(), tiles.data(), count);
      ordered[static_cast<std::size_t>(own.slot)] = given[static_cast<std::size_t>(e)];
      first_tile[static_cast<std::size_t>(own.slot)] = own.first_tile;
      if (own.slot == count - 1) first_tile.back() = own.first_tile + tiles[static_cast<std::size_t>(e)];
    }
  }

  /// Returns the plan for a bank with tiles of tile_m x tile_n. `more` may set further members of the rows. The bank
  /// must outlive the plan.
  template <grouped::Product product, grouped::Pick is_picked, class More = void (*)(grouped::Rows<bfloat16>&)>
  static HostPlan of(
      Bank<bfloat16>& bank, int tile_m, int tile_n, const More& more = [](grouped::Rows<bfloat16>&) {}) {
    const Segments segments = bank.table.view();
    const auto x = bank.x_layout.over(bank.x.data()), y = bank.y_layout.over(bank.y.data());
    grouped::Rows<bfloat16> rows{segments.begin.data(), segments.rows.data(), x.offset.data(), y.offset.data(),
                                 x.width.data(),        y.width.data(),       bank.x.data(),   bank.y.data()};
    constexpr bool of_dy = product == grouped::Product::weight_grad && is_picked == grouped::Pick::a;
    const PickedRows<bfloat16>& picked = of_dy ? bank.picked_dy : bank.picked;
    std::vector<std::int32_t> index;
    for (const std::int64_t source : bank.source) {
      index.push_back(source < 0 ? -1 : static_cast<std::int32_t>(source / picked.divisor));
    }
    if (is_picked != grouped::Pick::none) {
      (of_dy ? rows.picked_dy : rows.picked_x) = grouped::PickedFrom{index.data(), picked.x.rows, picked.x.stride};
      if (of_dy) {
        rows.y = const_cast<bfloat16*>(picked.x.data);
      } else {
        rows.x = picked.x.data;
      }
    }
    more(rows);
    const auto weight_of = [](auto& matrix) {
      return grouped::Weight{matrix.view().data, matrix.view().stride, static_cast<std::int32_t>(matrix.view().rows),
                             static_cast<std::int32_t>(matrix.view().cols)};
    };
    std::vector<grouped::Expert> experts;
    for (std::int64_t e = 0; e < segments.count(); ++e) {
      const auto i = static_cast<std::size_t>(e);
      const bool gradient = product == grouped::Product::weight_grad;
      experts.push_back(grouped::expert_of(
          product, rows, gradient ? weight_of(*bank.owned_gradients[i]) : weight_of(*bank.owned[i]), e));
    }
    HostPlan plan(experts, tile_m, tile_n);
    plan.picked = std::move(index);  // moving keeps the memory that the experts point to
    return plan;
  }

  grouped::Plan view() const { return {ordered.data(), first_tile.data(), static_cast<std::int32_t>(ordered.size())}; }
};

/// Computes a product of rows in tiles of `Tiling`, with blocks.run<product, picked>(plan), and compares it with the
/// reference in double. Padding rows of inputs are NaN and must not be read.
template <class Tiling, grouped::Product product, class Blocks>
void expect_right_rows(const Case& c, const Blocks& blocks) {
  constexpr bool transpose = product == grouped::Product::forward;
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, transpose, false, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, transpose, false, c.gap);
  poison(bank, bank.x_layout, bank.x);
  constexpr grouped::Pick none = grouped::Pick::none;
  blocks.template run<product, none>(HostPlan::of<product, none>(bank, Tiling::m, Tiling::n));
  lyceum::run(CpuStream(1), exact.product(transpose));
  for (std::int64_t e = 0; e < bank.table.view().count(); ++e) {
    SCOPED_TRACE(testing::Message() << "expert " << e << (transpose ? " forward" : " dgrad"));
    expect_rounded<bfloat16>(bank.y_of(e), exact.y_of(e));  // includes padding, which must be 0
  }
}

/// Sets what is to happen to the memory of a weight gradient. If it is not to be added to, the memory is NaN.
inline auto accumulating(Bank<bfloat16>& bank, bool accumulate) {
  if (!accumulate) bank.fill_gradients(std::numeric_limits<float>::quiet_NaN());
  return [accumulate](grouped::Rows<bfloat16>& rows) { rows.accumulate = accumulate; };
}

/// Compares the weight gradients with the reference in double, as expect_right_rows() does.
template <class Tiling, class Blocks>
void expect_right_gradients(const Case& c, const Blocks& blocks, bool accumulate = true) {
  constexpr grouped::Product product = grouped::Product::weight_grad;
  auto bank = Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, false, true, c.gap);
  auto exact = Bank<double>::made<bfloat16>(c.rows, c.in, c.out, false, true, c.gap);
  poison(bank, bank.x_layout, bank.x);
  poison(bank, bank.y_layout, bank.y);
  constexpr grouped::Pick none = grouped::Pick::none;
  const auto more = accumulating(bank, accumulate);
  blocks.template run<product, none>(HostPlan::of<product, none>(bank, Tiling::m, Tiling::n, more));
  lyceum::run(CpuStream(1), exact.weight_grad(accumulate));
  for (std::size_t e = 0; e < bank.gradients.size(); ++e) {
    SCOPED_TRACE(testing::Message() << "gradient of expert " << e);
    expect_rounded<bfloat16>(bank.gradients[e], exact.gradients[e]);
    EXPECT_TRUE(bank.owned_gradients[e]->gaps_untouched());
  }
}

/// Compares a product of picked rows with the reference in double. Padding rows of the other operand are NaN.
template <class Tiling, Picking which, class Blocks>
void expect_right_picked(const Case& c, const Blocks& blocks, bool accumulate = true) {
  using grouped::Product, grouped::Pick;
  constexpr Product product = which == Picking::forward ? Product::forward
                              : which == Picking::dgrad ? Product::dgrad
                                                        : Product::weight_grad;
  constexpr Pick picked = which == Picking::weight_grad_x ? Pick::b : Pick::a;
  auto bank = picking_bank<bfloat16, bfloat16>(c, which, true);
  auto exact = picking_bank<double, bfloat16>(c, which, false);
  if (which == Picking::weight_grad_x) poison(bank, bank.y_layout, bank.y);
  if (which == Picking::weight_grad_dy) poison(bank, bank.x_layout, bank.x);
  const auto more = accumulating(bank, accumulate);
  blocks.template run<product, picked>(HostPlan::of<product, picked>(bank, Tiling::m, Tiling::n, more));
  if (!accumulate) exact.fill_gradients(0);
  run_picking(exact, which, [](const auto& description) { lyceum::run(CpuStream(1), description); });
  expect_right_picking(bank, exact, which);
}

/// Expects the same bits of a product from two emulations, which differ in their numbers of blocks.
template <class Tiling, grouped::Product product, class Blocks>
void expect_same_bits(const Case& c, const Blocks& one, const Blocks& other) {
  const auto result = [&](const Blocks& blocks) {
    constexpr bool gradient = product == grouped::Product::weight_grad;
    auto bank =
        Bank<bfloat16>::made<bfloat16>(c.rows, c.in, c.out, product == grouped::Product::forward, gradient, c.gap);
    constexpr grouped::Pick none = grouped::Pick::none;
    blocks.template run<product, none>(HostPlan::of<product, none>(bank, Tiling::m, Tiling::n));
    std::vector<float> values;
    for (const bfloat16 value : bank.y) values.push_back(static_cast<float>(value));
    for (const auto& matrix : bank.gradients) {
      for (std::int64_t r = 0; r < matrix.rows; ++r) {
        values.insert(values.end(), matrix.row(r), matrix.row(r) + matrix.cols);
      }
    }
    return values;
  };
  const std::vector<float> first = result(one), second = result(other);
  ASSERT_EQ(first.size(), second.size());
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
}

/// A bank for gradients that replace NaN: some experts, also the first and the last, have no rows.
inline const Case to_write{{0, 70, 0, 5, 0}, Widths(5, 72), {136, 264, 392, 8, 40}, 8};

/// Checks weight gradients that replace NaN.
template <class Tiling, class Blocks>
void expect_written_gradients(const Blocks& blocks) {
  expect_right_gradients<Tiling>(to_write, blocks, false);
  expect_right_picked<Tiling, Picking::weight_grad_dy>(to_write, blocks, false);
}

/// Checks all three products.
template <class Tiling, class Blocks>
void expect_right_tiles(const Case& c, const Blocks& blocks) {
  expect_right_rows<Tiling, grouped::Product::forward>(c, blocks);
  expect_right_rows<Tiling, grouped::Product::dgrad>(c, blocks);
  expect_right_gradients<Tiling>(c, blocks);
}
/// Checks all products of picked rows.
template <class Tiling, class Blocks>
void expect_right_picked_tiles(const Case& c, const Blocks& blocks) {
  expect_right_picked<Tiling, Picking::forward>(c, blocks);
  expect_right_picked<Tiling, Picking::dgrad>(c, blocks);
  expect_right_picked<Tiling, Picking::weight_grad_x>(c, blocks);
  expect_right_picked<Tiling, Picking::weight_grad_dy>(c, blocks);
}

}  // namespace lyceum::test
