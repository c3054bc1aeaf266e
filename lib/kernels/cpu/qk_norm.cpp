#include "kernels/qk_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/qk_norm_checks.h"

namespace lyceum {

namespace {

/// Checks the operands and calls f(t) for every token t, in parallel.
template <class Norm, class F>
void for_each_token(const CpuStream& stream, const Norm& norm, const F& f) {
  require_fitting(norm);
  for_each_row(stream, norm.x.rows, norm.x.cols, f);
}

/// Returns the weights of a head; heads are numbered as in QkNormShape.
template <class Norm>
auto weights_of(const Norm& norm, std::int64_t head) {
  return (head < norm.shape.heads ? norm.q_weight : norm.k_weight).data() + norm.shape.first_weight(head);
}

/// sums[g] = Σ f(head) over the heads of group g.
template <class A, class F>
void sum_groups(const QkNormShape& shape, A* sums, const F& f) {
  for (std::int64_t g = 0; g < shape.groups(); ++g) {
    const std::int64_t first = shape.first_head(g);
    sums[g] = 0;
    for (std::int64_t head = first; head < first + shape.heads_in(g); ++head) sums[g] += f(head);
  }
}

}  // namespace

template <class T>
void run(const CpuStream& stream, const QkSquares<T>& norm) {
  using A = Accumulator<T>;
  const std::int64_t dim = norm.shape.head_dim;
  for_each_token(stream, norm, [&](std::int64_t t) {
    sum_groups(norm.shape, norm.sums.row(t), [&](std::int64_t head) {
      const T* x = norm.x.row(t) + head * dim;
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < dim; ++c) sum += static_cast<A>(x[c]) * static_cast<A>(x[c]);
      return sum;
    });
  });
}

template <class T>
void run(const CpuStream& stream, const QkNormForward<T>& norm) {
  using A = Accumulator<T>;
  const QkNormShape& shape = norm.shape;
  const std::int64_t dim = shape.head_dim;
  for_each_token(stream, norm, [&](std::int64_t t) {
    A* inverses = norm.inverse_rms.row(t);
    for (std::int64_t g = 0; g < shape.groups(); ++g) {
      inverses[g] =
          A{1} / std::sqrt(norm.squares.row(t)[g] / static_cast<A>(shape.elements(g)) + static_cast<A>(norm.eps));
    }
    for (std::int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
      const T *x = norm.x.row(t) + head * dim, *weight = weights_of(norm, head);
      T* y = norm.y.row(t) + head * dim;
      const A inverse = inverses[shape.group_of(head)];
#pragma omp simd
      for (std::int64_t c = 0; c < dim; ++c) {
        y[c] = round_to<T>(static_cast<A>(x[c]) * inverse * static_cast<A>(weight[c]));
      }
    }
    std::copy_n(norm.x.row(t) + shape.normed(), shape.keys(), norm.y.row(t) + shape.normed());
  });
}

template <class T>
void run(const CpuStream& stream, const QkDots<T>& norm) {
  using A = Accumulator<T>;
  const std::int64_t dim = norm.shape.head_dim;
  for_each_token(stream, norm, [&](std::int64_t t) {
    sum_groups(norm.shape, norm.sums.row(t), [&](std::int64_t head) {
      const T *x = norm.x.row(t) + head * dim, *dy = norm.dy.row(t) + head * dim, *weight = weights_of(norm, head);
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < dim; ++c) {
        sum += static_cast<A>(dy[c]) * static_cast<A>(weight[c]) * static_cast<A>(x[c]);
      }
      return sum;
    });
  });
}

template <class T>
void run(const CpuStream& stream, const QkNormBackward<T>& norm) {
  using A = Accumulator<T>;
  const QkNormShape& shape = norm.shape;
  const std::int64_t dim = shape.head_dim;
  for_each_token(stream, norm, [&](std::int64_t t) {
    for (std::int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
      const T *x = norm.x.row(t) + head * dim, *dy = norm.dy.row(t) + head * dim, *weight = weights_of(norm, head);
      T* dx = norm.dx.row(t) + head * dim;
      const std::int64_t g = shape.group_of(head);
      const A inverse = norm.inverse_rms.row(t)[g];
      // dx = inverse · (dy ⊙ w − x · inverse² · mean(dy ⊙ w ⊙ x))
      const A along_x = norm.dots.row(t)[g] * inverse * inverse / static_cast<A>(shape.elements(g));
#pragma omp simd
      for (std::int64_t c = 0; c < dim; ++c) {
        const A direct = static_cast<A>(dy[c]) * static_cast<A>(weight[c]);
        dx[c] = round_to<T>(inverse * (direct - static_cast<A>(x[c]) * along_x));
      }
    }
    std::copy_n(norm.dy.row(t) + shape.normed(), shape.keys(), norm.dx.row(t) + shape.normed());
  });
}

template <class T>
void run(const CpuStream& stream, const QkNormWeightGrad<T>& norm) {
  using A = Accumulator<T>;
  require_fitting(norm);
  const QkNormShape& shape = norm.shape;
  const std::int64_t dim = shape.head_dim, first = norm.of_keys ? shape.heads : 0;
  const std::int64_t end = norm.of_keys ? shape.heads + shape.kv_heads : shape.heads;
  add_column_sums(stream, norm.x.rows, norm.d_weight, [&](std::int64_t t, A* partial) {
    for (std::int64_t head = first; head < end; ++head) {
      const T *x = norm.x.row(t) + head * dim, *dy = norm.dy.row(t) + head * dim;
      A* sum = partial + shape.first_weight(head);
      const A inverse = norm.inverse_rms.row(t)[shape.group_of(head)];
#pragma omp simd
      for (std::int64_t c = 0; c < dim; ++c) sum[c] += static_cast<A>(dy[c]) * (static_cast<A>(x[c]) * inverse);
    }
  });
}

LYCEUM_QK_NORM_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
