// Compares Zero with sums and norms that are computed from the contributions of all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "autograd/linear.h"
#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/flat_blocks.h"
#include "parallel/data/flat_range.h"
#include "parallel/data/norm_sums.h"
#include "parallel/data/zero.h"
#include "support/errors.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t micro_batches = 3;

/// Returns one rank's contribution to an element. Sums are not exact in f32, so their order matters.
float zero_part(int rank, int step, std::int64_t micro, std::size_t unit, std::int64_t i) {
  const auto at = static_cast<std::uint64_t>(((step * 8 + micro) * 8 + rank) * 8 + static_cast<std::int64_t>(unit));
  return static_cast<float>(Philox(7, "gradients").normal(at * 100000 + static_cast<std::uint64_t>(i)));
}

class ZeroTest : public testing::Test {
 protected:
  const CpuStream stream{1};
  const Mesh mesh = Mesh::create(test_world(), {});
  const int rank = mesh.data.rank(), size = mesh.data.size();
  std::vector<std::unique_ptr<ParameterUnit>> own_units;
  std::vector<ParameterUnit*> units;
  // one layer per unit, except the last two, which share one
  const std::vector<std::int64_t> sizes{5000, 1, 3333, 20000};

  void SetUp() override {
    for (std::size_t u = 0; u < sizes.size(); ++u) {
      own_units.push_back(std::make_unique<ParameterUnit>("unit " + std::to_string(u), ParameterUnit::Group::dense,
                                                          static_cast<int>(std::min<std::size_t>(u, 2))));
      units.push_back(own_units.back().get());
      units.back()->add(whole_parameter("big " + std::to_string(u), {sizes[u]}, 1.0, true));
      units.back()->add(whole_parameter("small " + std::to_string(u), {3}, {}, false));
    }
  }
  /// Adds one step's contributions by the calls that a tape makes, from the last unit to the first.
  void add_gradients(Zero& zero, int step) const {
    for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
      for (std::size_t u = units.size(); u-- > 0;) {
        for (const auto& parameter : units[u]->parameters()) {
          units[u]->memory()->need_gradients(*units[u]);
          const std::span<float> gradient = parameter->gradient.span<float>();
          for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] += zero_part(rank, step, micro, u, static_cast<std::int64_t>(i));
          }
          zero.gradient_final(*parameter);
        }
      }
    }
    zero.finish_gradients();
  }
  /// Returns the expected sum. Stages 0 and 1 sum over micro-batches, then over ranks; stages 2 and 3 vice versa.
  float expected(int stage, int step, std::size_t unit, std::int64_t i) const {
    const auto rows = stage < 2 ? std::int64_t{size} : micro_batches, cols = stage < 2 ? micro_batches : size;
    float sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      float part = 0;
      for (std::int64_t col = 0; col < cols; ++col) {
        part += zero_part(static_cast<int>(stage < 2 ? row : col), step, stage < 2 ? col : row, unit, i);
      }
      sum += part;
    }
    return sum;
  }
};

TEST_F(ZeroTest, SharesHoldTheSumInItsOrder) {
  for (int stage = 0; stage <= 3; ++stage) {
    Zero zero(units, mesh, stream, {.stage = stage, .micro_batches = micro_batches});
    for (int step = 0; step < 2; ++step) {
      add_gradients(zero, step);
      const std::vector<UnitShare> shares = zero.shares();
      for (std::size_t u = 0; u < shares.size(); ++u) {
        const UnitShare& share = shares[u];
        ASSERT_EQ(share.gradients.size(), share.updated.count);
        EXPECT_EQ(share.sharded, stage > 0 && size > 1);
        for (std::int64_t i = 0; i < sizes[u]; ++i) {
          if (i < share.updated.first || i >= share.updated.end()) continue;
          ASSERT_EQ(share.gradients.data<float>()[i - share.updated.first], expected(stage, step, u, i))
              << "stage " << stage << " unit " << u << " [" << i << "]";
        }
        EXPECT_EQ(units[u]->gradients().defined(), stage < 2 || size == 1);
      }
      if (size <= 4) {
        EXPECT_EQ(shares[3].owned.count * size, shares[3].size) << "parts are not equal";
      }
    }
  }
}

double gradient_norm(const Stream& stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers) {
  double norm = 0;
  GradientNorm(stream, mesh, shares, layers).launch(std::span(&norm, 1));
  return norm;
}

/// Matrices whose memory is NaN before every step. In a micro-batch, a matrix may get a contribution that can replace
/// its contents, one that can only add, or none. All stages must give the sums of the micro-batches that contribute,
/// even if the first matrix is final in two micro-batches before the others have contributed to the first one, as with
/// delayed weight gradients.
TEST_F(ZeroTest, GradientsDoNotDependOnWhatTheirMemoryHeld) {
  ParameterUnit layer("layer", ParameterUnit::Group::dense);
  const std::vector<ParameterUnit*> one{&layer};
  enum class Adds { replaces, only_adds, nothing };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<Adds>> matrices{{Adds::replaces, Adds::replaces, Adds::nothing},
                                                {Adds::nothing, Adds::only_adds, Adds::replaces},
                                                {Adds::nothing, Adds::nothing, Adds::nothing},
                                                {Adds::only_adds, Adds::replaces, Adds::replaces}};
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    layer.add(whole_parameter("matrix " + std::to_string(m), {5, 7}, 1.0, true));
  }
  const auto contribute = [&](Zero& zero, std::size_t m, std::size_t micro) {
    Parameter& matrix = *layer.parameters()[m];
    const Adds adds = matrices[m][micro];
    if (adds != Adds::nothing) {
      layer.memory()->need_gradients(layer);
      for (const auto& each : layer.parameters()) {
        if (each->gradient_empty) std::ranges::fill(each->gradient.span<float>(), nan);
      }
      if (adds == Adds::only_adds) matrix.clear_empty_gradient(stream);
      const bool sum = matrix.contribute();
      for (float& value : matrix.gradient.span<float>()) value = (sum ? value : 0) + static_cast<float>(1 << micro);
    }
    zero.gradient_final(matrix);
  };
  for (int stage = 0; stage <= 3; ++stage) {
    Zero zero(one, mesh, stream, {.stage = stage, .micro_batches = 3});
    for (const bool ahead : {false, true}) {
      if (layer.gradients().defined()) std::ranges::fill(layer.gradients().span<float>(), nan);
      if (ahead) contribute(zero, 0, 0), contribute(zero, 0, 1);
      for (std::size_t micro = 0; micro < 3; ++micro) {
        for (std::size_t m = ahead && micro < 2 ? 1 : 0; m < matrices.size(); ++m) contribute(zero, m, micro);
      }
      zero.finish_gradients();
      const UnitShare share = zero.shares()[0];
      for (std::int64_t i = share.updated.first; i < share.updated.end(); ++i) {
        float expected = 0;  // in padding
        const auto m = static_cast<std::size_t>(i / 64);
        for (std::size_t micro = 0; micro < 3 && m < matrices.size() && i % 64 < 35; ++micro) {
          if (matrices[m][micro] != Adds::nothing) expected += static_cast<float>((1 << micro) * size);
        }
        ASSERT_EQ(share.gradients.data<float>()[i - share.updated.first], expected)
            << "stage " << stage << " ahead " << ahead << " [" << i << "]";
      }
    }
  }
}

TEST_F(ZeroTest, TheNormIsThatOfTheSums) {
  double first = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    Zero zero(units, mesh, stream, {.stage = stage, .micro_batches = micro_batches});
    add_gradients(zero, 0);
    double sum = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (std::int64_t i = 0; i < sizes[u]; ++i) sum += std::pow(static_cast<double>(expected(stage, 0, u, i)), 2);
      for (std::int64_t i = 0; i < 3; ++i) sum += std::pow(static_cast<double>(expected(stage, 0, u, i)), 2);
    }
    const double norm = gradient_norm(stream, mesh, zero.shares(), 3);
    EXPECT_TRUE(std::abs(norm - std::sqrt(sum)) <= 1e-12 * norm) << norm << " for " << std::sqrt(sum);
    if (stage % 2 == 0) first = norm;
    EXPECT_EQ(norm, first) << "stage " << stage;  // the bits agree between stages 0 and 1, and between 2 and 3
    // A NaN in the gradient of one rank must reach all ranks.
    for (const UnitShare& share : zero.shares()) {
      if (share.unit == units[3] && share.updated.count > 0 && rank == size - 1) {
        share.gradients.data<float>()[share.updated.count - 1] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    const bool shows = std::isnan(gradient_norm(stream, mesh, zero.shares(), 3));
    // in stage 0, only this copy has the NaN
    EXPECT_TRUE(shows || (stage == 0 && rank < size - 1)) << "stage " << stage;
    EXPECT_THROW(gradient_norm(stream, mesh, zero.shares(), 2), Error);
  }
}

/// The sums in the second column are twice those in the first.
TEST_F(ZeroTest, ColumnsGiveANormEach) {
  Zero zero(units, mesh, stream, {.stage = 2, .micro_batches = micro_batches});
  add_gradients(zero, 0);
  const std::vector<UnitShare> shares = zero.shares();
  const NormSums norms(stream, mesh, shares, 3, 2);
  const Tensor sums = norms.zeros();
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const std::span<const float> gradients = shares[s].gradients.span<float>();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (int column = 0; column < 2; ++column) {
        sums.span<double>()[static_cast<std::size_t>(norms.offsets(column)[s]) + i / flat_block] +=
            (column + 1) * std::pow(static_cast<double>(gradients[i]), 2);
      }
    }
  }
  std::array<double, 2> both{};
  norms.norms(sums, both);
  const double expected = gradient_norm(stream, mesh, shares, 3);
  EXPECT_TRUE(std::abs(both[0] - expected) <= 1e-12 * expected);
  EXPECT_TRUE(std::abs(both[1] - std::sqrt(2.0) * expected) <= 1e-12 * expected);
}

/// Returns the initial values of a unit, without using its shares.
Tensor initial_values(const ParameterUnit& unit, const Stream& stream, DType type) {
  Tensor values = Tensor::zeros(stream, type, {unit.size()});
  unit.initialize(stream, 4, 0, values);
  return values;
}

TEST_F(ZeroTest, TwinsDoNotCountInTheNorm) {
  Zero zero(units, mesh, stream, {.stage = 0, .micro_batches = micro_batches});
  add_gradients(zero, 0);
  const double all = gradient_norm(stream, mesh, zero.shares(), 3);
  units[3]->set_twin();
  double sum = 0;
  for (std::int64_t i = 0; i < sizes[3]; ++i) sum += std::pow(static_cast<double>(expected(0, 0, 3, i)), 2);
  for (std::int64_t i = 0; i < 3; ++i) sum += std::pow(static_cast<double>(expected(0, 0, 3, i)), 2);
  EXPECT_NEAR(std::pow(gradient_norm(stream, mesh, zero.shares(), 3), 2), all * all - sum, 1e-9 * all * all);
}

TEST_F(ZeroTest, ValuesComeBeforeTheyAreUsedAndGoAfterwards) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      Zero zero(units, mesh, stream, {.stage = stage, .micro_batches = micro_batches, .type = type});
      zero.initialize(4);
      const bool goes = stage == 3 && size > 1;
      const auto use = [&](std::size_t u, UnitMemory::Pass pass) {
        units[u]->memory()->need_values(*units[u], pass);
        const Tensor expected = initial_values(*units[u], stream, type);
        ASSERT_EQ(units[u]->values().size(), padded_for_ranks(expected.size(), size));
        ASSERT_EQ(std::memcmp(units[u]->values().raw(), expected.raw(), expected.bytes()), 0) << "unit " << u;
        for (std::size_t other = 0; other < units.size(); ++other) {
          const int there = units[other]->layer(), here = units[u]->layer();
          const int next = here + (pass == UnitMemory::Pass::forward ? 1 : -1);
          EXPECT_EQ(units[other]->values().defined(), !goes || there == here || there == next);
        }
      };
      for (int repeat = 0; repeat < 2; ++repeat) {
        for (std::size_t u = 0; u < units.size(); ++u) use(u, UnitMemory::Pass::forward);
        for (std::size_t u = units.size(); u-- > 0;) use(u, UnitMemory::Pass::backward);
      }
      // Every rank changes the values that it owns; the other ranks must see that at the next use.
      for (const UnitShare& share : zero.shares()) {
        dispatch_float(type, [&]<class T>() {
          for (std::int64_t i = share.owned.first; i < share.owned.end(); ++i) {
            share.values.data<T>()[i - share.updated.first] = static_cast<T>(static_cast<float>(rank + 1));
          }
        });
      }
      if (stage == 0) continue;
      zero.values_changed();
      for (const auto& unit : units) {
        unit->memory()->need_values(*unit, UnitMemory::Pass::forward);
        std::int64_t at = 0;
        const std::vector<std::int64_t> extents = cut_evenly(unit->values().size(), size);
        for (int owner = 0; owner < size; ++owner) {
          for (std::int64_t i = 0; i < extents[static_cast<std::size_t>(owner)]; ++i, ++at) {
            dispatch_float(type, [&]<class T>() {
              ASSERT_EQ(static_cast<float>(unit->values().data<T>()[at]), static_cast<float>(owner + 1));
            });
          }
        }
      }
    }
  }
}

TEST_F(ZeroTest, EveryParameterIsFinalOnceInEveryMicroBatch) {
  for (int stage = 0; stage <= 3; ++stage) {
    Zero zero(units, mesh, stream, {.stage = stage, .micro_batches = 1});
    for (const ParameterUnit* unit : units) {
      if (unit != units[1]) {
        for (const auto& parameter : unit->parameters()) zero.gradient_final(*parameter);
      }
    }
    expect_failure([&] { zero.finish_gradients(); }, "gradients of unit 1 became final 0 times in a step of 1");
  }
  Zero zero(units, mesh, stream, {.micro_batches = 1});
  for (const auto& parameter : units[2]->parameters()) zero.gradient_final(*parameter);
  expect_failure([&] { zero.gradient_final(*units[2]->parameters()[0]); }, "unit 2 became final more than 1 times");
  expect_failure([&] { Zero(units, mesh, stream, {.micro_batches = 0}); }, "0 micro-batches");
}

TEST_F(ZeroTest, ATapeNeedsNothingElse) {
  // A linear layer on a tape with recomputation: every stage must give the bits of unsharded memory.
  ParameterUnit layer("layer", ParameterUnit::Group::dense);
  const std::vector<ParameterUnit*> one{&layer};
  Parameter& weight = layer.add(whole_parameter("weight", {48, 64}, 0.1, true));
  const Tensor x = Tensor::zeros(stream, DType::f32, {5, 64});
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = zero_part(rank, 0, 0, 0, i);
  std::vector<Tensor> gradients;
  const auto backward = [&](Tape& tape) {
    const auto block = [&](Tape& inner, const Variable& in) { return std::vector{inner.apply(Linear{&weight}, in)}; };
    const Variable in = tape.leaf(x), y = tape.recompute(block, in)[0];
    const Tensor dy = Tensor::zeros(stream, DType::f32, y.value.shape());
    for (float& value : dy.span<float>()) value = 1;
    tape.backward({{y, dy}});
    gradients.push_back(tape.gradient(in));
  };
  for (int stage = 0; stage <= 3; ++stage) {
    Zero zero(one, mesh, stream, {.stage = stage, .micro_batches = 1});
    zero.initialize(4);
    Tape tape(stream);
    tape.on_gradient_final([&](Parameter& parameter) { zero.gradient_final(parameter); });
    backward(tape);
    zero.finish_gradients();
    const UnitShare share = zero.shares()[0];
    std::vector<float> sums(static_cast<std::size_t>(x.shape()[1]));
    for (std::int64_t c = 0; c < x.shape()[1]; ++c) {
      for (int r = 0; r < size; ++r) {
        for (std::int64_t t = 0; t < 5; ++t) {
          sums[static_cast<std::size_t>(c)] += zero_part(r, 0, 0, 0, t * x.shape()[1] + c);
        }
      }
    }
    for (std::int64_t i = share.updated.first; i < share.updated.end(); ++i) {
      ASSERT_NEAR(share.gradients.data<float>()[i - share.updated.first], sums[static_cast<std::size_t>(i % 64)], 1e-3);
    }
    EXPECT_EQ(std::memcmp(gradients.back().raw(), gradients.front().raw(), gradients.front().bytes()), 0);
  }
}

}  // namespace
}  // namespace lyceum
