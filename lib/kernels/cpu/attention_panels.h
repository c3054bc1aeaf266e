#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/round_up.h"
#include "kernels/attention.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/panel_products.h"
#include "kernels/cpu/tile_gemm.h"

// The common parts of all kinds of attention on the CPU. A task converts the keys and values of one key head to the
// element type that GEMMs read. It then processes the query heads that share this key head, one panel of queries after
// the other. The arithmetic of a panel is in a Core, a class with
//
//   using Element = …;                                              // element type of GEMM operands: see in_bf16()
//   static std::int64_t scratch_bytes(const AttentionShape&);       // scratch memory per thread
//   Core(const Attention&, const TileGemm&);                        // both must outlive the Core
//   void operator()(const ForwardPanel<T, Element>& or BackwardPanel<T, Element>&, int thread, ScratchAllocator
//   scratch) const;

namespace lyceum {

/// Allocates matrices from a thread's scratch memory, one after the other. A copy of a ScratchAllocator allocates from
/// the same position on, so memory taken from the copy is free again when the copy is discarded. Nothing checks that
/// the memory suffices: the owner provides at least the sum of bytes() of all matrices.
class ScratchAllocator {
 public:
  /// `memory` must outlive all matrices. They are 64-byte aligned if it is.
  explicit ScratchAllocator(std::byte* memory) : memory_(memory) {}
  /// Returns an uninitialised matrix without gaps between rows.
  template <class E>
  Matrix<E> take(std::int64_t rows, std::int64_t cols) {
    Matrix<E> matrix(reinterpret_cast<E*>(memory_), rows, cols);
    memory_ += bytes<E>(rows, cols);
    return matrix;
  }
  /// Returns an uninitialised matrix with the distance between rows that PanelProducts requires.
  template <class E>
  Matrix<E> take_padded(std::int64_t rows, std::int64_t cols) {
    return take<E>(rows, padded(cols)).cols_from(0, cols);
  }
  /// Returns the memory that take() and take_padded() need at most.
  template <class E>
  static std::int64_t bytes(std::int64_t rows, std::int64_t cols) {
    return round_up<std::int64_t>(rows * padded(cols) * static_cast<std::int64_t>(sizeof(E)), 64);
  }

 private:
  static std::int64_t padded(std::int64_t cols) { return PanelProducts<float>::padded(cols); }

  std::byte* memory_;
};

/// A panel: queries [first, first + rows) of a sequence, and keys [first_key, first_key + keys) of it, which include
/// all keys that these queries see. Query r of the panel sees keys [begin(r), end(r)), counted from first_key.
struct Panel {
  std::int64_t first, rows, first_key, before, keys;  // before: number of the panel's keys that precede its first query
  const std::int32_t* first_keys;                     // [rows], see FirstKeys; null: 0 for all
  std::int64_t window;                                // see AttentionShape

  /// `index`: number of the panel in its sequence. `all_first_keys`: FirstKeys of the whole sequence, or null.
  Panel(const AttentionShape& shape, std::int64_t index, const std::int32_t* all_first_keys)
      : first(index * panel_rows),
        rows(std::min(panel_rows, shape.query_len - first)),
        // Rounded down to a multiple of panel_rows, so that GEMMs have few distinct shapes.
        first_key(first_key_of(shape, first, all_first_keys) / panel_rows * panel_rows),
        before(shape.key_len - shape.query_len + first - first_key),
        keys(before + rows),
        first_keys(all_first_keys ? all_first_keys + first : nullptr),
        window(shape.window) {}
  static std::int64_t count(const AttentionShape& shape) { return (shape.query_len + panel_rows - 1) / panel_rows; }
  /// Returns the number of keys that a panel has at most.
  static std::int64_t most_keys(const AttentionShape& shape) {
    return shape.window > 0 ? std::min(shape.key_len, shape.window + 2 * panel_rows) : shape.key_len;
  }
  std::int64_t begin(std::int64_t row) const {
    const std::int64_t document = first_keys ? first_keys[row] - first_key : 0;
    return window > 0 ? std::max(document, before + row + 1 - window) : document;
  }
  std::int64_t end(std::int64_t row) const { return before + row + 1; }
  /// Returns the rows of the panel's keys in a matrix whose row 0 is key `from` of the sequence.
  template <class E>
  Matrix<E> of(const Matrix<E>& all, std::int64_t from = 0) const {
    return all.rows_from(first_key - from, keys);
  }

 private:
  /// Returns the first key that a query sees, counted from that of the sequence.
  static std::int64_t first_key_of(const AttentionShape& shape, std::int64_t query, const std::int32_t* first_keys) {
    const std::int64_t document = first_keys ? first_keys[query] : 0;
    return shape.window > 0 ? std::max(document, shape.key_len - shape.query_len + query + 1 - shape.window) : document;
  }
};

/// Sets scores to minus infinity where a query does not see a key. Row i of `scores` [keys, queries or more] belongs to
/// key first + i of the panel.
inline void hide_unseen(const Panel& extent, std::int64_t first, const Matrix<float>& scores) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  const std::int64_t unseen = extent.before - first + 1;  // the first key that not all queries see
  for (std::int64_t i = std::max<std::int64_t>(unseen, 0); i < scores.rows; ++i) {
    std::fill_n(scores.row(i), std::min(i - unseen + 1, scores.cols), nothing);
  }
  // Descending, because begin(r) increases with r: the loop stops at the first query that sees key `first`.
  for (std::int64_t r = extent.rows - 1; r >= 0 && extent.begin(r) > first; --r) {
    const std::int64_t hidden = std::min(extent.begin(r) - first, scores.rows);
    for (std::int64_t i = 0; i < hidden; ++i) scores.row(i)[r] = nothing;
  }
}

/// One number per query of a panel.
using PerQuery = std::array<float, panel_rows>;

/// Returns FirstKeys of one sequence, or null if there are none.
template <class Attention>
const std::int32_t* first_keys_of(const Attention& attention, std::int64_t sequence) {
  return attention.first_keys.empty() ? nullptr : attention.first_keys.data() + sequence * attention.shape.query_len;
}

/// Throws an Error unless first_keys satisfies the conditions of FirstKeys.
template <class Attention>
void require_documents(const Attention& attention) {
  const AttentionShape& shape = attention.shape;
  for (std::int64_t row = 0; row < std::ssize(attention.first_keys); ++row) {
    const std::int64_t query = row % shape.query_len, first = attention.first_keys[static_cast<std::size_t>(row)];
    const std::int64_t least = query > 0 ? attention.first_keys[static_cast<std::size_t>(row - 1)] : 0;
    require(first >= least && first <= shape.key_len - shape.query_len + query,
            "attention: query {} of a sequence cannot begin with key {}", query, first);
  }
}

/// Returns `matrix` with elements of type E: itself, or a rounded copy in the memory of `room`.
template <class E>
Matrix<const E> rounded(const Matrix<float>& matrix, const Matrix<E>& room) {
  if constexpr (std::is_same_v<E, float>) {
    return matrix;
  } else {
    const Matrix<E> fitted(room.data, matrix.rows, matrix.cols);
    convert(Matrix<const float>(matrix), fitted);
    return fitted;
  }
}

/// to = factor · from, rounded to the type of `to`.
template <class From, class To>
void scaled(const Matrix<const From>& from, float factor, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    for (std::int64_t c = 0; c < from.cols; ++c) {
      to.row(r)[c] = static_cast<To>(static_cast<float>(from.row(r)[c]) * factor);
    }
  }
}

/// The operands of a Core in a forward pass, for one panel of one head.
template <class T, class E>
struct ForwardPanel {
  Panel extent;
  std::int64_t row, head;  // row of the panel's first query in q and out of the attention; query head
  Matrix<E> q, k, v;       // [rows, head_dim], [keys, head_dim], [keys, value_cols()]
  Matrix<T> out;           // [rows, value_cols()], a view of the result
};

/// The operands of a Core in a backward pass, for one panel of one head.
template <class T, class E>
struct BackwardPanel {
  Panel extent;
  std::int64_t row, head;
  Matrix<E> q, k, v, d_out;  // as in ForwardPanel; d_out like out
  Matrix<float> dk, dv;      // like k, v: sums to add to; the task multiplies dk by the scale at the end
  Matrix<T> dq;              // [rows, head_dim], a view of the result
};

/// Returns rows [row, row + rows) and the columns of one head.
template <class T>
Matrix<T> head_of(const Matrix<T>& matrix, std::int64_t row, std::int64_t rows, std::int64_t head, std::int64_t dim) {
  return matrix.rows_from(row, rows).cols_from(head * dim, dim);
}

/// The forward pass of panels [first_panel, last_panel) of all query heads that share a key head.
template <class Core, class Attention>
class ForwardTask {
 public:
  ForwardTask(const Attention& attention, const TileGemm& multiply)
      : attention_(attention), shape_(attention.shape), core_(attention, multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return ScratchAllocator::bytes<E>(shape.key_len, shape.head_dim) +
           ScratchAllocator::bytes<E>(shape.key_len, shape.value_cols()) +
           ScratchAllocator::bytes<E>(panel_rows, shape.head_dim) + Core::scratch_bytes(shape);
  }

  void operator()(std::int64_t sequence, std::int64_t kv_head, std::int64_t first_panel, std::int64_t last_panel,
                  int thread, std::byte* scratch) const {
    const std::int64_t dim = shape_.head_dim, value_dim = shape_.value_cols(), group = shape_.heads / shape_.kv_heads;
    const std::int32_t* first_keys = first_keys_of(attention_, sequence);
    const Panel last(shape_, last_panel - 1, first_keys);
    const std::int64_t first_key = Panel(shape_, first_panel, first_keys).first_key;
    const std::int64_t keys = last.first_key + last.keys - first_key, key_row = sequence * shape_.key_len + first_key;
    ScratchAllocator allocator(scratch);
    const Matrix<E> k = allocator.take_padded<E>(keys, dim), v = allocator.take_padded<E>(keys, value_dim);
    convert(head_of(attention_.k, key_row, keys, kv_head, dim), k);
    convert(head_of(attention_.v, key_row, keys, kv_head, value_dim), v);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t index = first_panel; index < last_panel; ++index) {
        const Panel extent(shape_, index, first_keys);
        const std::int64_t row = sequence * shape_.query_len + extent.first;
        ScratchAllocator rest = allocator;
        const Matrix<E> q = rest.take_padded<E>(extent.rows, dim);
        convert(head_of(attention_.q, row, extent.rows, head, dim), q);
        core_({extent, row, head, q, extent.of(k, first_key), extent.of(v, first_key),
               head_of(attention_.out, row, extent.rows, head, value_dim)},
              thread, rest);
      }
    }
  }

 private:
  using E = typename Core::Element;
  const Attention& attention_;
  const AttentionShape& shape_;
  Core core_;
};

/// The backward pass of all query heads that share a key head, panel by panel in a fixed order.
template <class Core, class Attention>
class BackwardTask {
 public:
  BackwardTask(const Attention& attention, const TileGemm& multiply)
      : attention_(attention), shape_(attention.shape), core_(attention, multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    std::int64_t bytes = Core::scratch_bytes(shape);
    for (const std::int64_t dim : {shape.head_dim, shape.value_cols()}) {
      bytes += ScratchAllocator::bytes<E>(shape.key_len, dim) + ScratchAllocator::bytes<float>(shape.key_len, dim) +
               ScratchAllocator::bytes<E>(panel_rows, dim);
    }
    return bytes;
  }

  void operator()(std::int64_t sequence, std::int64_t kv_head, int thread, std::byte* scratch) const {
    const std::int64_t dim = shape_.head_dim, value_dim = shape_.value_cols();
    const std::int64_t keys = shape_.key_len, group = shape_.heads / shape_.kv_heads, first_key = sequence * keys;
    ScratchAllocator allocator(scratch);
    const Matrix<E> k = allocator.take_padded<E>(keys, dim), v = allocator.take_padded<E>(keys, value_dim);
    const Matrix<float> dk = allocator.take_padded<float>(keys, dim),
                        dv = allocator.take_padded<float>(keys, value_dim);
    convert(head_of(attention_.k, first_key, keys, kv_head, dim), k);
    convert(head_of(attention_.v, first_key, keys, kv_head, value_dim), v);
    std::fill_n(dk.data, keys * dk.stride, 0.0f);
    std::fill_n(dv.data, keys * dv.stride, 0.0f);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t index = 0; index < Panel::count(shape_); ++index) {
        const Panel extent(shape_, index, first_keys_of(attention_, sequence));
        const std::int64_t row = sequence * shape_.query_len + extent.first;
        ScratchAllocator rest = allocator;
        const Matrix<E> q = rest.take_padded<E>(extent.rows, dim), d_out = rest.take_padded<E>(extent.rows, value_dim);
        convert(head_of(attention_.q, row, extent.rows, head, dim), q);
        convert(head_of(attention_.d_out, row, extent.rows, head, value_dim), d_out);
        core_({extent, row, head, q, extent.of(k), extent.of(v), d_out, extent.of(dk), extent.of(dv),
               head_of(attention_.dq, row, extent.rows, head, dim)},
              thread, rest);
      }
    }
    scaled(Matrix<const float>(dk), static_cast<float>(attention_.scale),
           head_of(attention_.dk, first_key, keys, kv_head, dim));
    convert(Matrix<const float>(dv), head_of(attention_.dv, first_key, keys, kv_head, value_dim));
  }

 private:
  using E = typename Core::Element;
  const Attention& attention_;
  const AttentionShape& shape_;
  Core core_;
};

/// Runs the forward pass of an attention on all threads of the stream.
template <class Core, class Attention>
void attend_forward(const CpuStream& stream, const Attention& attention) {
  using Task = ForwardTask<Core, Attention>;
  const AttentionShape& shape = attention.shape;
  require_documents(attention);
  const TileGemm multiply = TileGemm::make<typename Core::Element>(stream, 0, 0);
  const ThreadScratch scratch(stream, Task::scratch_bytes(shape));
  const Task task(attention, multiply);
  const std::int64_t panels = Panel::count(shape), heads = shape.sequences * shape.kv_heads;
  if (heads == 0 || panels == 0) return;
  // If there are too few heads for the threads, the panels of a head are divided. The last panels see the most keys, so
  // they are processed first.
  const std::int64_t parts = std::min(panels, (4 * stream.threads() + heads - 1) / heads);
  parallel_tasks(stream.threads(), parts * heads, [&](std::int64_t i, int thread) {
    const std::int64_t part = parts - 1 - i / heads, head = i % heads;
    task(head / shape.kv_heads, head % shape.kv_heads, part * panels / parts, (part + 1) * panels / parts, thread,
         scratch.of(thread));
  });
}

/// Runs the backward pass of an attention on all threads of the stream.
template <class Core, class Attention>
void attend_backward(const CpuStream& stream, const Attention& attention) {
  using Task = BackwardTask<Core, Attention>;
  const AttentionShape& shape = attention.shape;
  require_documents(attention);
  const TileGemm multiply = TileGemm::make<typename Core::Element>(stream, 0, 0);
  const ThreadScratch scratch(stream, Task::scratch_bytes(shape));
  const Task task(attention, multiply);
  parallel_tasks(stream.threads(), shape.sequences * shape.kv_heads, [&](std::int64_t i, int thread) {
    task(i / shape.kv_heads, i % shape.kv_heads, thread, scratch.of(thread));
  });
}

/// True if GEMMs read bfloat16, false if they read float: true only if the stream uses oneDNN's bf16 primitives and
/// there is at least a full panel of queries. In generation, with one query at a time, oneDNN would compile a product
/// for every number of keys.
template <class T>
bool in_bf16(const CpuStream& stream, const AttentionShape& shape) {
  return std::is_same_v<T, bfloat16> && uses_native_bf16(stream) && shape.query_len >= panel_rows;
}

}  // namespace lyceum
