#include "kernels/pieces.h"

#include <algorithm>

#include "kernels/cpu/parallel_for.h"
#include "kernels/pieces_checks.h"

namespace lyceum {

template <class A>
void run(const CpuStream& stream, const PieceFactors<A>& pieces) {
  require_fitting(pieces);
  parallel_for(stream, pieces.logits.rows, rows_per_thread(32 * pieces.logits.cols),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const std::uint64_t on = pieces_on(pieces.always_on, pieces.index.row(t), pieces.index.cols);
                   factors_of(pieces.logits.row(t), pieces.logits.cols, on, pieces.scaling, pieces.factors.row(t));
                 }
               });
}

template <class A>
void run(const CpuStream& stream, const PieceFactorsBackward<A>& pieces) {
  require_fitting(pieces);
  parallel_for(stream, pieces.logits.rows, rows_per_thread(32 * pieces.logits.cols),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const std::uint64_t on = pieces_on(pieces.always_on, pieces.index.row(t), pieces.index.cols);
                   factors_slope(pieces.logits.row(t), pieces.logits.cols, on, pieces.scaling, pieces.d_factors.row(t),
                                 pieces.d_logits.row(t));
                 }
               });
}

template <class A>
void run(const CpuStream& stream, const PieceLoad<A>& pieces) {
  require_fitting(pieces);
  const auto& factors = pieces.factors;
  parallel_for(stream, pieces.load.rows, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) {
      double* load = pieces.load.row(s);
      std::fill_n(load, pieces.load.cols, 0.0);
      const std::int64_t begin = std::clamp<std::int64_t>(s * pieces.seq_len - pieces.first, 0, factors.rows);
      const std::int64_t end = std::clamp<std::int64_t>((s + 1) * pieces.seq_len - pieces.first, 0, factors.rows);
      for (std::int64_t t = begin; t < end; ++t) {
        if (pieces.index.cols > 0 && pieces.index.row(t)[0] >= 0) load[pieces.index.row(t)[0]] += 1;
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
void run(const CpuStream& stream, const PieceLoadBackward<A>& pieces) {
  require_fitting(pieces);
  const auto& factors = pieces.factors;
  parallel_for(stream, factors.rows, rows_per_thread(4 * factors.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const double* slope = pieces.d_load.row((pieces.first + t) / pieces.seq_len) + factors.cols;
      share_slope(factors.row(t), factors.cols, slope, pieces.d_factors.row(t));
    }
  });
}

void run(const CpuStream& stream, const PieceRows& rows) {
  require_fitting(rows);
  parallel_for(stream, std::ssize(rows.source), elements_a_thread, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      const auto at = static_cast<std::size_t>(r);
      rows.source[at] = source_of(rows, rows.pair_of_row[at]);
    }
  });
}

template <class T>
void run(const CpuStream& stream, const PlacePieces<T>& place) {
  using A = Accumulator<T>;
  const std::int64_t pieces = require_fitting(place), width = place.rows.cols;
  parallel_for(stream, place.y.rows, rows_per_thread(place.y.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t i = 0; i < pieces; ++i) {
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
void run(const CpuStream& stream, const PlacePiecesBackward<T>& place) {
  using A = Accumulator<T>;
  const std::int64_t pieces = require_fitting(place), width = place.rows.cols;
  parallel_for(stream, place.dy.rows, rows_per_thread(2 * place.dy.cols), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t i = 0; i < pieces; ++i) {
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
      const T* terms[most_pieces];
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

LYCEUM_PIECES_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
