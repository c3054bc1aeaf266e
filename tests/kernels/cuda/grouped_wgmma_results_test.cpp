// Tests the wgmma kernels with activations on emulated thread blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/activated_bank.h"
#include "kernels/cuda/activation_formulas.h"
#include "kernels/emulated_wgmma.h"
#include "kernels/host_plan.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::NoActivation, grouped::Pick, grouped::Product;

/// Sets the members of `rows` that a kernel with an activation reads.
void add_forward(ActivatedBank<bfloat16>& bank, grouped::Rows<bfloat16>& rows) {
  const auto hidden = bank.forward().hidden, activated = bank.forward().activated;
  rows.y = hidden.data, rows.y_offset = hidden.offset.data(), rows.y_width = hidden.width.data();
  rows.activated = {.inputs = static_cast<int>(inputs_of(bank.kind)),
                    .values = activated.data,
                    .offset = activated.offset.data(),
                    .width = activated.width.data(),
                    .bias = bank.bias_pointers.empty() ? nullptr : bank.bias_pointers.data(),
                    .function = tested_function(bank.kind)};
}
void add_backward(ActivatedBank<bfloat16>& bank, grouped::Rows<bfloat16>& rows) {
  add_forward(bank, rows);
  rows.y = bank.d_hidden.data();
  rows.activated.hidden = bank.hidden.data();
  rows.activated.hidden_offset = rows.y_offset;
  rows.activated.hidden_width = rows.y_width;
}

/// The intermediate arrays between a kernel and the gates of a bank: the gate of each row, and the parts of their
/// gradients that the tiles compute.
struct HostGates {
  ActivatedBank<bfloat16>& bank;
  std::int32_t across;
  std::vector<float> of_row, parts;

  HostGates(ActivatedBank<bfloat16>& given, int tile_n) : bank(given), across(1) {
    for (const auto& weight : bank.bank.weights) {
      across = std::max(across, static_cast<std::int32_t>((weight.cols + tile_n - 1) / tile_n));
    }
    for (std::size_t r = 0; r < bank.gate_of_row.size(); ++r) {
      of_row.push_back(static_cast<float>(bank.gate_at(static_cast<std::int64_t>(r))));
    }
    parts.assign(of_row.size() * static_cast<std::size_t>(across), 0);
  }
  void add_to(grouped::Rows<bfloat16>& rows) {
    if (bank.gate.empty()) return;
    rows.activated.gate = of_row.data();
    rows.activated.d_gate = parts.data();
    rows.activated.across = across;
  }
  void finish() {
    std::ranges::fill(bank.d_gate, 0.0f);
    for (std::size_t r = 0; r < of_row.size(); ++r) {
      float sum = 0;
      for (std::int32_t i = 0; i < across; ++i)
        sum += parts[r * static_cast<std::size_t>(across) + static_cast<std::size_t>(i)];
      if (bank.gate_of_row[r] >= 0) bank.d_gate[static_cast<std::size_t>(bank.gate_of_row[r])] = sum;
    }
  }
};

/// Computes a bank on emulated thread blocks: with the fused kernel for `Act`, or with the kernel for the product and
/// then the formulas of the activation.
template <class Tiling, class Act>
struct Blocks {
  EmulatedBlock::Order order;

  template <Pick picked>
  void forward(ActivatedBank<bfloat16>& bank) const {
    using Tile = grouped::TileOf<Product::forward, Act, Tiling>;
    WgmmaBlocks<Tiling, Act>{order}.template run<Product::forward, picked>(HostPlan::of<Product::forward, picked>(
        bank.bank, Tile::m, Tile::n, [&](auto& rows) { add_forward(bank, rows); }));
  }
  template <Pick picked>
  void backward(ActivatedBank<bfloat16>& bank) const {
    using Tile = grouped::TileOf<Product::dgrad, Act, Tiling>;
    HostGates gates(bank, Tile::n);
    const auto more = [&](auto& rows) { add_backward(bank, rows), gates.add_to(rows); };
    WgmmaBlocks<Tiling, Act>{order}.template run<Product::dgrad, picked>(
        HostPlan::of<Product::dgrad, picked>(bank.bank, Tile::m, Tile::n, more));
    gates.finish();
  }
  /// Computes y of the bank, x · wᵀ or x · w, without an activation.
  template <Product which, Pick picked>
  void product(ActivatedBank<bfloat16>& bank) const {
    WgmmaBlocks<Tiling>{order}.template run<which, picked>(
        HostPlan::of<which, picked>(bank.bank, Tiling::m, Tiling::n));
  }
};

/// Calls f(inputs of an element with their biases, its result, the index of its result) for all elements except
/// padding.
template <class Act, class F>
void each_element(ActivatedBank<bfloat16>& bank, const F& f) {
  const Segments segments = bank.bank.table.view();
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const Matrix<bfloat16> hidden = bank.hidden_of(e), activated = bank.activated_of(e);
    for (std::int64_t r = 0; r < segments.rows[static_cast<std::size_t>(e)]; ++r) {
      for (std::int64_t c = 0; c < activated.cols; ++c) {
        float x[Act::inputs];
        for (int i = 0; i < Act::inputs; ++i) {
          const std::int64_t column = c + i * activated.cols;
          x[i] = static_cast<float>(hidden.row(r)[column]);
          if (bank.bias_pointers.empty()) continue;
          x[i] += static_cast<float>(bank.bias_pointers[static_cast<std::size_t>(e)][column]);
        }
        f(e, r, c, x, activated.row(r)[c]);
      }
    }
  }
}

/// Checks that the fused kernel gives the same bits as the kernel for the product, followed by the formulas on rounded
/// numbers.
template <class Tiling, class Act, Pick picked>
void check_forward(Activation kind, const Case& c, EmulatedBlock::Order order, bool biased) {
  const Blocks<Tiling, Act> blocks{order};
  constexpr bool copied = picked != Pick::none;
  expect_right_forward<bfloat16>(
      kind, c, copied,
      [&](ActivatedBank<bfloat16>& bank) {
        blocks.template forward<picked>(bank);
        auto apart = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, true);
        if (copied) apart.bank.pick<bfloat16>(true, c.gap);
        blocks.template product<Product::forward, picked>(apart);
        EXPECT_TRUE(test::same_bits(bank.hidden, apart.bank.y));
        const Act act(tested_function(kind));
        each_element<Act>(bank, [&](auto, auto, auto, const float(&x)[Act::inputs], bfloat16 y) {
          ASSERT_EQ(y.bits, bfloat16(act.forward(x)).bits);
        });
      },
      biased);
}

template <class Tiling, class Act, Pick picked>
void check_backward(Activation kind, const Case& c, EmulatedBlock::Order order, bool biased) {
  const Blocks<Tiling, Act> blocks{order};
  constexpr bool copied = picked != Pick::none;
  expect_right_backward<bfloat16>(
      kind, c, copied,
      [&](ActivatedBank<bfloat16>& bank) {
        blocks.template backward<picked>(bank);
        auto apart = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, false);
        if (copied) apart.bank.pick<bfloat16>(true, c.gap);
        blocks.template product<Product::dgrad, picked>(apart);
        const std::span<const std::int64_t> begin = bank.bank.table.view().begin;
        each_element<Act>(
            bank, [&](std::int64_t e, std::int64_t r, std::int64_t col, const float(&x)[Act::inputs], bfloat16 y) {
              float dx[Act::inputs], d_gate = 0;
              const auto dy = static_cast<float>(apart.bank.y_of(e).row(r)[col]);
              const auto gate = static_cast<float>(bank.gate_at(begin[static_cast<std::size_t>(e)] + r));
              ASSERT_EQ(y.bits, bfloat16(gated_backward(Act(tested_function(kind)), x, dy, gate, dx, d_gate)).bits);
              const std::int64_t width = bank.activated_of(e).cols;
              for (int i = 0; i < Act::inputs; ++i) {
                ASSERT_EQ(bank.d_hidden_of(e).row(r)[col + i * width].bits, bfloat16(dx[i]).bits);
              }
            });
      },
      biased);
}

template <class Tiling, class Act>
void check(Activation kind, EmulatedBlock::Order order) {
  /// Widths are multiples of 16 bytes, as TMA requires. There are narrow and whole tiles, and sums with more steps than
  /// the pipeline has stages.
  const Case several{{200, 0, 64, 129, 7}, {72, 64, 40, 328, 16}, {136, 64, 8, 200, 24}, 8};
  const Case several_copies{{200, 0, 129, 1, 70}, Widths(5, 72), {136, 64, 328, 24, 40}, 8};
  check_forward<Tiling, Act, Pick::none>(kind, several, order, false);
  check_forward<Tiling, Act, Pick::a>(kind, several_copies, order, true);
  check_backward<Tiling, Act, Pick::none>(kind, several, order, true);
  check_backward<Tiling, Act, Pick::a>(kind, several_copies, order, false);
}

/// Checks that a NaN of a token appears in the rows that are copies of it and in the gradients of their gates, and only
/// there.
template <class Tiling, class Act>
void check_nan_of_copies(Activation kind, EmulatedBlock::Order order) {
  const Case c{{5, 6}, {8, 8}, {16, 264}, 8};
  auto bank = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, false);
  bank.pick_gated<bfloat16>(true, 8);
  const std::int64_t token = bank.bank.source[2] / bank.bank.picked.divisor;
  bank.bank.tokens->view().row(token)[3] = bfloat16(std::numeric_limits<float>::quiet_NaN());
  Blocks<Tiling, Act>{order}.template backward<Pick::a>(bank);
  const std::span<const std::int64_t> begin = bank.bank.table.view().begin;
  std::vector<bool> expected(bank.d_gate.size());
  each_element<Act>(bank, [&](std::int64_t e, std::int64_t r, std::int64_t col, const auto&, bfloat16 y) {
    const auto row = static_cast<std::size_t>(begin[static_cast<std::size_t>(e)] + r);
    const bool poisoned = bank.bank.source[row] >= 0 && bank.bank.source[row] / bank.bank.picked.divisor == token;
    EXPECT_FALSE(std::isnan(static_cast<float>(y)));
    EXPECT_EQ(std::isnan(static_cast<float>(bank.d_hidden_of(e).row(r)[col])), poisoned);
    if (poisoned) expected[static_cast<std::size_t>(bank.gate_of_row[row])] = true;
  });
  for (std::size_t g = 0; g < expected.size(); ++g) EXPECT_EQ(std::isnan(bank.d_gate[g]), expected[g]) << "gate " << g;
  EXPECT_TRUE(std::ranges::count(expected, true) > 0);
}

/// Checks the effect of a NaN in a row of x, and in an element of the activation's input.
template <class Tiling, class Act>
void check_nan(Activation kind, EmulatedBlock::Order order) {
  const Blocks<Tiling, Act> blocks{order};
  const Case c{{5, 6}, {8, 16}, {16, 8}, 8};
  auto bank = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, true);
  auto back = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, false);
  const bfloat16 nan(std::numeric_limits<float>::quiet_NaN());
  bank.bank.x[8 * 2 + 3] = back.bank.x[8 * 2 + 3] = back.hidden_of(1).row(4)[7] = nan;
  blocks.template forward<Pick::none>(bank);
  blocks.template backward<Pick::none>(back);
  const auto is_nan = [](bfloat16 value) { return std::isnan(static_cast<float>(value)); };
  each_element<Act>(bank, [&](std::int64_t e, std::int64_t r, std::int64_t, const float(&x)[Act::inputs], bfloat16 y) {
    for (const float input : x) EXPECT_EQ(std::isnan(input), e == 0 && r == 2);
    EXPECT_EQ(is_nan(y), e == 0 && r == 2);
  });
  each_element<Act>(back, [&](std::int64_t e, std::int64_t r, std::int64_t col, const auto&, bfloat16 y) {
    const bool element = e == 1 && r == 4 && col == 7;
    EXPECT_EQ(is_nan(y), element);
    EXPECT_EQ(is_nan(back.d_hidden_of(e).row(r)[col]), element || (e == 0 && r == 2));
  });
}

class CudaWgmmaActivation : public testing::TestWithParam<EmulatedBlock::Order> {};

TEST_P(CudaWgmmaActivation, ClustersAgreeWithTheFormulas) {
  check<grouped::ClusteredPingPongTiling, Swiglu>(Activation::swiglu, GetParam());
  const Case fewer{{200, 0, 7}, {72, 64, 16}, {136, 64, 24}, 8};
  check_forward<grouped::ClusteredPingPongTiling, Gelu, Pick::none>(Activation::gelu, fewer, GetParam(), false);
  check_backward<grouped::ClusteredPingPongTiling, Gelu, Pick::none>(Activation::gelu, fewer, GetParam(), false);
  check_backward<grouped::ClusteredPingPongTiling, ClampedSwiglu, Pick::none>(Activation::clamped_swiglu, fewer,
                                                                              GetParam(), true);
}

TEST_P(CudaWgmmaActivation, PingPongGroupsAgreeWithTheFormulas) {
  check<grouped::PingPongTiling, Swiglu>(Activation::swiglu, GetParam());
  check<grouped::PingPongTiling, Gelu>(Activation::gelu, GetParam());
  check<grouped::PingPongTiling, ClampedSwiglu>(Activation::clamped_swiglu, GetParam());
}

TEST_P(CudaWgmmaActivation, NanStaysInItsRow) {
  check_nan<grouped::ClusteredPingPongTiling, Swiglu>(Activation::swiglu, GetParam());
  check_nan<grouped::PingPongTiling, Gelu>(Activation::gelu, GetParam());
  check_nan<grouped::PingPongTiling, ClampedSwiglu>(Activation::clamped_swiglu, GetParam());
  check_nan_of_copies<grouped::ClusteredPingPongTiling, Swiglu>(Activation::swiglu, GetParam());
  check_nan_of_copies<grouped::PingPongTiling, Gelu>(Activation::gelu, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaWgmmaActivation,
                         testing::Values(EmulatedBlock::Order::ascending, EmulatedBlock::Order::descending),
                         [](const auto& info) {
                           return info.param == EmulatedBlock::Order::ascending ? "Ascending" : "Descending";
                         });

}  // namespace
}  // namespace lyceum
