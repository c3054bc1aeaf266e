#include "kernels/dropout.h"

#include <array>
#include <cmath>
#include <set>

#include "core/random.h"
#include "kernels/dropout_numbers.h"
#include "support/grid.h"
#include "support/launch_on.h"

namespace lyceum {
namespace {

struct Source {
  std::uint64_t seed = 1;
  std::int64_t site = 0, first = 0;
  double step = 0;
  std::int64_t block = 1, seq_len = 1;

  DropoutMask mask() const { return {seed, site, first, {&step, 1}, block, seq_len}; }
};

template <class T>
Grid<T> dropped(const Source& source, const Grid<T>& x, double rate, int threads = 1) {
  Grid<T> y(x.rows, x.cols, 3);
  launch_on(threads, ApplyDropout<T>{.x = x.matrix(), .y = y.matrix(), .mask = source.mask(), .rate = rate});
  EXPECT_TRUE(y.gaps_untouched());
  return y;
}

template <class T>
Grid<T> ones(std::int64_t rows, std::int64_t cols) {
  return Grid<T>::from(rows, cols, std::vector<double>(static_cast<std::size_t>(rows * cols), 1.0));
}

/// Returns rows first, first + 1, … of a grid.
template <class T>
Grid<T> rows_of(const Grid<T>& grid, std::int64_t first, std::int64_t count) {
  Grid<T> part(count, grid.cols, 1);
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = 0; c < grid.cols; ++c)
      part(r, c) = grid.values[static_cast<std::size_t>((first + r) * grid.stride + c)];
  }
  return part;
}

/// Returns the share of elements that are zero.
template <class T>
double share_of_zeros(const Grid<T>& y) {
  double zeros = 0;
  for (const double value : y.flat()) zeros += value == 0 ? 1 : 0;
  return zeros / static_cast<double>(y.rows * y.cols);
}

/// True if the word of a position begins a run of dropped tokens in this column, from the documented counter of Philox.
bool begins(const Source& source, std::int64_t at, std::int64_t column, double probability) {
  const std::uint64_t key = splitmix64(source.seed ^ 0x64726f706f7574u);
  const std::array<std::uint32_t, 4> words =
      philox4x32({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32 << 16 | source.site),
                  static_cast<std::uint32_t>(source.step), static_cast<std::uint32_t>(column / 4)},
                 {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  return words[static_cast<std::size_t>(column % 4)] < std::round(probability * 0x1p32);
}

template <class T>
class DropoutTest : public testing::Test {};
using NumberTypes = testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(DropoutTest, NumberTypes);

TYPED_TEST(DropoutTest, MultipliesByAMaskThatIsAFunctionOfItsSource) {
  using T = TypeParam;
  const Source source{.seed = 0x123456789abcdefu, .site = 40000, .first = (std::int64_t{3} << 32) + 7, .step = 11};
  for (const std::int64_t cols : {1, 4, 6, 67, 130}) {
    const auto x = Grid<T>::random(5, cols, "x", 2);
    std::vector<double> expected;
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        expected.push_back(begins(source, source.first + r, c, 0.3) ? 0 : x.at(r, c) / 0.7);
      }
    }
    expect_close(dropped(source, x, 0.3), expected);
  }
}

/// The reference of blocks: an element is dropped if a run begins at one of the last `block` tokens, and the tokens
/// before a sequence have separate positions.
TYPED_TEST(DropoutTest, DropsRunsOfTokensThatEndWithTheSequence) {
  using T = TypeParam;
  const double rate = 0.4;
  for (const std::int64_t block : {2, 3, 5}) {
    for (const std::int64_t seq_len : {1, 4, 7}) {
      const Source source{
          .seed = 3, .site = 2, .first = 2 * seq_len + seq_len / 2, .step = 1, .block = block, .seq_len = seq_len};
      const double start = 1 - std::pow(1 - rate, 1.0 / static_cast<double>(block));
      const auto x = Grid<T>::random(23, 9, "x");
      std::vector<double> expected;
      for (std::int64_t r = 0; r < x.rows; ++r) {
        const std::int64_t token = source.first + r, sequence = token / seq_len, position = token % seq_len;
        for (std::int64_t c = 0; c < x.cols; ++c) {
          bool drops = false;
          for (std::int64_t back = 0; back < block; ++back) {
            drops |= begins(source, sequence * (seq_len + block - 1) + block - 1 + position - back, c, start);
          }
          expected.push_back(drops ? 0 : x.at(r, c) / (1 - rate));
        }
      }
      expect_close(dropped(source, x, rate), expected);
      expect_close(dropped(source, x, rate, 3), expected);
    }
  }
}

TYPED_TEST(DropoutTest, IsTheSameWhereverTheRowsAreCut) {
  using T = TypeParam;
  for (const std::int64_t block : {1, 4}) {
    for (const std::int64_t cols : {4, 9, 130}) {
      const auto x = Grid<T>::random(1000, cols, "x");
      Source source{.site = 2, .first = 100, .step = 3, .block = block, .seq_len = 50};
      const Grid<T> all = dropped(source, x, 0.5);
      EXPECT_TRUE(all.same_bits(dropped(source, x, 0.5, 2)));
      for (const std::int64_t cut : {1, 33, 537, 999}) {
        source.first = 100 + cut;
        EXPECT_EQ(dropped(source, rows_of(x, cut, 1000 - cut), 0.5).flat(), rows_of(all, cut, 1000 - cut).flat());
        source.first = 100;
        EXPECT_EQ(dropped(source, rows_of(x, 0, cut), 0.5).flat(), rows_of(all, 0, cut).flat());
      }
    }
  }
  EXPECT_EQ(dropped<T>({}, Grid<T>::zeros(0, 3), 0.5).flat().size(), 0u);
}

TYPED_TEST(DropoutTest, DropsTheGivenShare) {
  using T = TypeParam;
  for (const std::int64_t block : {1, 2, 7}) {
    for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
      const Source source{.seed = 9, .block = block, .seq_len = 20};
      const double share = share_of_zeros(dropped(source, ones<T>(2000, 50), rate));
      // Four standard errors of 10^5 elements, of which `block` are dropped together.
      EXPECT_NEAR(share, rate, 4 * std::sqrt(rate * (1 - rate) * static_cast<double>(block) / 1e5)) << block;
    }
  }
  // The first tokens of sequences are dropped as often, although fewer runs of the same sequence reach them.
  const Source source{.seed = 4, .block = 5, .seq_len = 5};
  const Grid<T> y = dropped(source, ones<T>(20000, 4), 0.3);
  double first = 0;
  for (std::int64_t r = 0; r < y.rows; r += 5) {
    for (std::int64_t c = 0; c < 4; ++c) first += y.at(r, c) == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first / 16000, 0.3, 0.015);
}

TYPED_TEST(DropoutTest, DiffersByEverythingThatNamesItsSource) {
  using T = TypeParam;
  std::set<std::vector<double>> masks;
  const std::vector<Source> sources{{},           {.seed = 2},
                                    {.site = 1},  {.step = 1},
                                    {.first = 8}, {.first = std::int64_t{1} << 32},
                                    {.block = 2}, {.block = 2, .seq_len = 4}};
  for (const Source& source : sources) masks.insert(dropped(source, ones<T>(8, 30), 0.5).flat());
  EXPECT_EQ(masks.size(), sources.size());
}

TYPED_TEST(DropoutTest, MayReplaceItsInput) {
  using T = TypeParam;
  const Source source{.block = 3, .seq_len = 6};
  auto x = Grid<T>::random(40, 17, "x");
  const std::vector<double> expected = dropped(source, x, 0.2).flat();
  launch_on(2, ApplyDropout<T>{.x = x.matrix(), .y = x.matrix(), .mask = source.mask(), .rate = 0.2});
  EXPECT_EQ(x.flat(), expected);
}

TYPED_TEST(DropoutTest, KeepsNan) {
  using T = TypeParam;
  const Grid<T> x(8, 8);  // NaN
  for (const double value : dropped({}, x, 0.5).flat()) EXPECT_TRUE(is_nan(value));
}

/// The numbers u of an element in concrete dropout.
double uniform(const Source& source, std::int64_t token, std::int64_t column) {
  const std::uint64_t key = splitmix64(source.seed ^ 0x64726f706f7574u);
  const std::array<std::uint32_t, 4> words =
      philox4x32({static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(source.site),
                  static_cast<std::uint32_t>(source.step), static_cast<std::uint32_t>(column / 4)},
                 {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  return (words[static_cast<std::size_t>(column % 4)] + 0.5) * 0x1p-32;
}

/// Returns (1 − z) / (1 − p) by the formula of the paper.
double concrete_factor(double logit, double u) {
  const double p = 1 / (1 + std::exp(-logit));
  const double z = 1 / (1 + std::exp(-(std::log(p) - std::log(1 - p) + std::log(u) - std::log(1 - u)) / 0.1));
  return (1 - z) / (1 - p);
}

template <class T>
Grid<T> concretely_dropped(const Source& source, const Grid<T>& x, double logit, int threads = 1) {
  Grid<T> y(x.rows, x.cols, 3);
  const std::vector<T> rate{static_cast<T>(static_cast<float>(logit))};
  launch_on(threads, ApplyConcreteDropout<T>{.x = x.matrix(), .logit = rate, .y = y.matrix(), .mask = source.mask()});
  EXPECT_TRUE(y.gaps_untouched());
  return y;
}

TYPED_TEST(DropoutTest, ConcreteFollowsTheFormulaAndItsDerivative) {
  using T = TypeParam;
  const Source source{.seed = 5, .site = 3, .first = 19, .step = 2};
  for (const std::int64_t cols : {1, 6, 67, 130}) {
    for (const double logit : {-2.25, 0.0, 1.5}) {  // exact in every type
      const auto x = Grid<T>::random(7, cols, "x", 1), dy = Grid<T>::random(7, cols, "dy");
      std::vector<double> expected, sums, scales;
      for (std::int64_t r = 0; r < x.rows; ++r) {
        double sum = 0, scale = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          const double u = uniform(source, source.first + r, c), h = 1e-6;
          expected.push_back(x.at(r, c) * concrete_factor(logit, u));
          const double slope = (concrete_factor(logit + h, u) - concrete_factor(logit - h, u)) / (2 * h);
          sum += dy.at(r, c) * x.at(r, c) * slope;
          scale += std::abs(dy.at(r, c) * x.at(r, c) * slope);
        }
        sums.push_back(sum);
        scales.push_back(scale);
      }
      expect_close(concretely_dropped(source, x, logit), expected, std::max(tolerance_of<T>, 1e-9));
      EXPECT_EQ(concretely_dropped(source, x, logit, 2).flat(), concretely_dropped(source, x, logit).flat());
      Grid<Accumulator<T>> d_logit(1, x.rows);
      const std::vector<T> rate{static_cast<T>(static_cast<float>(logit))};
      launch_on(
          2, ConcreteDropoutGrad<T>{
                 .x = x.matrix(), .dy = dy.matrix(), .logit = rate, .d_logit = d_logit.span(), .mask = source.mask()});
      for (std::int64_t r = 0; r < x.rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        EXPECT_NEAR(d_logit.at(0, r), sums[row], 2e-5 * scales[row] + 1e-6) << "cols " << cols << ", logit " << logit;
      }
    }
  }
}

/// Numbers for which r¹⁰ overflows or underflows in f32
TYPED_TEST(DropoutTest, ConcreteIsFiniteAtExtremeRates) {
  using T = TypeParam;
  const auto x = Grid<T>::random(50, 50, "x");
  for (const double logit : {-40.0, -10.0, 10.0}) {
    for (const double value : concretely_dropped({}, x, logit).flat()) EXPECT_TRUE(std::isfinite(value)) << logit;
  }
  EXPECT_EQ(concretely_dropped({}, x, -60).flat(), x.flat());
}

TYPED_TEST(DropoutTest, RegulariserIsNormAndEntropyOfARate) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const std::vector<A> squares{A(7)}, d_loss{A(3)};
  for (const double logit : {-3.0, 0.0, 0.5}) {
    const auto loss_at = [](double at, double norm) {
      const double p = 1 / (1 + std::exp(-at));
      return 0.25 * norm / (1 - p) + 2 * (p * std::log(p) + (1 - p) * std::log(1 - p));
    };
    const std::vector<T> rate{static_cast<T>(static_cast<float>(logit))};
    std::vector<A> loss{A(-1)}, d_squares{A(-1)}, d_logit{A(10)};
    launch_on(1, ConcreteRegulariser<T>{
                     .logit = rate, .squares = squares, .loss = loss, .norm_factor = 0.25, .entropy_factor = 2});
    EXPECT_NEAR(loss[0], loss_at(logit, 7), 1e-5);
    ConcreteRegulariserBackward<T> backward{.logit = rate,
                                            .squares = squares,
                                            .d_loss = d_loss,
                                            .d_squares = d_squares,
                                            .d_logit = {},
                                            .norm_factor = 0.25,
                                            .entropy_factor = 2};
    launch_on(1, backward);
    backward.d_squares = {};
    backward.d_logit = d_logit;
    launch_on(1, backward);
    const double h = 1e-5;
    EXPECT_NEAR(d_squares[0], 3 * (loss_at(logit, 8) - loss_at(logit, 7)), 1e-5);
    EXPECT_NEAR(d_logit[0], 10 + 3 * (loss_at(logit + h, 7) - loss_at(logit - h, 7)) / (2 * h), 1e-4);
  }
}

TEST(Dropout, RefusesWhatDoesNotFit) {
  const auto x = Grid<float>::random(3, 4, "x");
  EXPECT_THROW(dropped<float>({.site = 1 << 16}, x, 0.1), Error);
  EXPECT_THROW(dropped<float>({.first = -1}, x, 0.1), Error);
  EXPECT_THROW(dropped<float>({.block = 0}, x, 0.1), Error);
  EXPECT_THROW(dropped<float>({.block = most_dropped_tokens + 1}, x, 0.1), Error);
  EXPECT_THROW(dropped<float>({.block = 2, .seq_len = 0}, x, 0.1), Error);
  EXPECT_THROW(dropped<float>({}, x, 1.0), Error);
  Grid<float> y(3, 5);
  const Source source;
  EXPECT_THROW(launch_on(1, ApplyDropout<float>{x.matrix(), y.matrix(), source.mask(), 0.1}), Error);
  EXPECT_THROW(concretely_dropped<float>({.block = 2, .seq_len = 4}, x, 0), Error);
}

}  // namespace
}  // namespace lyceum
