#include "autograd/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/linear.h"
#include "core/copy.h"
#include "core/random.h"
#include "kernels/rope.h"
#include "support/tested_stream.h"

namespace lyceum::latents {
namespace {

constexpr LatentHeads heads{.heads = 3, .nope_dim = 4, .rope_dim = 2, .value_dim = 5};
constexpr std::int64_t length = 12, rank = 7;
constexpr double scale = 0.3;

using Values = std::vector<double>;

Values random_values(const std::string& name, std::int64_t count) {
  const Philox random(1, name);
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(random.normal(static_cast<std::uint64_t>(i)));
  return values;
}

/// The inputs of one sequence, and W.
struct Problem {
  Values q = random_values("q", length*heads.heads*heads.head_dim()), latent = random_values("c", length*rank),
         key = random_values("key", length*heads.rope_dim), up = random_values("up", heads.heads*heads.up_dim() * rank);
};

/// Returns the pair of columns (x, y), rotated by the angle of its position. There is one pair, whose frequency is 1.
std::pair<double, double> turned(double x, double y, std::int64_t position) {
  const double c = std::cos(static_cast<double>(position)), s = std::sin(static_cast<double>(position));
  return {x * c - y * s, y * c + x * s};
}

/// Returns the result by the formulas of DeepSeek-V2, section 2.1, with a window of `window` tokens (0: none).
Values naive(const Problem& p, std::int64_t window) {
  Values out(static_cast<std::size_t>(length * heads.heads * heads.value_dim));
  const auto at = [](const Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    const auto up = [&](std::int64_t row, std::int64_t t) {
      double sum = 0;
      for (std::int64_t r = 0; r < rank; ++r) {
        sum += at(p.up, (head * heads.up_dim() + row) * rank + r) * at(p.latent, t * rank + r);
      }
      return sum;
    };
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t q = (t * heads.heads + head) * heads.head_dim(), first = window > 0 ? t + 1 - window : 0;
      const auto [qx, qy] = turned(at(p.q, q + heads.nope_dim), at(p.q, q + heads.nope_dim + 1), t);
      Values weights;
      double sum = 0;
      for (std::int64_t i = std::max<std::int64_t>(first, 0); i <= t; ++i) {
        const auto [kx, ky] = turned(at(p.key, 2 * i), at(p.key, 2 * i + 1), i);
        double score = qx * kx + qy * ky;
        for (std::int64_t d = 0; d < heads.nope_dim; ++d) score += at(p.q, q + d) * up(d, i);
        weights.push_back(std::exp(scale * score));
        sum += weights.back();
      }
      for (std::int64_t d = 0; d < heads.value_dim; ++d) {
        double value = 0;
        for (std::size_t j = 0; j < weights.size(); ++j) {
          value += weights[j] / sum *
                   up(heads.nope_dim + d, std::max<std::int64_t>(first, 0) + static_cast<std::int64_t>(j));
        }
        out[static_cast<std::size_t>((t * heads.heads + head) * heads.value_dim + d)] = value;
      }
    }
  }
  return out;
}

Tensor rows_of(const Stream& stream, const Values& values, std::int64_t cols, std::int64_t first, std::int64_t count) {
  const Tensor tensor = Tensor::empty(stream, DType::f64, {count, cols});
  copy_to_device(
      stream, tensor.span<double>(),
      std::span(values).subspan(static_cast<std::size_t>(first * cols), static_cast<std::size_t>(count * cols)));
  return tensor;
}

LatentAttention operation(const Stream& stream, std::int64_t seq_len, std::int64_t window) {
  const Tensor table = Tensor::empty(stream, DType::f64, {length, heads.rope_dim});
  launch(stream, RopeTable<double>{.table = table.matrix<double>(), .base = 100});
  return {.heads = heads, .seq_len = seq_len, .scale = scale, .rope_table = table, .window = window};
}

void expect_values(const Stream& stream, const Tensor& tensor, const Values& expected, std::int64_t first_row) {
  const Values values = values_of<double>(stream, tensor);
  const std::int64_t first = first_row * tensor.shape()[1];
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(std::abs(values[i] - expected[static_cast<std::size_t>(first) + i]) <= 1e-12)
        << "row " << first_row << ", element " << i;
  }
}

TEST(LatentAttention, IsItsFormula) {
  const Stream stream = tested_stream();
  const Problem p;
  for (const std::int64_t window : {0, 1, 5}) {
    const Tensor latent = rows_of(stream, p.latent, rank, 0, length), up = rows_of(stream, p.up, rank, 0, 27);
    const Tensor kv = Tensor::empty(stream, DType::f64, {length, heads.heads * heads.up_dim()});
    multiply_transposed(stream, latent, up, kv);
    LatentAttention::Saved saved;
    const Tensor q = rows_of(stream, p.q, heads.heads * heads.head_dim(), 0, length);
    const Tensor out = operation(stream, length, window)
                           .forward(stream, saved, q, kv, rows_of(stream, p.key, heads.rope_dim, 0, length));
    expect_values(stream, out, naive(p, window), 0);
  }
}

/// Continues a cache by 1, 2, 4 or 12 tokens at a time, with W absorbed and not.
TEST(LatentAttention, ContinuesACache) {
  const Stream stream = tested_stream();
  const Problem p;
  bool absorbed = false, expanded = false;
  for (const std::int64_t window : {0, 1, 5}) {
    const Values expected = naive(p, window);
    for (const std::int64_t count : {1, 2, 4, 12}) {
      KeyValueCache cache{.capacity = length, .window = window};
      Parameter up = whole_parameter("up", {heads.heads * heads.up_dim(), rank}, 1.0, true);
      up.value = rows_of(stream, p.up, rank, 0, heads.heads * heads.up_dim());
      const CachedLatentAttention attention{operation(stream, count, window), &up, &cache};
      for (std::int64_t first = 0; first < length; first += count) {
        CachedLatentAttention::Saved saved;
        const Tensor out = attention.forward(
            stream, saved, rows_of(stream, p.q, heads.heads * heads.head_dim(), first, count),
            rows_of(stream, p.latent, rank, first, count), rows_of(stream, p.key, heads.rope_dim, first, count));
        expect_values(stream, out, expected, first);
        (attention.absorbs(count, first + count) ? absorbed : expanded) = true;
      }
      EXPECT_EQ(cache.length, length);
      EXPECT_EQ(cache.keys.shape(), (Shape{cache.rows(), rank + heads.rope_dim}));
      EXPECT_FALSE(cache.values.defined());
      CachedLatentAttention::Saved saved;
      EXPECT_THROW(attention.forward(stream, saved, rows_of(stream, p.q, heads.heads * heads.head_dim(), 0, count),
                                     rows_of(stream, p.latent, rank, 0, count),
                                     rows_of(stream, p.key, heads.rope_dim, 0, count)),
                   Error)
          << "it is full";
    }
  }
  EXPECT_TRUE(absorbed && expanded);
}

}  // namespace
}  // namespace lyceum::latents
