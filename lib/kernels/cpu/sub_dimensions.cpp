#include "kernels/sub_dimensions.h"

#include <algorithm>

#include "kernels/cpu/parallel_for.h"
#include "kernels/sub_dimensions_checks.h"

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const SubDimensionFactors<A>& work) {
  require_fitting(work);
  parallel_for(stream, work.logits.rows, rows_per_thread(32 * work.logits.cols),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const ActiveSubDimensions on(work.always_on, work.index.row(t), work.index.cols);
                   compute_factors(work.logits.row(t), work.logits.cols, on, work.scaling, work.factors.row(t));
                 }
               });
}

template <class A>
void run(const CpuStream& stream, const SubDimensionFactorsBackward<A>& work) {
  require_fitting(work);
  parallel_for(stream, work.logits.rows, rows_per_thread(32 * work.logits.cols),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const ActiveSubDimensions on(work.always_on, work.index.row(t), work.index.cols);
                   factors_gradient(work.logits.row(t), work.logits.cols, on, work.scaling, work.d_factors.row(t),
                                    work.d_logits.row(t));
                 }
               });
}

template <class A>
void run(const CpuStream& stream, const SubDimensionLoad<A>& work) {
  require_fitting(work);
  const auto& factors = work.factors;
  parallel_for(stream, work.load.rows, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) {
      double* load = work.load.row(s);
      std::fill_n(load, work.load.cols, 0.0);
      const std::int64_t begin = std::clamp<std::int64_t>(s * work.seq_len - work.first, 0, factors.rows);
      const std::int64_t end = std::clamp<std::int64_t>((s + 1) * work.seq_len - work.first, 0, factors.rows);
      for (std::int64_t t = begin; t < end; ++t) {
        if (work.index.cols > 0 && work.index.row(t)[0] >= 0) load[work.index.row(t)[0]] += 1;
        double sum = 0;
        for (std::int64_t i = 0; i < factors.cols; ++i) sum += static_cast<double>(factors.row(t)[i]);
        for (std::int64_t i = 0; i < factors.cols; ++i) {
          load[factors.cols + i] += static_cast<double>(factors.row(t)[i]) / sum;
        }
      }
    }
  });
}

template <class A>
void run(const CpuStream& stream, const SubDimensionLoadBackward<A>& work) {
  require_fitting(work);
  const auto& factors = work.factors;
  parallel_for(stream, factors.rows, rows_per_thread(4 * factors.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const double* slope = work.d_load.row((work.first + t) / work.seq_len) + factors.cols;
      shares_gradient(factors.row(t), factors.cols, slope, work.d_factors.row(t));
    }
  });
}

void run(const CpuStream& stream, const SubDimensionRows& rows) {
  require_fitting(rows);
  parallel_for(stream, std::ssize(rows.source), elements_per_thread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto at = static_cast<std::size_t>(r);
      rows.source[at] = source_of(rows, rows.pair_of_row[at]);
    }
  });
}

template <class T>
void run(const CpuStream& stream, const PlaceSubDimensions<T>& place) {
  using A = Accumulator<T>;
  const std::int64_t sub_dimensions = require_fitting(place), width = place.rows.cols;
  parallel_for(stream, place.y.rows, rows_per_thread(place.y.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t i = 0; i < sub_dimensions; ++i) {
        T* y = place.y.row(t) + i * width;
        const T* x = nullptr;
        if (i < place.always_on) {
          if (!place.dense.data) continue;
          x = place.dense.row(t) + i * width;
        } else if (const std::int64_t slot = slot_of(place, t, i); slot >= 0) {
          x = place.rows.row(slot);
        }
        if (!x) {
          std::fill_n(y, width, T(0));
        } else if (!place.factors.data) {
          std::copy_n(x, width, y);
        } else {
          const A factor = place.factors.row(t)[i];
#pragma omp simd
          for (std::int64_t c = 0; c < width; ++c) y[c] = static_cast<T>(factor * static_cast<A>(x[c]));
        }
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const PlaceSubDimensionsBackward<T>& place) {
  using A = Accumulator<T>;
  const std::int64_t sub_dimensions = require_fitting(place), width = place.rows.cols;
  parallel_for(stream, place.dy.rows, rows_per_thread(2 * place.dy.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t i = 0; i < sub_dimensions; ++i) {
        const T *dy = place.dy.row(t) + i * width, *x = nullptr;
        T* dx = nullptr;
        if (i < place.always_on) {
          x = place.dense.row(t) + i * width;
          dx = place.d_dense.row(t) + i * width;
        } else if (const std::int64_t slot = slot_of(place, t, i); slot >= 0) {
          x = place.rows.row(slot);
          dx = place.d_rows.row(slot);
        }
        A dot = 0;
        if (x) {
          const A factor = place.factors.row(t)[i];
#pragma omp simd reduction(+ : dot)
          for (std::int64_t c = 0; c < width; ++c) {
            dot += static_cast<A>(dy[c]) * static_cast<A>(x[c]);
            dx[c] = static_cast<T>(factor * static_cast<A>(dy[c]));
          }
        }
        place.d_factors.row(t)[i] = dot;
      }
    }
  });
}

template <class T>
void run(const CpuStream& stream, const AddPairs<T>& add) {
  using A = Accumulator<T>;
  require_fitting(add);
  parallel_for(stream, add.y.rows, rows_per_thread(add.y.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const T* terms[max_sub_dimensions];
      int count = 0;
      for (std::int64_t j = 0; j < add.k; ++j) {
        const std::int64_t slot = add.slot[static_cast<std::size_t>(t * add.k + j)];
        if (slot >= 0) terms[count++] = add.rows.row(slot);
      }
      T* y = add.y.row(t);
#pragma omp simd
      for (std::int64_t c = 0; c < add.y.cols; ++c) {
        A sum = static_cast<A>(y[c]);
        for (int j = 0; j < count; ++j) sum += static_cast<A>(terms[j][c]);
        y[c] = static_cast<T>(sum);
      }
    }
  });
}

LYCEUM_SUB_DIMENSION_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
