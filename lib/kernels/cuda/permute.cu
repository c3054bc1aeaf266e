#include "core/allocator.h"
#include "kernels/checks.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/permute.h"

namespace lyceum {

namespace {

constexpr int permute_threads = 128;
constexpr std::int64_t any_negative = std::numeric_limits<std::int64_t>::min();

template <int width, class T>
__device__ void fill_row(T* row, std::int64_t cols, T value) {
  Pack<T, width> values;
  for (int e = 0; e < width; ++e) values[e] = value;
  for (std::int64_t c = threadIdx.x * width; c < cols; c += permute_threads * width) store(row + c, values);
}

template <int width, class T>
__global__ void __launch_bounds__(permute_threads) gather(GatherRows<T> rows, IndexCheck check) {
  for (std::int64_t r = blockIdx.x; r < rows.y.rows; r += gridDim.x) {
    const std::int64_t source = rows.source[r];
    T* y = rows.y.row(r);
    if (!check.passes(source) || source < 0) {
      fill_row<width>(y, rows.y.cols, rows.none());
      continue;
    }
    const T* x = rows.x.row(source / rows.divisor);
    for (std::int64_t c = threadIdx.x * width; c < rows.y.cols; c += permute_threads * width)
      store(y + c, load<width>(x + c));
  }
}

/// One thread block per token, in a grid-stride loop. Each thread sums its packs of columns over the token's pairs, in
/// order of choice. Loading four pairs before they are added took 1.2 times as long on an H200.
template <int width, class T>
__global__ void __launch_bounds__(permute_threads) combine_rows(CombineRows<T> combine, IndexCheck check) {
  using A = Accumulator<T>;
  const bool gated = combine.gate.data != nullptr;
  for (std::int64_t t = blockIdx.x; t < combine.y.rows; t += gridDim.x) {
    for (std::int64_t c = threadIdx.x * width; c < combine.y.cols; c += permute_threads * width) {
      A sum[width] = {};
      for (std::int64_t j = 0; j < combine.k; ++j) {
        const std::int64_t slot = combine.slot[t * combine.k + j];
        if (!check.passes(slot) || slot < 0) continue;
        const auto x = load<width>(combine.x.row(slot) + c);
        const A gate = gated ? combine.gate.row(t)[j] : A{1};
        for (int e = 0; e < width; ++e) sum[e] += gate * widen(x[e]);
      }
      Pack<T, width> y;
      for (int e = 0; e < width; ++e) y[e] = narrow<T>(sum[e]);
      store(combine.y.row(t) + c, y);
    }
  }
}

/// Writes pair_of[slot] = pair for every slot that has a pair. No slot occurs twice, so no two threads write to the
/// same element. Sets d_gate of dropped pairs to 0.
template <class T>
__global__ void __launch_bounds__(permute_threads)
    invert_slots(CombineRowsBackward<T> combine, std::int64_t* pair_of, IndexCheck check) {
  const auto pairs = static_cast<std::int64_t>(combine.slot.size());
  const std::int64_t pair = static_cast<std::int64_t>(blockIdx.x) * permute_threads + threadIdx.x;
  if (pair >= pairs) return;
  const std::int64_t slot = combine.slot[pair];
  if (check.passes(slot) && slot >= 0) {
    pair_of[slot] = pair;
  } else if (combine.gate.data) {
    combine.d_gate.row(pair / combine.k)[pair % combine.k] = 0;
  }
}

/// One thread block per row of dx, in a grid-stride loop.
template <int width, class T>
__global__ void __launch_bounds__(permute_threads)
    combine_backward(CombineRowsBackward<T> combine, const std::int64_t* pair_of) {
  using A = Accumulator<T>;
  const std::int64_t cols = combine.dx.cols;
  for (std::int64_t slot = blockIdx.x; slot < combine.dx.rows; slot += gridDim.x) {
    const std::int64_t pair = pair_of[slot];
    if (pair < 0) {
      fill_row<width>(combine.dx.row(slot), cols, T{});
      continue;
    }
    const std::int64_t t = pair / combine.k, j = pair % combine.k;
    const A gate = combine.gate.data ? combine.gate.row(t)[j] : A{1};
    const T* x = combine.x.row(slot);
    const T* dy = combine.dy.row(t);
    A dot = 0;
    for (std::int64_t c = threadIdx.x * width; c < cols; c += permute_threads * width) {
      const auto xs = load<width>(x + c), dys = load<width>(dy + c);
      Pack<T, width> dx;
      for (int e = 0; e < width; ++e) {
        dot += widen(dys[e]) * widen(xs[e]);
        dx[e] = narrow<T>(gate * widen(dys[e]));
      }
      store(combine.dx.row(slot) + c, dx);
    }
    if (!combine.gate.data) continue;
    dot = join_block<permute_threads>(dot, Sum{});
    if (threadIdx.x == 0) combine.d_gate.row(t)[j] = dot;
  }
}

}  // namespace

template <class T>
void run(const CudaStream& stream, const GatherRows<T>& gather_rows) {
  const std::int64_t rows = gather_rows.y.rows, cols = gather_rows.y.cols, divisor = gather_rows.divisor;
  require(divisor > 0, "GatherRows: the divisor of sources is {}, but must be positive", divisor);
  require_extents("GatherRows", "x", gather_rows.x, gather_rows.x.rows, cols);
  require_length("GatherRows", "source", gather_rows.source, rows);
  const IndexCheck check(stream, "GatherRows", "source", any_negative, gather_rows.x.rows * divisor);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(gather_rows.x, width) && fits_packs(gather_rows.y, width);
  start(stream, "GatherRows", packed ? gather<width, T> : gather<1, T>, blocks_for(rows), permute_threads, gather_rows,
        check);
}

template <class T>
void run(const CudaStream& stream, const CombineRows<T>& combine) {
  const std::int64_t tokens = combine.y.rows, cols = combine.y.cols, k = combine.k;
  require_extents("CombineRows", "x", combine.x, combine.x.rows, cols);
  require_length("CombineRows", "slot", combine.slot, tokens * k);
  if (combine.gate.data) require_extents("CombineRows", "gate", combine.gate, tokens, k);
  const IndexCheck check(stream, "CombineRows", "slot", any_negative, combine.x.rows);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(combine.x, width) && fits_packs(combine.y, width);
  start(stream, "CombineRows", packed ? combine_rows<width, T> : combine_rows<1, T>, blocks_for(tokens),
        permute_threads, combine, check);
}

template <class T>
void run(const CudaStream& stream, const CombineRowsBackward<T>& combine) {
  const std::int64_t tokens = combine.dy.rows, cols = combine.dy.cols, slots = combine.dx.rows, k = combine.k;
  require_extents("CombineRowsBackward", "x", combine.x, slots, cols);
  require_extents("CombineRowsBackward", "dx", combine.dx, slots, cols);
  require_length("CombineRowsBackward", "slot", combine.slot, tokens * k);
  if (combine.gate.data) {
    require_extents("CombineRowsBackward", "gate", combine.gate, tokens, k);
    require_extents("CombineRowsBackward", "d_gate", combine.d_gate, tokens, k);
  }
  const std::size_t bytes = static_cast<std::size_t>(slots) * sizeof(std::int64_t);
  const auto memory = stream.memory().allocate(bytes, MemoryKind::buffers);
  auto* pair_of = reinterpret_cast<std::int64_t*>(memory.get());
  if (bytes) check(cudaMemsetAsync(pair_of, 0xff, bytes, stream.handle()), "CombineRowsBackward");
  const IndexCheck in_x(stream, "CombineRowsBackward", "slot", any_negative, slots);
  start(stream, "CombineRowsBackward", invert_slots<T>,
        static_cast<unsigned>((tokens * k + permute_threads - 1) / permute_threads), permute_threads, combine, pair_of,
        in_x);
  constexpr int width = pack_width<T>;
  const bool packed = fits_packs(combine.x, width) && fits_packs(combine.dy, width) && fits_packs(combine.dx, width);
  start(stream, "CombineRowsBackward", packed ? combine_backward<width, T> : combine_backward<1, T>, blocks_for(slots),
        permute_threads, combine, pair_of);
}

LYCEUM_PERMUTE_KERNELS(LYCEUM_CUDA_INSTANCE)

}  // namespace lyceum
