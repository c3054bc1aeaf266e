#pragma once

#include <cstdint>

#include "kernels/activation_kind.h"
#include "kernels/cuda/host_device.h"

namespace lyceum::grouped {

/// The three products of a bank of experts. Each computes c = a · b for every expert: forward y = x · wᵀ, dgrad y = x ·
/// w, weight_grad dw += dyᵀ · x, or dw = dyᵀ · x.
enum class Product { forward, dgrad, weight_grad };

/// True if a row of the operand in memory runs along k. Otherwise it runs along m (operand a) or n (operand b).
constexpr bool a_along_k(Product product) { return product != Product::weight_grad; }
constexpr bool b_along_k(Product product) { return product == Product::forward; }

/// The operand whose rows are picked from a matrix by index.
enum class Pick { none, a, b };

/// 16 bytes: eight bf16 elements.
struct alignas(16) Chunk {
  std::uint32_t word[4] = {};
};

/// One expert's weight matrix, or its gradient, as known on the host. All zero: the expert is not part of this launch.
struct Weight {
  void* data = nullptr;
  std::int64_t stride = 0;
  std::int32_t rows = 0, cols = 0;
};

/// Rows that are picked from a matrix by index; −1 means a row of zeros.
struct PickedFrom {
  const std::int32_t* row = nullptr;  // [segment rows]: row of the matrix; null: rows are not picked
  std::int64_t rows = 0, stride = 0;  // of the matrix: number of rows, elements from row to row
};

/// The operands of an activation that is combined with a forward product or a dgrad. Rows::y is then the input of the
/// activation (forward) or the gradient of that input (dgrad).
template <class T>
struct ActivatedRows {
  int inputs = 1;                        // input columns of the activation per output column: 2 with gates and ups
  T* values = nullptr;                   // the activation's output; null: no activation
  const std::int64_t* offset = nullptr;  // [experts]
  const std::int64_t* width = nullptr;   // [experts]
  const T* hidden = nullptr;             // dgrad: the activation's input
  const std::int64_t* hidden_offset = nullptr;  // [experts]
  const std::int64_t* hidden_width = nullptr;   // [experts]
  const float* gate = nullptr;                  // dgrad, [segment rows]: factor of each output row; null: 1
  float* d_gate = nullptr;           // [segment rows, across]: the part of a gate's gradient from each tile of a row
  std::int32_t across = 0;           // columns of d_gate, at least the number of tiles per row
  const T* const* bias = nullptr;    // [experts]: vectors that the activation adds to its input; null: none
  ActivationFunction function = {};  // with its constants
};

/// The rows of each expert, as known on the device only. All pointers are to device memory; offsets are in elements.
template <class T>
struct Rows {
  const std::int64_t* begin;     // [experts + 1]
  const std::int64_t* rows;      // [experts]
  const std::int64_t* x_offset;  // [experts]
  const std::int64_t* y_offset;  // [experts]
  const std::int64_t* x_width;   // [experts]
  const std::int64_t* y_width;   // [experts]
  const T* x;
  T* y;  // dy for weight_grad
  // If set, x (or y) is the whole matrix, and its offsets and widths are not used.
  PickedFrom picked_x = {}, picked_dy = {};
  ActivatedRows<T> activated = {};
  bool accumulate = true;  // weight_grad: add to dw; false: write it without reading it
};

/// One expert's product: c[m, n] = a · b, or += for weight_grad with `accumulate`. Strides are elements from one row in
/// memory to the next. With an activation of two inputs, a row of c consists of n gates followed by n ups, and in the
/// forward product so do the rows of b. In dgrad with an activation, a · b is the gradient of the activation's output.
struct Expert {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  std::int32_t m = 0, n = 0, k = 0;
  std::int32_t filled = 0;  // rows [filled, m) of c become zero, and those rows of a are not read
  /// If set, the operand's rows are picked from the matrix `a` (`b`): the index of each one, −1 for a row of zeros.
  /// Null: the operand consists of consecutive rows.
  const std::int32_t *a_picked = nullptr, *b_picked = nullptr;
  void* activated = nullptr;     // the activation's output, [m, n], contiguous
  const void* hidden = nullptr;  // dgrad: the activation's input, in the layout of c
  const float* gate = nullptr;   // dgrad, [m]
  float* d_gate = nullptr;       // [m, across]: the part of the gate's gradient from each tile of a row
  std::int32_t inputs = 1;       // input columns of the activation per output column
  std::int32_t across = 0;
  const void* bias = nullptr;  // [inputs · n]: what the activation adds to its input; null: nothing
  ActivationFunction function = {};
  bool accumulate = false;  // weight_grad: add to c
};

/// Returns the operand of the product whose rows are picked.
template <class T>
constexpr Pick picked_operand(Product product, const Rows<T>& rows) {
  if (rows.picked_dy.row) return Pick::a;
  if (!rows.picked_x.row) return Pick::none;
  return product == Product::weight_grad ? Pick::b : Pick::a;
}

/// Required width of the rows of x and of y, in elements, for a weight.
LYCEUM_HOST_DEVICE std::int64_t x_width(Product product, const Weight& weight) {
  return product == Product::dgrad ? weight.rows : weight.cols;
}
LYCEUM_HOST_DEVICE std::int64_t y_width(Product product, const Weight& weight, int inputs = 1) {
  return product == Product::dgrad ? inputs * weight.cols : weight.rows;
}
/// Number of output columns of the activation; without one (inputs = 1), of the product.
LYCEUM_HOST_DEVICE std::int32_t activated_width(Product product, const Weight& weight, int inputs) {
  return product == Product::dgrad ? weight.cols : weight.rows / inputs;
}

/// Returns the product of expert `e` of the bank. An expert with an empty weight has no tiles, and neither has one
/// without rows, unless its gradient is to be written: then k = 0, and the tiles write zeros.
template <class T>
LYCEUM_HOST_DEVICE Expert expert_of(Product product, const Rows<T>& rows, const Weight& weight, std::int64_t e) {
  Expert expert;
  const T* x = rows.picked_x.row ? rows.x : rows.x + rows.x_offset[e];
  T* y = rows.picked_dy.row ? rows.y : rows.y + rows.y_offset[e];
  const auto filled = static_cast<std::int32_t>(rows.rows[e]);
  if (product == Product::weight_grad) {
    expert = {y,           x,           weight.data, weight.rows, weight.cols, weight.stride,
              weight.rows, weight.cols, filled,      weight.rows};
    expert.accumulate = rows.accumulate;
    if (filled == 0 && rows.accumulate) expert.m = 0;  // the gradient is unchanged
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
  expert.function = activated.function;
  if (activated.bias) expert.bias = activated.bias[e];
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

/// An operand's layout in memory: `count` lines of `width` elements, `stride` elements apart.
struct Lines {
  const void* data;
  std::int64_t stride;
  std::int32_t width, count;
};
/// Return the layout in memory of an expert's operands a and b.
LYCEUM_HOST_DEVICE Lines lines_of_a(Product product, const Expert& expert) {
  const bool along_k = a_along_k(product);
  return {expert.a, expert.a_stride, along_k ? expert.k : expert.m, along_k ? expert.filled : expert.k};
}
LYCEUM_HOST_DEVICE Lines lines_of_b(Product product, const Expert& expert) {
  const bool along_k = b_along_k(product);
  return {expert.b, expert.b_stride, along_k ? expert.k : expert.n, along_k ? expert.inputs * expert.n : expert.k};
}

/// Number of tiles of an expert's result.
LYCEUM_HOST_DEVICE std::int32_t tiles_of(const Expert& expert, int tile_m, int tile_n) {
  return ((expert.m + tile_m - 1) / tile_m) * ((expert.n + tile_n - 1) / tile_n);
}

/// An expert's slot, which is its position in the order of work, and the number of tiles of all slots before it.
struct ExpertSlot {
  std::int32_t slot = 0, first_tile = 0;
};

/// Computes an expert's slot. Experts with large k, whose tiles take longest, come first, so that all multiprocessors
/// finish at about the same time; experts of equal k keep their order. The order determines only which block computes a
/// tile, never the order of a sum. `k` and `tiles` are [experts].
LYCEUM_HOST_DEVICE ExpertSlot slot_of_expert(std::int32_t e, const std::int32_t* k, const std::int32_t* tiles,
                                             std::int32_t experts) {
  ExpertSlot own;
  for (std::int32_t other = 0; other < experts; ++other) {
    if (k[other] > k[e] || (k[other] == k[e] && other < e)) {
      ++own.slot;
      own.first_tile += tiles[other];
    }
  }
  return own;
}

/// The order of work of one launch. Pointers are to device memory.
struct Plan {
  const Expert* experts;           // [count], by slot
  const std::int32_t* first_tile;  // [count + 1], by slot: number of tiles before the slot; the last is the total
  std::int32_t count;
};

/// Returns the slot that tile `tile` belongs to. `slot` must be the result for an earlier tile, or 0.
LYCEUM_HOST_DEVICE std::int32_t slot_of(const std::int32_t* first_tile, std::int32_t slot, std::int32_t tile) {
  while (tile >= first_tile[slot + 1]) ++slot;
  return slot;
}

/// First row and column of a tile in c.
struct Corner {
  std::int32_t m = 0, n = 0;
};

/// Returns the corner of an expert's tile `tile`. Tiles advance along n first: those computed at the same time share
/// rows of a, and b stays in the cache.
LYCEUM_HOST_DEVICE Corner corner_of(const Expert& expert, std::int32_t tile, int tile_m, int tile_n) {
  const std::int32_t across = (expert.n + tile_n - 1) / tile_n;
  return {tile / across * tile_m, tile % across * tile_n};
}

/// Calls f(slot, expert, corner) for every tile of block `block` in a persistent grid of `blocks` blocks.
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
