#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/host_device.h"

namespace lyceum::grouped {

/// A block's tile of c is 64 x 64, 4 x 4 a thread, 16 of k a step.
struct PlainTiling {
  static constexpr int m = 64, n = 64, k = 16, threads = 256;
};

template <class T>
struct PlainThread {
  int index = 0;
  T c[4][4] = {};
};

/// A step's operands in shared memory; a column more than is used keeps columns in different banks.
template <class T>
struct PlainShared {
  T a[PlainTiling::k][PlainTiling::m + 1];
  T b[PlainTiling::k][PlainTiling::n + 1];
};

/// One tile of a grouped product in T without tensor cores: float and double. A Machine is as for MmaTile, with each(),
/// sync() and shared().
template <Product product, class T, class Machine>
class PlainTile {
  using Tiling = PlainTiling;

 public:
  LYCEUM_DEVICE PlainTile(Machine& machine, const Expert& expert, Corner corner)
      : machine_(machine), expert_(expert), corner_(corner) {}

  LYCEUM_DEVICE void run() {
    machine_.each([](PlainThread<T>& t) {
      LYCEUM_UNROLL
      for (int i = 0; i < 16; ++i) t.c[i / 4][i % 4] = 0;
    });
    for (std::int32_t k = 0; k < expert_.k; k += Tiling::k) {
      machine_.each([&](PlainThread<T>& t) { load(t.index, k); });
      machine_.sync();
      machine_.each([&](PlainThread<T>& t) { multiply(t); });
      machine_.sync();
    }
    machine_.each([&](PlainThread<T>& t) { write(t); });
  }

 private:
  LYCEUM_DEVICE void load(int thread, std::int32_t k) {
    PlainShared<T>& shared = machine_.shared();
    for (int i = thread; i < Tiling::m * Tiling::k; i += Tiling::threads) {
      // Neighbouring threads read neighbours in memory.
      const int a_k = a_along_k(product) ? i % Tiling::k : i / Tiling::m;
      const int a_m = a_along_k(product) ? i / Tiling::k : i % Tiling::m;
      shared.a[a_k][a_m] =
          element(expert_.a, expert_.a_stride, a_along_k(product), corner_.m + a_m, expert_.filled, k + a_k);
      const int b_k = b_along_k(product) ? i % Tiling::k : i / Tiling::n;
      const int b_n = b_along_k(product) ? i / Tiling::k : i % Tiling::n;
      shared.b[b_k][b_n] =
          element(expert_.b, expert_.b_stride, b_along_k(product), corner_.n + b_n, expert_.n, k + b_k);
    }
  }
  LYCEUM_DEVICE T element(const void* operand, std::int64_t stride, bool along_k, std::int32_t at, std::int32_t extent,
                          std::int32_t k) const {
    if (at >= extent || k >= expert_.k) return 0;
    return static_cast<const T*>(operand)[along_k ? at * stride + k : k * stride + at];
  }

  LYCEUM_DEVICE void multiply(PlainThread<T>& t) {
    const PlainShared<T>& shared = machine_.shared();
    LYCEUM_UNROLL
    for (int k = 0; k < Tiling::k; ++k) {
      LYCEUM_UNROLL
      for (int i = 0; i < 4; ++i) {
        LYCEUM_UNROLL
        for (int j = 0; j < 4; ++j) t.c[i][j] += shared.a[k][row_of(t, i)] * shared.b[k][col_of(t, j)];
      }
    }
  }
  LYCEUM_DEVICE static int row_of(const PlainThread<T>& t, int i) { return t.index / 16 + 16 * i; }
  LYCEUM_DEVICE static int col_of(const PlainThread<T>& t, int j) { return t.index % 16 + 16 * j; }

  LYCEUM_DEVICE void write(const PlainThread<T>& t) {
    LYCEUM_UNROLL
    for (int i = 0; i < 4; ++i) {
      LYCEUM_UNROLL
      for (int j = 0; j < 4; ++j) {
        const std::int32_t row = corner_.m + row_of(t, i), col = corner_.n + col_of(t, j);
        if (row >= expert_.m || col >= expert_.n) continue;
        T& c = static_cast<T*>(expert_.c)[row * expert_.c_stride + col];
        if constexpr (product == Product::weight_grad) {
          c += t.c[i][j];
        } else {
          c = row < expert_.filled ? t.c[i][j] : T(0);
        }
      }
    }
  }

  Machine& machine_;
  const Expert& expert_;
  Corner corner_;
};

}  // namespace lyceum::grouped
