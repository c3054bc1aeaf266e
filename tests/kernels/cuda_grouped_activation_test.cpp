// Blocks of the wgmma kernels with activations, emulated.
#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "kernels/activated_bank.h"
#include "kernels/cuda/activation_formulas.h"
#include "kernels/emulated_wgmma.h"
#include "kernels/host_plan.h"

namespace lyceum {
namespace {

using namespace test;
using grouped::NoActivation;
using grouped::Product;

/// What a kernel with an activation knows of the rows of a bank.
void add_forward(ActivatedBank<bfloat16>& bank, grouped::Rows<bfloat16>& rows) {
  const auto hidden = bank.forward().hidden, activated = bank.forward().activated;
  rows.y = hidden.data, rows.y_offset = hidden.offset.data(), rows.y_width = hidden.width.data();
  rows.activated = {.inputs = static_cast<int>(inputs_of(bank.kind)),
                    .values = activated.data,
                    .offset = activated.offset.data(),
                    .width = activated.width.data()};
}
void add_backward(ActivatedBank<bfloat16>& bank, grouped::Rows<bfloat16>& rows) {
  add_forward(bank, rows);
  rows.y = bank.d_hidden.data();
  rows.activated.hidden = bank.hidden.data();
  rows.activated.hidden_offset = rows.y_offset;
  rows.activated.hidden_width = rows.y_width;
}

/// Runs descriptions by emulated blocks: of the kernels with `Act`, or of the product alone and then the formulas.
template <class Tiling, class Act>
struct Blocks {
  EmulatedBlock::Order order;

  template <bool picked>
  void forward(ActivatedBank<bfloat16>& bank) const {
    using Tile = grouped::TileOf<Product::forward, Act, Tiling>;
    WgmmaBlocks<Tiling, Act>{order}.template run<Product::forward, picked>(HostPlan::of<Product::forward, picked>(
        bank.bank, Tile::m, Tile::n, [&](auto& rows) { add_forward(bank, rows); }));
  }
  void backward(ActivatedBank<bfloat16>& bank) const {
    using Tile = grouped::TileOf<Product::dgrad, Act, Tiling>;
    WgmmaBlocks<Tiling, Act>{order}.template run<Product::dgrad, false>(HostPlan::of<Product::dgrad, false>(
        bank.bank, Tile::m, Tile::n, [&](auto& rows) { add_backward(bank, rows); }));
  }
  /// The bank's own y = x · wᵀ or x · w, without an activation.
  template <Product which, bool picked>
  void product(ActivatedBank<bfloat16>& bank) const {
    WgmmaBlocks<Tiling>{order}.template run<which, picked>(
        HostPlan::of<which, picked>(bank.bank, Tiling::m, Tiling::n));
  }
};

/// f(inputs of an element, its result, its place among the activation's results) for all that are no padding.
template <class Act, class F>
void each_element(ActivatedBank<bfloat16>& bank, const F& f) {
  const Segments segments = bank.bank.table.view();
  for (std::int64_t e = 0; e < segments.count(); ++e) {
    const Matrix<bfloat16> hidden = bank.hidden_of(e), activated = bank.activated_of(e);
    for (std::int64_t r = 0; r < segments.rows[static_cast<std::size_t>(e)]; ++r) {
      for (std::int64_t c = 0; c < activated.cols; ++c) {
        float x[Act::inputs];
        for (int i = 0; i < Act::inputs; ++i) x[i] = static_cast<float>(hidden.row(r)[c + i * activated.cols]);
        f(e, r, c, x, activated.row(r)[c]);
      }
    }
  }
}

/// Bits of the kernel with the activation are those of the product's kernel and the formulas on rounded numbers.
template <class Tiling, class Act, bool picked>
void check_forward(Activation kind, const Case& c, EmulatedBlock::Order order) {
  const Blocks<Tiling, Act> blocks{order};
  expect_right_forward<bfloat16>(kind, c, picked, [&](ActivatedBank<bfloat16>& bank) {
    blocks.template forward<picked>(bank);
    auto apart = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, true);
    if (picked) apart.bank.pick<bfloat16>(true, c.gap);
    blocks.template product<Product::forward, picked>(apart);
    EXPECT_TRUE(test::same_bits(bank.hidden, apart.bank.y));
    each_element<Act>(bank, [](auto, auto, auto, const float(&x)[Act::inputs], bfloat16 y) {
      ASSERT_EQ(y.bits, bfloat16(Act::forward(x)).bits);
    });
  });
}

template <class Tiling, class Act>
void check_backward(Activation kind, const Case& c, EmulatedBlock::Order order) {
  const Blocks<Tiling, Act> blocks{order};
  expect_right_backward<bfloat16>(kind, c, [&](ActivatedBank<bfloat16>& bank) {
    blocks.backward(bank);
    auto apart = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, false);
    blocks.template product<Product::dgrad, false>(apart);
    each_element<Act>(bank,
                      [&](std::int64_t e, std::int64_t r, std::int64_t col, const float(&x)[Act::inputs], bfloat16 y) {
                        float dx[Act::inputs];
                        const auto dy = static_cast<float>(apart.bank.y_of(e).row(r)[col]);
                        ASSERT_EQ(y.bits, bfloat16(Act::backward(x, dy, dx)).bits);
                        const std::int64_t width = bank.activated_of(e).cols;
                        for (int i = 0; i < Act::inputs; ++i) {
                          ASSERT_EQ(bank.d_hidden_of(e).row(r)[col + i * width].bits, bfloat16(dx[i]).bits);
                        }
                      });
  });
}

template <class Tiling, class Act>
void check(Activation kind, EmulatedBlock::Order order) {
  /// Widths of whole 16 bytes, as TMA wants them; narrow tiles, whole ones, depths of more stages than there are.
  const Case several{{200, 0, 64, 129, 7}, {72, 64, 40, 328, 16}, {136, 64, 8, 200, 24}, 8};
  const Case several_copies{{200, 0, 129, 1, 70}, Widths(5, 72), {136, 64, 200, 24, 40}, 8};
  check_forward<Tiling, Act, false>(kind, several, order);
  check_forward<Tiling, Act, true>(kind, several_copies, order);
  check_backward<Tiling, Act>(kind, several, order);
}

/// NaN of a row of x, and of an element of what the activation takes.
template <class Tiling, class Act>
void check_nan(Activation kind, EmulatedBlock::Order order) {
  const Blocks<Tiling, Act> blocks{order};
  const Case c{{5, 6}, {8, 16}, {16, 8}, 8};
  auto bank = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, true);
  auto back = ActivatedBank<bfloat16>::made<bfloat16>(kind, c, false);
  const bfloat16 nan(std::numeric_limits<float>::quiet_NaN());
  bank.bank.x[8 * 2 + 3] = back.bank.x[8 * 2 + 3] = back.hidden_of(1).row(4)[7] = nan;
  blocks.template forward<false>(bank);
  blocks.backward(back);
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

TEST_P(CudaWgmmaActivation, CooperativeGroupsAgreeWithTheFormulas) {
  check<grouped::CooperativeTiling, Swiglu>(Activation::swiglu, GetParam());
  check<grouped::CooperativeTiling, Gelu>(Activation::gelu, GetParam());
}

TEST_P(CudaWgmmaActivation, PingPongGroupsAgreeWithTheFormulas) {
  check<grouped::PingPongTiling, Swiglu>(Activation::swiglu, GetParam());
  check<grouped::PingPongTiling, Gelu>(Activation::gelu, GetParam());
}

TEST_P(CudaWgmmaActivation, NanStaysInItsRow) {
  check_nan<grouped::CooperativeTiling, Swiglu>(Activation::swiglu, GetParam());
  check_nan<grouped::PingPongTiling, Gelu>(Activation::gelu, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaWgmmaActivation,
                         testing::Values(EmulatedBlock::Order::ascending, EmulatedBlock::Order::descending),
                         [](const auto& info) {
                           return info.param == EmulatedBlock::Order::ascending ? "Ascending" : "Descending";
                         });

}  // namespace
}  // namespace lyceum
