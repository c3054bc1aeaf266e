#include "kernels/stick_breaking.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "kernels/attention_checks.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/reference_stick_breaking.h"
#include "kernels/cpu/vector_math.h"

// Computes with logarithms: log β = z - softplus(z) and log(1 - β) = -softplus(z). The cost of a key is softplus(z),
// the amount by which it reduces the log of the rest of the stick, so log p_i = z_i - Σ_{j >= i} cost_j. Scores have
// one row per key and one column per query: a sum over keys is a loop over rows that is vectorized over queries.

namespace lyceum {

namespace {

/// Keys per tile of scores: the depth at which GEMMs reach their best rate. The scores of a tile take 128 KiB.
constexpr std::int64_t tile_keys = 512;

/// Scores and costs of up to tile_keys keys of a panel. Usage:
/// 1. write q·k to scores();
/// 2. compute_costs(): scales and masks the scores, computes costs (and shares);
/// 3. subtract_costs(): subtracts the costs within the tile, returns the total cost of the tile;
/// 4. compute_parts(): subtracts the costs of newer tiles, leaves the parts p in scores().
template <class E>
class StickTile {
 public:
  static std::int64_t scratch_bytes() { return 2 * ScratchAllocator::bytes<float>(tile_keys, panel_rows); }
  static std::int64_t count(const Panel& extent) { return (extent.keys + tile_keys - 1) / tile_keys; }

  /// `index`: number of the tile, from the oldest keys on. `extent` must outlive the tile.
  StickTile(const Panel& extent, std::int64_t index, ScratchAllocator& scratch)
      : extent_(extent),
        first_(index * tile_keys),
        keys_(std::min(tile_keys, extent.keys - first_)),
        scores_(scratch.take<float>(keys_, PanelProducts<E>::width(extent.rows))),
        costs_(scratch.take<float>(scores_.rows, scores_.cols)) {}

  PanelProducts<E> products(const TileGemm& multiply, int thread, float* scratch) const {
    return {multiply, thread, extent_.before - first_, extent_.rows, scratch};
  }

  /// Returns the tile's rows of a matrix with one row per key of the panel.
  template <class Each>
  Matrix<Each> of(const Matrix<Each>& keys) const {
    return keys.rows_from(first_, keys_);
  }
  const Matrix<float>& scores() const { return scores_; }

  /// scores = scale · scores, or minus infinity if the query does not see the key (its part and its cost are then 0);
  /// costs = softplus(scores).
  void compute_costs(float scale) const {
    hide_unseen(extent_, first_, scores_);
    float *z = scores_.data, *cost = costs_.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) {
      z[i] *= scale;
      cost[i] = fast_softplus(z[i]);
    }
  }

  /// Computes scores and costs as above, and the share β of each key.
  void compute_costs(float scale, const Matrix<float>& shares) const {
    hide_unseen(extent_, first_, scores_);
    float *z = scores_.data, *cost = costs_.data, *share = shares.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) {
      z[i] *= scale;
      cost[i] = fast_softplus(z[i]);
      share[i] = fast_logistic(z[i]);
    }
  }

  /// scores = log p without the costs of keys in newer tiles. Returns the sum of this tile's costs for each query.
  PerQuery subtract_costs() const {
    PerQuery tile_costs{};
    for (std::int64_t i = keys_ - 1; i >= 0; --i) {
      float *z = scores_.row(i), *cost = costs_.row(i), *sum = tile_costs.data();
#pragma omp simd
      for (std::int64_t r = 0; r < scores_.cols; ++r) {
        sum[r] += cost[r];
        z[r] -= sum[r];
      }
    }
    return tile_costs;
  }

  /// scores = p, given the sum `newer` of the costs of newer tiles for each query. Parts below exp(−70) become 0: they
  /// do not contribute to any sum, and denormal numbers would slow the CPU down.
  void compute_parts(const PerQuery& newer) const {
    constexpr float least = -70, nothing = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < keys_; ++i) {
      float* z = scores_.row(i);
      const float* cost = newer.data();
#pragma omp simd
      for (std::int64_t r = 0; r < scores_.cols; ++r) z[r] -= cost[r];
    }
    float* p = scores_.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) p[i] = fast_exp(p[i] < least ? nothing : p[i]);
  }

 private:
  const Panel& extent_;
  std::int64_t first_, keys_;
  Matrix<float> scores_, costs_;  // [keys, queries], as PanelProducts has them
};

/// Sum of the costs of several tiles for each query. In double, because the backward pass subtracts from it.
using CostSums = std::array<double, panel_rows>;

PerQuery rounded_to_float(const CostSums& sums) {
  PerQuery rounded;
  std::copy(sums.begin(), sums.end(), rounded.begin());
  return rounded;
}

template <class T, class E>
class StickForward {
 public:
  using Element = E;
  StickForward(const StickBreakingForward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return ScratchAllocator::bytes<float>(panel_rows, shape.value_cols()) +
           ScratchAllocator::bytes<E>(tile_keys, panel_rows) +
           ScratchAllocator::bytes<float>(1, PanelProducts<E>::scratch(shape.head_dim)) + StickTile<E>::scratch_bytes();
  }

  /// Processes the tiles from the newest keys to the oldest.
  void operator()(const ForwardPanel<T, E>& panel, int thread, ScratchAllocator scratch) const {
    const Panel& extent = panel.extent;
    const Matrix<float> out = scratch.take_padded<float>(extent.rows, panel.out.cols);
    const Matrix<E> room = scratch.take<E>(tile_keys, panel_rows);
    float* transposed = scratch.take<float>(1, PanelProducts<E>::scratch(panel.q.cols)).data;
    const std::int64_t tiles = StickTile<E>::count(extent);
    CostSums newer{};
    for (std::int64_t index = tiles - 1; index >= 0; --index) {
      ScratchAllocator rest = scratch;
      const StickTile<E> tile(extent, index, rest);
      const PanelProducts<E> products = tile.products(multiply_, thread, transposed);
      products.scores(tile.of(panel.k), panel.q, tile.scores());
      tile.compute_costs(static_cast<float>(attention_.scale));
      const PerQuery tile_costs = tile.subtract_costs();
      tile.compute_parts(rounded_to_float(newer));
      for (std::size_t r = 0; r < tile_costs.size(); ++r) newer[r] += tile_costs[r];
      products.over_keys(rounded(tile.scores(), room), tile.of(panel.v), out, index < tiles - 1);
    }
    convert(Matrix<const float>(out), panel.out);
    for (std::int64_t r = 0; r < extent.rows; ++r) {
      attention_.log_rest.row(panel.row + r)[panel.head] = -newer[static_cast<std::size_t>(r)];
    }
  }

 private:
  const StickBreakingForward<T>& attention_;
  const TileGemm& multiply_;
};

/// Computes dv += p·d_out, dp = v·d_outᵀ, ds_i = p_i dp_i - β_i Σ_{j <= i} p_j dp_j, dq = scale · dsᵀ·k, dk += ds·q.
template <class T, class E>
class StickBackward {
 public:
  using Element = E;
  StickBackward(const StickBreakingBackward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return ScratchAllocator::bytes<float>(panel_rows, shape.head_dim) +
           ScratchAllocator::bytes<E>(tile_keys, panel_rows) +
           ScratchAllocator::bytes<float>(1, PanelProducts<E>::scratch(shape.widest())) +
           2 * ScratchAllocator::bytes<float>(tile_keys, panel_rows) + StickTile<E>::scratch_bytes();
  }

  /// Processes the tiles from the oldest keys to the newest.
  void operator()(const BackwardPanel<T, E>& panel, int thread, ScratchAllocator scratch) const {
    const Panel& extent = panel.extent;
    const auto scale = static_cast<float>(attention_.scale);
    const Matrix<float> dq = scratch.take_padded<float>(extent.rows, panel.dq.cols);
    const Matrix<E> room = scratch.take<E>(tile_keys, panel_rows);
    const std::int64_t widest = std::max(panel.dq.cols, panel.d_out.cols);
    float* transposed = scratch.take<float>(1, PanelProducts<E>::scratch(widest)).data;
    CostSums newer{};
    for (std::int64_t r = 0; r < extent.rows; ++r) {
      newer[static_cast<std::size_t>(r)] = -attention_.log_rest.row(panel.row + r)[panel.head];
    }
    PerQuery older{};
    for (std::int64_t index = 0; index < StickTile<E>::count(extent); ++index) {
      ScratchAllocator rest = scratch;
      const StickTile<E> tile(extent, index, rest);
      const Matrix<float>& parts = tile.scores();
      const Matrix<float> shares = rest.take<float>(parts.rows, parts.cols);
      const Matrix<float> d_parts = rest.take<float>(parts.rows, parts.cols);
      const PanelProducts<E> products = tile.products(multiply_, thread, transposed);
      products.scores(tile.of(panel.k), panel.q, tile.scores());
      products.scores(tile.of(panel.v), panel.d_out, d_parts);
      tile.compute_costs(scale, shares);
      const PerQuery tile_costs = tile.subtract_costs();
      for (std::size_t r = 0; r < tile_costs.size(); ++r) newer[r] -= tile_costs[r];
      tile.compute_parts(rounded_to_float(newer));
      products.over_queries(rounded(parts, room), panel.d_out, tile.of(panel.dv));
      stick_gradient(parts, shares, older, d_parts);
      const Matrix<const E> ds = rounded(d_parts, room);
      products.over_queries(ds, panel.q, tile.of(panel.dk));
      products.over_keys(ds, tile.of(panel.k), dq, index > 0);
    }
    scaled(Matrix<const float>(dq), scale, panel.dq);
  }

 private:
  /// Replaces d_parts = dp by ds. `older` is Σ p dp over the older keys; the sum over this tile is added to it.
  static void stick_gradient(const Matrix<float>& parts, const Matrix<float>& shares, PerQuery& older,
                             const Matrix<float>& d_parts) {
    for (std::int64_t i = 0; i < parts.rows; ++i) {
      const float *p = parts.row(i), *share = shares.row(i);
      float *dp = d_parts.row(i), *sum = older.data();
#pragma omp simd
      for (std::int64_t r = 0; r < parts.cols; ++r) {
        const float own = p[r] * dp[r];
        sum[r] += own;
        dp[r] = own - share[r] * sum[r];
      }
    }
  }

  const StickBreakingBackward<T>& attention_;
  const TileGemm& multiply_;
};

}  // namespace

template <class T>
void run(const CpuStream& stream, const StickBreakingForward<T>& attention) {
  require_fitting(attention);
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, attention);
  } else {
    in_bf16<T>(stream, attention.shape) ? attend_forward<StickForward<T, T>>(stream, attention)
                                        : attend_forward<StickForward<T, float>>(stream, attention);
  }
}

template <class T>
void run(const CpuStream& stream, const StickBreakingBackward<T>& attention) {
  require_fitting(attention);
  if constexpr (std::is_same_v<T, double>) {
    reference::run(stream, attention);
  } else {
    in_bf16<T>(stream, attention.shape) ? attend_backward<StickBackward<T, T>>(stream, attention)
                                        : attend_backward<StickBackward<T, float>>(stream, attention);
  }
}

LYCEUM_STICK_BREAKING_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
