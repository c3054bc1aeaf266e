#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "parallel/tensor/qk_norm.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

constexpr std::int64_t normed_tokens = 5, dim = 6, heads_a_rank = 4, keys_a_rank = 2;

/// Applies the operation to the heads of some ranks, with separate weights per head or common ones.
struct Normed {
  const Stream stream = CpuStream(1);
  ParameterUnit unit{"unit", ParameterUnit::Group::dense};
  Tensor y, dx;

  /// Uses the heads of `share` ranks, from rank `first` of `all` on.
  Normed(const ProcessGroup& group, bool by_head, int first, int share, int all) {
    const QkNormShape shape{share * heads_a_rank, share * keys_a_rank, dim, by_head, all / share};
    Parameter& q = unit.add(whole_parameter("q", {shape.query_weights()}, {}, false));
    Parameter& k = unit.add(whole_parameter("k", {shape.key_weights()}, {}, false));
    unit.allocate(stream, DType::f64, true);
    const std::int64_t before = by_head ? 0 : first;
    fill(q.value, "q", before * heads_a_rank * dim);
    fill(k.value, "k", before * keys_a_rank * dim);
    Tape tape(stream);
    const Variable input = tape.leaf(columns(shape, "x", first, all));
    const Variable output = tape.apply(QkNorm{&q, &k, shape, 1e-3, &group}, input);
    tape.backward({{output, columns(shape, "dy", first, all)}});
    y = output.value;
    dx = tape.gradient(input);
  }

 private:
  static void fill(const Tensor& values, const char* name, std::int64_t first) {
    const Philox random(7, name);
    for (std::int64_t i = 0; i < values.size(); ++i) {
      values.data<double>()[i] = random.normal(static_cast<std::uint64_t>(first + i));
    }
  }
  /// Returns the columns q | k | v of these heads.
  Tensor columns(const QkNormShape& shape, const char* name, int first, int all) const {
    const Tensor made = Tensor::empty(stream, DType::f64, {normed_tokens, shape.width()});
    double* to = made.data<double>();
    for (std::int64_t t = 0; t < normed_tokens; ++t) {
      std::int64_t part = 0;
      for (const std::int64_t own : {shape.queries(), shape.keys(), shape.keys()}) {
        const Philox random(7, name + std::to_string(part++));
        const std::int64_t a_rank = (part == 1 ? heads_a_rank : keys_a_rank) * dim;
        for (std::int64_t c = 0; c < own; ++c) {
          *to++ = random.normal(static_cast<std::uint64_t>(t * all * a_rank + first * a_rank + c));
        }
      }
    }
    return made;
  }
};

/// Extracts one rank's columns q | k | v from those of all ranks.
std::vector<double> own_columns(const Tensor& whole, int rank, int ranks) {
  std::vector<double> own;
  const double* row = whole.data<double>();
  for (std::int64_t t = 0; t < normed_tokens; ++t) {
    for (const std::int64_t heads : {heads_a_rank, keys_a_rank, keys_a_rank}) {
      const double* from = row + rank * heads * dim;
      own.insert(own.end(), from, from + heads * dim);
      row += ranks * heads * dim;
    }
  }
  return own;
}

void expect_near(std::span<const double> actual, std::span<const double> expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(std::abs(actual[i] - expected[i]) <= 1e-12) << what << i;
}

TEST(QkNorm, OfHeadsOnManyRanksIsThatOfOneRank) {
  const ProcessGroup group = test_world(), alone = ProcessGroup::self();
  const int rank = group.rank(), ranks = group.size();
  for (const bool by_head : {true, false}) {
    const Normed whole(alone, by_head, 0, ranks, ranks), own(group, by_head, rank, 1, ranks);
    expect_near(own.y.span<const double>(), own_columns(whole.y, rank, ranks), "y");
    expect_near(own.dx.span<const double>(), own_columns(whole.dx, rank, ranks), "dx");
    for (const std::size_t p : {0, 1}) {
      const Tensor expected = whole.unit.parameters()[p]->gradient, gradient = own.unit.parameters()[p]->gradient;
      if (by_head) {  // each rank has the part of its heads
        group.all_reduce(gradient.span<double>());
        expect_near(gradient.span<const double>(), expected.span<const double>(), "d_weight");
      } else {
        expect_near(gradient.span<const double>(),
                    expected.slice(rank * gradient.size(), gradient.size()).span<const double>(), "d_weight");
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
