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

using PerQuery = std::array<float, panel_rows>;

/// The keys of a panel that are looked at together, and what every query pays for each of them.
class StickTile {
 public:
  static std::int64_t scratch_bytes() { return 2 * Carver::bytes<float>(tile_keys, panel_rows); }
  static std::int64_t count(const Panel& place) { return (place.keys + tile_keys - 1) / tile_keys; }

  /// `index` counts from the oldest keys on. Scores are to be written into scores(), then broken.
  StickTile(const Panel& place, std::int64_t index, Carver& scratch)
      : place_(place),
        first_(index * tile_keys),
        keys_(std::min(tile_keys, place.keys - first_)),
        unseen_(place.before - first_ + 1),
        scores_(scratch.take<float>(keys_, place.rows)),
        costs_(scratch.take<float>(keys_, place.rows)) {}

  template <class E>
  Matrix<E> of(const Matrix<E>& keys) const {
    return keys.rows_from(first_, keys_);
  }
  const Matrix<float>& scores() const { return scores_; }

  /// scores = scale · scores, minus infinity where a query does not see the key, which then takes nothing and costs
  /// nothing; costs from them.
  void price(float scale) const {
    mask();
    float *z = scores_.data, *cost = costs_.data;
#pragma omp simd
    for (std::int64_t i = 0; i < scores_.size(); ++i) {
      z[i] *= scale;
      cost[i] = fast_softplus(z[i]);
    }
  }

  /// The same, and the share β of each key.
  void price(float scale, const Matrix<float>& shares) const {
    mask();
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
  void mask() const {
    for (std::int64_t i = std::max<std::int64_t>(unseen_, 0); i < keys_; ++i) {
      std::fill_n(scores_.row(i), std::min(i - unseen_ + 1, scores_.cols), -std::numeric_limits<float>::infinity());
    }
    // The last queries' documents begin last.
    for (std::int64_t r = scores_.cols - 1; r >= 0 && place_.begin(r) > first_; --r) {
      const std::int64_t hidden = std::min(place_.begin(r) - first_, keys_);
      for (std::int64_t i = 0; i < hidden; ++i) scores_.row(i)[r] = -std::numeric_limits<float>::infinity();
    }
  }

  const Panel& place_;
  std::int64_t first_, keys_, unseen_;  // the first key of the tile that not all queries see
  Matrix<float> scores_, costs_;        // [keys, queries]
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
           StickTile::scratch_bytes();
  }

  /// From the newest keys to the oldest.
  void operator()(const ForwardPanel<T, E>& panel, int thread, Carver scratch) const {
    const Panel& place = panel.place;
    const Matrix<float> out = scratch.take<float>(place.rows, panel.out.cols);
    const Matrix<E> room = scratch.take<E>(tile_keys, place.rows);
    const std::int64_t tiles = StickTile::count(place);
    Payments behind{};
    for (std::int64_t index = tiles - 1; index >= 0; --index) {
      Carver rest = scratch;
      const StickTile tile(place, index, rest);
      multiply_(Gemm<E, float>{.a = tile.of(panel.k), .b = panel.q, .c = tile.scores(), .transpose_b = true}, thread);
      tile.price(static_cast<float>(attention_.scale));
      const PerQuery paid = tile.pay();
      tile.take_parts(in_float(behind));
      for (std::size_t r = 0; r < paid.size(); ++r) behind[r] += paid[r];
      multiply_(Gemm<E, float>{.a = rounded(tile.scores(), room),
                               .b = tile.of(panel.v),
                               .c = out,
                               .transpose_a = true,
                               .accumulate = index < tiles - 1},
                thread);
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
           2 * Carver::bytes<float>(tile_keys, panel_rows) + StickTile::scratch_bytes();
  }

  /// From the oldest keys to the newest.
  void operator()(const BackwardPanel<T, E>& panel, int thread, Carver scratch) const {
    const Panel& place = panel.place;
    const auto scale = static_cast<float>(attention_.scale);
    const Matrix<float> dq = scratch.take<float>(place.rows, panel.dq.cols);
    const Matrix<E> room = scratch.take<E>(tile_keys, place.rows);
    Payments behind{};
    for (std::int64_t r = 0; r < place.rows; ++r) {
      behind[static_cast<std::size_t>(r)] = -attention_.log_rest.row(panel.row + r)[panel.head];
    }
    PerQuery older{};
    for (std::int64_t index = 0; index < StickTile::count(place); ++index) {
      Carver rest = scratch;
      const StickTile tile(place, index, rest);
      const Matrix<float>& parts = tile.scores();
      const Matrix<float> shares = rest.take<float>(parts.rows, parts.cols);
      const Matrix<float> d_parts = rest.take<float>(parts.rows, parts.cols);
      multiply_(Gemm<E, float>{.a = tile.of(panel.k), .b = panel.q, .c = tile.scores(), .transpose_b = true}, thread);
      multiply_(Gemm<E, float>{.a = tile.of(panel.v), .b = panel.d_out, .c = d_parts, .transpose_b = true}, thread);
      tile.price(scale, shares);
      const PerQuery paid = tile.pay();
      for (std::size_t r = 0; r < paid.size(); ++r) behind[r] -= paid[r];
      tile.take_parts(in_float(behind));
      multiply_(Gemm<E, float>{.a = rounded(parts, room), .b = panel.d_out, .c = tile.of(panel.dv), .accumulate = true},
                thread);
      stick_gradient(parts, shares, older, d_parts);
      const Matrix<const E> ds = rounded(d_parts, room);
      multiply_(Gemm<E, float>{.a = ds, .b = panel.q, .c = tile.of(panel.dk), .accumulate = true}, thread);
      multiply_(Gemm<E, float>{.a = ds, .b = tile.of(panel.k), .c = dq, .transpose_a = true, .accumulate = index > 0},
                thread);
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

template void run(const CpuStream&, const StickBreakingForward<float>&);
template void run(const CpuStream&, const StickBreakingForward<double>&);
template void run(const CpuStream&, const StickBreakingForward<bfloat16>&);
template void run(const CpuStream&, const StickBreakingBackward<float>&);
template void run(const CpuStream&, const StickBreakingBackward<double>&);
template void run(const CpuStream&, const StickBreakingBackward<bfloat16>&);

}  // namespace lyceum
