#include "kernels/stick_breaking.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "kernels/attention_check.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/reference_stick_breaking.h"
#include "kernels/cpu/vector_math.h"

// In logarithms: log β = z - softplus(z) and log(1 - β) = -softplus(z), which is a key's cost here, so
// log p_i = z_i - Σ_{j >= i} cost_j. Scores are laid out with a row for each key and a column for each query: what runs
// over the keys is then a loop over rows, the same for all queries at once.

namespace lyceum {

namespace {

/// Keys whose scores exist at a time: as deep as a GEMM goes at its best rate; a tile has 128 KiB.
constexpr std::int64_t tile_keys = 512;

/// The keys of a panel that are looked at together, and what every query pays for each of them.
template <class E>
class StickTile {
 public:
  static std::int64_t scratch_bytes() { return 2 * Carver::bytes<float>(tile_keys, panel_rows); }
  static std::int64_t count(const Panel& place) { return (place.keys + tile_keys - 1) / tile_keys; }

  /// `index` counts from the oldest keys on. Scores are to be written into scores(), then broken.
  StickTile(const Panel& place, std::int64_t index, Carver& scratch)
      : place_(place),
        first_(index * tile_keys),
        keys_(std::min(tile_keys, place.keys - first_)),
        scores_(scratch.take<float>(keys_, PanelProducts<E>::width(place.rows))),
        costs_(scratch.take<float>(scores_.rows, scores_.cols)) {}

  PanelProducts<E> products(const TileGemm& multiply, int thread, float* scratch) const {
    return {multiply, thread, place_.before - first_, place_.rows, scratch};
  }

  template <class Each>
  Matrix<Each> of(const Matrix<Each>& keys) const {
    return keys.rows_from(first_, keys_);
  }
  const Matrix<float>& scores() const { return scores_; }

  /// scores = scale · scores, minus infinity where a query does not see the key, which then takes nothing and costs
  /// nothing; costs from them.
  void price(float scale) const {
    hide_unseen(place_, first_, scores_);
    float *z = scores_.data, *cost = costs_.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) {
      z[i] *= scale;
      cost[i] = fast_softplus(z[i]);
    }
  }

  /// The same, and the share β of each key.
  void price(float scale, const Matrix<float>& shares) const {
    hide_unseen(place_, first_, scores_);
    float *z = scores_.data, *cost = costs_.data, *share = shares.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) {
      z[i] *= scale;
      cost[i] = fast_softplus(z[i]);
      share[i] = fast_logistic(z[i]);
    }
  }

  /// scores = log p but for the keys behind this tile; returns what the tile costs each query.
  PerQuery pay() const {
    PerQuery paid{};
    for (std::int64_t i = keys_ - 1; i >= 0; --i) {
      float *z = scores_.row(i), *cost = costs_.row(i), *sum = paid.data();
#pragma omp simd
      for (std::int64_t r = 0; r < scores_.cols; ++r) {
        sum[r] += cost[r];
        z[r] -= sum[r];
      }
    }
    return paid;
  }

  /// scores = p, where a query paid `behind` for the keys behind this tile. What is too little to count in any sum
  /// becomes zero, before it is so little that the CPU is slow with it.
  void take_parts(const PerQuery& behind) const {
    constexpr float least = -70, nothing = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < keys_; ++i) {
      float* z = scores_.row(i);
      const float* paid = behind.data();
#pragma omp simd
      for (std::int64_t r = 0; r < scores_.cols; ++r) z[r] -= paid[r];
    }
    float* p = scores_.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) p[i] = fast_exp(p[i] < least ? nothing : p[i]);
  }

 private:
  const Panel& place_;
  std::int64_t first_, keys_;
  Matrix<float> scores_, costs_;  // [keys, queries], as PanelProducts has them
};

/// What each query paid in all, and as it is taken away from in numbers of the tiles' type.
using Payments = std::array<double, panel_rows>;

PerQuery in_float(const Payments& payments) {
  PerQuery rounded;
  std::copy(payments.begin(), payments.end(), rounded.begin());
  return rounded;
}

template <class T, class E>
class StickForward {
 public:
  using Element = E;
  StickForward(const StickBreakingForward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return Carver::bytes<float>(panel_rows, shape.head_dim) + Carver::bytes<E>(tile_keys, panel_rows) +
           Carver::bytes<float>(1, PanelProducts<E>::scratch(shape.head_dim)) + StickTile<E>::scratch_bytes();
  }

  /// From the newest keys to the oldest.
  void operator()(const ForwardPanel<T, E>& panel, int thread, Carver scratch) const {
    const Panel& place = panel.place;
    const Matrix<float> out = scratch.take_padded<float>(place.rows, panel.out.cols);
    const Matrix<E> room = scratch.take<E>(tile_keys, panel_rows);
    float* transposed = scratch.take<float>(1, PanelProducts<E>::scratch(panel.out.cols)).data;
    const std::int64_t tiles = StickTile<E>::count(place);
    Payments behind{};
    for (std::int64_t index = tiles - 1; index >= 0; --index) {
      Carver rest = scratch;
      const StickTile<E> tile(place, index, rest);
      const PanelProducts<E> products = tile.products(multiply_, thread, transposed);
      products.scores(tile.of(panel.k), panel.q, tile.scores());
      tile.price(static_cast<float>(attention_.scale));
      const PerQuery paid = tile.pay();
      tile.take_parts(in_float(behind));
      for (std::size_t r = 0; r < paid.size(); ++r) behind[r] += paid[r];
      products.over_keys(rounded(tile.scores(), room), tile.of(panel.v), out, index < tiles - 1);
    }
    convert(Matrix<const float>(out), panel.out);
    for (std::int64_t r = 0; r < place.rows; ++r) {
      attention_.log_rest.row(panel.row + r)[panel.head] = -behind[static_cast<std::size_t>(r)];
    }
  }

 private:
  const StickBreakingForward<T>& attention_;
  const TileGemm& multiply_;
};

/// dv += p·d_out, dp = v·d_outᵀ, ds_i = p_i dp_i - β_i Σ_{j <= i} p_j dp_j, dq = scale · dsᵀ·k, dk += ds·q.
template <class T, class E>
class StickBackward {
 public:
  using Element = E;
  StickBackward(const StickBreakingBackward<T>& attention, const TileGemm& multiply)
      : attention_(attention), multiply_(multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return Carver::bytes<float>(panel_rows, shape.head_dim) + Carver::bytes<E>(tile_keys, panel_rows) +
           Carver::bytes<float>(1, PanelProducts<E>::scratch(shape.head_dim)) +
           2 * Carver::bytes<float>(tile_keys, panel_rows) + StickTile<E>::scratch_bytes();
  }

  /// From the oldest keys to the newest.
  void operator()(const BackwardPanel<T, E>& panel, int thread, Carver scratch) const {
    const Panel& place = panel.place;
    const auto scale = static_cast<float>(attention_.scale);
    const Matrix<float> dq = scratch.take_padded<float>(place.rows, panel.dq.cols);
    const Matrix<E> room = scratch.take<E>(tile_keys, panel_rows);
    float* transposed = scratch.take<float>(1, PanelProducts<E>::scratch(panel.dq.cols)).data;
    Payments behind{};
    for (std::int64_t r = 0; r < place.rows; ++r) {
      behind[static_cast<std::size_t>(r)] = -attention_.log_rest.row(panel.row + r)[panel.head];
    }
    PerQuery older{};
    for (std::int64_t index = 0; index < StickTile<E>::count(place); ++index) {
      Carver rest = scratch;
      const StickTile<E> tile(place, index, rest);
      const Matrix<float>& parts = tile.scores();
      const Matrix<float> shares = rest.take<float>(parts.rows, parts.cols);
      const Matrix<float> d_parts = rest.take<float>(parts.rows, parts.cols);
      const PanelProducts<E> products = tile.products(multiply_, thread, transposed);
      products.scores(tile.of(panel.k), panel.q, tile.scores());
      products.scores(tile.of(panel.v), panel.d_out, d_parts);
      tile.price(scale, shares);
      const PerQuery paid = tile.pay();
      for (std::size_t r = 0; r < paid.size(); ++r) behind[r] -= paid[r];
      tile.take_parts(in_float(behind));
      products.over_queries(rounded(parts, room), panel.d_out, tile.of(panel.dv));
      stick_gradient(parts, shares, older, d_parts);
      const Matrix<const E> ds = rounded(d_parts, room);
      products.over_queries(ds, panel.q, tile.of(panel.dk));
      products.over_keys(ds, tile.of(panel.k), dq, index > 0);
    }
    scaled(Matrix<const float>(dq), scale, panel.dq);
  }

 private:
  /// ds, in place of dp; `older`: Σ p dp of the keys that were passed.
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
