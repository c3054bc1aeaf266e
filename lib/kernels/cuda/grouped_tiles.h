#pragma once

#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum::grouped {

/// The three products of a bank of experts, each c = a · b for every expert:
/// forward y = x · wᵀ, dgrad y = x · w, weight_grad dw += dyᵀ · x.
enum class Product { forward, dgrad, weight_grad };

/// Whether a row of the operand in memory runs along k (x, or w in the forward pass) or along m or n (dy, x, w).
constexpr bool a_along_k(Product product) { return product != Product::weight_grad; }
constexpr bool b_along_k(Product product) { return product == Product::forward; }

/// Of which operand the rows are picked out of a matrix.
enum class Pick { none, a, b };

/// A 16-byte chunk: eight bf16.
struct alignas(16) Chunk {
  std::uint32_t word[4] = {};
};

/// What the host knows of one expert: its weight, or the gradient of it. All zero: not an expert of this launch.
struct Weight {
  void* data = nullptr;
  std::int64_t stride = 0;
  std::int32_t rows = 0, cols = 0;
};

/// Rows that are picked out of a matrix: which of its rows each is, −1 for none.
struct PickedFrom {
  const std::int32_t* row = nullptr;  // [segment rows]; null: the rows are where offsets say
  std::int64_t rows = 0, stride = 0;  // of the matrix
};

/// What a forward product or a dgrad with an activation reads and writes besides: y is then what the activation takes
/// (forward), or the gradient of that.
template <class T>
struct ActivatedRows {
  int inputs = 1;                               // columns that the activation takes for each that it gives
  T* values = nullptr;                          // what it gives; null: there is none
  const std::int64_t* offset = nullptr;         // [experts]
  const std::int64_t* width = nullptr;          // [experts]
  const T* hidden = nullptr;                    // dgrad: what it takes
  const std::int64_t* hidden_offset = nullptr;  // [experts]
  const std::int64_t* hidden_width = nullptr;   // [experts]
  const float* gate = nullptr;                  // dgrad, [segment rows]: what it gives is multiplied by; null: 1
  float* d_gate = nullptr;                      // [segment rows, across]: of each tile of a row
  std::int32_t across = 0;                      // at least as many as there are tiles
};

/// What only the device knows: where the rows of each expert lie. All pointers are to device memory.
template <class T>
struct Rows {
  const std::int64_t* begin;     // [experts + 1]
  const std::int64_t* rows;      // [experts]
  const std::int64_t* x_offset;  // [experts]
  const std::int64_t* y_offset;  // [experts]
  const std::int64_t* x_width;   // [experts]
  const std::int64_t* y_width;   // [experts]
  const T* x;
  T* y;                                      // dy in weight_grad
  PickedFrom picked_x = {}, picked_dy = {};  // then x, or y, is the matrix; its offsets and widths are not used
  ActivatedRows<T> activated = {};
};

/// One expert's product: c[m, n] = a · b, or += in weight_grad. Strides are elements from one row in memory to the
/// next. With an activation of two inputs, a row of c is n gates and n ups behind them, as are the rows of b in the
/// forward product; in dgrad a · b is the gradient of the activation's results.
struct Expert {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  std::int32_t m = 0, n = 0, k = 0;
  std::int32_t filled = 0;  // rows of c from here on to m become zero, and those of a are not read
  /// Which row of the operand's memory each row is, −1 for one of zeros; null where they follow each other.
  const std::int32_t *a_picked = nullptr, *b_picked = nullptr;
  void* activated = nullptr;     // [m, n], without gaps
  const void* hidden = nullptr;  // dgrad: as c
  const float* gate = nullptr;   // dgrad, [m]
  float* d_gate = nullptr;       // [m, across]: what each tile of a row adds to the gradient of its gate
  std::int32_t inputs = 1;       // of the activation
  std::int32_t across = 0;
};

template <class T>
constexpr Pick picked_operand(Product product, const Rows<T>& rows) {
  if (rows.picked_dy.row) return Pick::a;
  if (!rows.picked_x.row) return Pick::none;
  return product == Product::weight_grad ? Pick::b : Pick::a;
}

/// How wide the rows of x and y must be for a weight.
LYCEUM_HOST_DEVICE std::int64_t x_width(Product product, const Weight& weight) {
  return product == Product::dgrad ? weight.rows : weight.cols;
}
LYCEUM_HOST_DEVICE std::int64_t y_width(Product product, const Weight& weight, int inputs = 1) {
  return product == Product::dgrad ? inputs * weight.cols : weight.rows;
}
/// Columns that an activation gives.
LYCEUM_HOST_DEVICE std::int32_t activated_width(Product product, const Weight& weight, int inputs) {
  return product == Product::dgrad ? weight.cols : weight.rows / inputs;
}

template <class T>
LYCEUM_HOST_DEVICE Expert expert_of(Product product, const Rows<T>& rows, const Weight& weight, std::int64_t e) {
  Expert expert;
  const T* x = rows.picked_x.row ? rows.x : rows.x + rows.x_offset[e];
  T* y = rows.picked_dy.row ? rows.y : rows.y + rows.y_offset[e];
  const auto filled = static_cast<std::int32_t>(rows.rows[e]);
  if (product == Product::weight_grad) {
    expert = {y,           x,           weight.data, weight.rows, weight.cols, weight.stride,
              weight.rows, weight.cols, filled,      weight.rows};
    if (filled == 0) expert.m = 0;  // the gradient stays as it is
    if (rows.picked_x.row) {
      expert.b_picked = rows.picked_x.row + rows.begin[e];
      expert.b_stride = rows.picked_x.stride;
    }
    if (rows.picked_dy.row) {
      expert.a_picked = rows.picked_dy.row + rows.begin[e];
      expert.a_stride = rows.picked_dy.stride;
    }
    return expert;
  }
  const bool forward = product == Product::forward;
  const auto& activated = rows.activated;
  expert.inputs = activated.inputs;
  expert.n = activated_width(product, weight, activated.inputs);
  expert.k = forward ? weight.cols : weight.rows;
  expert.m = static_cast<std::int32_t>(rows.begin[e + 1] - rows.begin[e]);
  expert.filled = filled;
  expert.a = x;
  expert.b = weight.data;
  expert.c = y;
  expert.a_stride = expert.k;
  expert.b_stride = weight.stride;
  expert.c_stride = expert.inputs * expert.n;
  if (activated.values) expert.activated = activated.values + activated.offset[e];
  if (activated.hidden) expert.hidden = activated.hidden + activated.hidden_offset[e];
  if (activated.gate) {
    expert.gate = activated.gate + rows.begin[e];
    expert.d_gate = activated.d_gate + rows.begin[e] * activated.across;
    expert.across = activated.across;
  }
  if (rows.picked_x.row) {
    expert.a_picked = rows.picked_x.row + rows.begin[e];
    expert.a_stride = rows.picked_x.stride;
  }
  return expert;
}

/// An operand as it lies in memory: `count` lines of `width` elements, `stride` elements apart.
struct Lines {
  const void* data;
  std::int64_t stride;
  std::int32_t width, count;
};
LYCEUM_HOST_DEVICE Lines lines_of_a(Product product, const Expert& expert) {
  const bool along_k = a_along_k(product);
  return {expert.a, expert.a_stride, along_k ? expert.k : expert.m, along_k ? expert.filled : expert.k};
}
LYCEUM_HOST_DEVICE Lines lines_of_b(Product product, const Expert& expert) {
  const bool along_k = b_along_k(product);
  return {expert.b, expert.b_stride, along_k ? expert.k : expert.n, along_k ? expert.inputs * expert.n : expert.k};
}

LYCEUM_HOST_DEVICE std::int32_t tiles_of(const Expert& expert, int tile_m, int tile_n) {
  return ((expert.m + tile_m - 1) / tile_m) * ((expert.n + tile_n - 1) / tile_n);
}

/// Position of an expert in the order of work, and the number of tiles before its own.
struct Place {
  std::int32_t slot = 0, first_tile = 0;
};

/// Experts whose tiles are dear (large k) come first, so that all multiprocessors end together; equal ones keep their
/// order. The order decides only who computes what, never a sum.
LYCEUM_HOST_DEVICE Place place_of(std::int32_t e, const std::int32_t* k, const std::int32_t* tiles,
                                  std::int32_t experts) {
  Place place;
  for (std::int32_t other = 0; other < experts; ++other) {
    if (k[other] > k[e] || (k[other] == k[e] && other < e)) {
      ++place.slot;
      place.first_tile += tiles[other];
    }
  }
  return place;
}

/// The order of work of one launch, in device memory.
struct Plan {
  const Expert* experts;           // [count], by slot
  const std::int32_t* first_tile;  // [count + 1], by slot; the last is the number of tiles
  std::int32_t count;
};

/// The slot that a tile belongs to, for tiles asked for in rising order: `slot` is the answer for an earlier one.
LYCEUM_HOST_DEVICE std::int32_t slot_of(const std::int32_t* first_tile, std::int32_t slot, std::int32_t tile) {
  while (tile >= first_tile[slot + 1]) ++slot;
  return slot;
}

/// Where a tile begins in c.
struct Corner {
  std::int32_t m = 0, n = 0;
};

/// Tiles of an expert go along n first: those at work at the same time share rows of a, and b stays in the cache.
LYCEUM_HOST_DEVICE Corner corner_of(const Expert& expert, std::int32_t tile, int tile_m, int tile_n) {
  const std::int32_t across = (expert.n + tile_n - 1) / tile_n;
  return {tile / across * tile_m, tile % across * tile_n};
}

/// Calls f(slot, expert, corner) for every tile of block `block` of a persistent grid of `blocks`.
template <class Tiling, class F>
LYCEUM_HOST_DEVICE void each_tile(const Plan& plan, std::int32_t block, std::int32_t blocks, F&& f) {
  const std::int32_t tiles = plan.first_tile[plan.count];
  std::int32_t slot = 0;
  for (std::int32_t tile = block; tile < tiles; tile += blocks) {
    slot = slot_of(plan.first_tile, slot, tile);
    const Expert& expert = plan.experts[slot];
    f(slot, expert, corner_of(expert, tile - plan.first_tile[slot], Tiling::m, Tiling::n));
  }
}

}  // namespace lyceum::grouped
