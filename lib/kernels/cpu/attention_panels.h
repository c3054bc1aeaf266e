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

// What kinds of attention have in common on the CPU: a task takes the keys and values of one key head, as the GEMMs
// read them, and goes through the query heads that share it, a panel of queries at a time. What is done to a panel is
// a Core's matter: a class with
//
//   using Element = …;                                              // what GEMMs read: see in_bf16()
//   static std::int64_t scratch_bytes(const AttentionShape&);       // of a thread
//   Core(const Attention&, const TileGemm&);
//   void operator()(const ForwardPanel<T, Element>& or BackwardPanel<T, Element>&, int thread, Carver scratch) const;

namespace lyceum {

/// Hands out the matrices that a thread's scratch is divided into.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  template <class E>
  Matrix<E> take(std::int64_t rows, std::int64_t cols) {
    Matrix<E> matrix(reinterpret_cast<E*>(memory_), rows, cols);
    memory_ += bytes<E>(rows, cols);
    return matrix;
  }
  /// With rows apart as PanelProducts wants them.
  template <class E>
  Matrix<E> take_padded(std::int64_t rows, std::int64_t cols) {
    return take<E>(rows, padded(cols)).cols_from(0, cols);
  }
  /// Enough for either.
  template <class E>
  static std::int64_t bytes(std::int64_t rows, std::int64_t cols) {
    return round_up<std::int64_t>(rows * padded(cols) * static_cast<std::int64_t>(sizeof(E)), 64);
  }

 private:
  static std::int64_t padded(std::int64_t cols) { return PanelProducts<float>::padded(cols); }

  std::byte* memory_;
};

/// The queries of one head that are worked on together: rows [first, first + rows) of a sequence, and keys
/// [first_key, first_key + keys) of it, all that they see. Of these row r sees [begin(r), end(r)).
struct Panel {
  std::int64_t first, rows, first_key, before, keys;
  const std::int32_t* first_keys;  // of the rows; null: 0 for all

  /// `all_first_keys`: of the sequence.
  Panel(const AttentionShape& shape, std::int64_t index, const std::int32_t* all_first_keys)
      : first(index * panel_rows),
        rows(std::min(panel_rows, shape.query_len - first)),
        // At a multiple, so that GEMMs are of few shapes.
        first_key(all_first_keys ? all_first_keys[first] / panel_rows * panel_rows : 0),
        before(shape.key_len - shape.query_len + first - first_key),
        keys(before + rows),
        first_keys(all_first_keys ? all_first_keys + first : nullptr) {}
  static std::int64_t count(const AttentionShape& shape) { return (shape.query_len + panel_rows - 1) / panel_rows; }
  std::int64_t begin(std::int64_t row) const { return first_keys ? first_keys[row] - first_key : 0; }
  std::int64_t end(std::int64_t row) const { return before + row + 1; }
  /// Rows of a matrix of keys [from, …) of the sequence.
  template <class E>
  Matrix<E> of(const Matrix<E>& all, std::int64_t from = 0) const {
    return all.rows_from(first_key - from, keys);
  }
};

/// Minus infinity where a query does not see a key. `scores` [keys, queries or more] are those of keys [first, …) of
/// the panel's.
inline void hide_unseen(const Panel& place, std::int64_t first, const Matrix<float>& scores) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  const std::int64_t unseen = place.before - first + 1;  // the first key that not all queries see
  for (std::int64_t i = std::max<std::int64_t>(unseen, 0); i < scores.rows; ++i) {
    std::fill_n(scores.row(i), std::min(i - unseen + 1, scores.cols), nothing);
  }
  // The last queries' documents begin last.
  for (std::int64_t r = place.rows - 1; r >= 0 && place.begin(r) > first; --r) {
    const std::int64_t hidden = std::min(place.begin(r) - first, scores.rows);
    for (std::int64_t i = 0; i < hidden; ++i) scores.row(i)[r] = nothing;
  }
}

/// A number for each query of a panel.
using PerQuery = std::array<float, panel_rows>;

/// The first keys of one sequence's queries, or null.
template <class Attention>
const std::int32_t* first_keys_of(const Attention& attention, std::int64_t sequence) {
  return attention.first_keys.empty() ? nullptr : attention.first_keys.data() + sequence * attention.shape.query_len;
}

/// Throws unless the first keys are as FirstKeys says.
template <class Attention>
void require_documents(const Attention& attention) {
  const AttentionShape& shape = attention.shape;
  for (std::int64_t row = 0; row < std::ssize(attention.first_keys); ++row) {
    const std::int64_t query = row % shape.query_len, first = attention.first_keys[static_cast<std::size_t>(row)];
    const std::int64_t least = query > 0 ? attention.first_keys[static_cast<std::size_t>(row - 1)] : 0;
    require(first >= least && first <= shape.key_len - shape.query_len + query,
            "attention: query {} of a sequence sees keys from {} on", query, first);
  }
}

/// `matrix` as elements of E: itself, or rounded into `room`.
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

/// to = factor · from, in another type.
template <class From, class To>
void scaled(const Matrix<const From>& from, float factor, const Matrix<To>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    for (std::int64_t c = 0; c < from.cols; ++c) {
      to.row(r)[c] = static_cast<To>(static_cast<float>(from.row(r)[c]) * factor);
    }
  }
}

template <class T, class E>
struct ForwardPanel {
  Panel place;
  std::int64_t row, head;  // of its first query, among the rows of all sequences
  Matrix<E> q, k, v;       // k, v: the keys that it sees
  Matrix<T> out;           // the head's columns of its rows
};

template <class T, class E>
struct BackwardPanel {
  Panel place;
  std::int64_t row, head;
  Matrix<E> q, k, v, d_out;
  Matrix<float> dk, dv;  // sums to add to; dk is multiplied by the scale in the end
  Matrix<T> dq;          // the head's columns of its rows
};

/// Columns of one head.
template <class T>
Matrix<T> head_of(const Matrix<T>& matrix, std::int64_t row, std::int64_t rows, std::int64_t head, std::int64_t dim) {
  return matrix.rows_from(row, rows).cols_from(head * dim, dim);
}

/// Forward of some panels of all query heads that share a key head.
template <class Core, class Attention>
class ForwardTask {
 public:
  ForwardTask(const Attention& attention, const TileGemm& multiply)
      : attention_(attention), shape_(attention.shape), core_(attention, multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    return 2 * Carver::bytes<E>(shape.key_len, shape.head_dim) + Carver::bytes<E>(panel_rows, shape.head_dim) +
           Core::scratch_bytes(shape);
  }

  void operator()(std::int64_t sequence, std::int64_t kv_head, std::int64_t first_panel, std::int64_t last_panel,
                  int thread, std::byte* scratch) const {
    const std::int64_t dim = shape_.head_dim, group = shape_.heads / shape_.kv_heads;
    const std::int32_t* first_keys = first_keys_of(attention_, sequence);
    const Panel last(shape_, last_panel - 1, first_keys);
    const std::int64_t first_key = Panel(shape_, first_panel, first_keys).first_key;
    const std::int64_t keys = last.first_key + last.keys - first_key, key_row = sequence * shape_.key_len + first_key;
    Carver carver(scratch);
    const Matrix<E> k = carver.take_padded<E>(keys, dim), v = carver.take_padded<E>(keys, dim);
    convert(head_of(attention_.k, key_row, keys, kv_head, dim), k);
    convert(head_of(attention_.v, key_row, keys, kv_head, dim), v);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t index = first_panel; index < last_panel; ++index) {
        const Panel place(shape_, index, first_keys);
        const std::int64_t row = sequence * shape_.query_len + place.first;
        Carver rest = carver;
        const Matrix<E> q = rest.take_padded<E>(place.rows, dim);
        convert(head_of(attention_.q, row, place.rows, head, dim), q);
        core_({place, row, head, q, place.of(k, first_key), place.of(v, first_key),
               head_of(attention_.out, row, place.rows, head, dim)},
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

/// Backward of all query heads that share a key head, panel by panel in a fixed order.
template <class Core, class Attention>
class BackwardTask {
 public:
  BackwardTask(const Attention& attention, const TileGemm& multiply)
      : attention_(attention), shape_(attention.shape), core_(attention, multiply) {}

  static std::int64_t scratch_bytes(const AttentionShape& shape) {
    const std::int64_t dim = shape.head_dim;
    return 2 * Carver::bytes<E>(shape.key_len, dim) + 2 * Carver::bytes<float>(shape.key_len, dim) +
           2 * Carver::bytes<E>(panel_rows, dim) + Core::scratch_bytes(shape);
  }

  void operator()(std::int64_t sequence, std::int64_t kv_head, int thread, std::byte* scratch) const {
    const std::int64_t dim = shape_.head_dim, keys = shape_.key_len, group = shape_.heads / shape_.kv_heads;
    const std::int64_t first_key = sequence * keys;
    Carver carver(scratch);
    const Matrix<E> k = carver.take_padded<E>(keys, dim), v = carver.take_padded<E>(keys, dim);
    const Matrix<float> dk = carver.take_padded<float>(keys, dim), dv = carver.take_padded<float>(keys, dim);
    convert(head_of(attention_.k, first_key, keys, kv_head, dim), k);
    convert(head_of(attention_.v, first_key, keys, kv_head, dim), v);
    std::fill_n(dk.data, keys * dk.stride, 0.0f);
    std::fill_n(dv.data, keys * dv.stride, 0.0f);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t index = 0; index < Panel::count(shape_); ++index) {
        const Panel place(shape_, index, first_keys_of(attention_, sequence));
        const std::int64_t row = sequence * shape_.query_len + place.first;
        Carver rest = carver;
        const Matrix<E> q = rest.take_padded<E>(place.rows, dim), d_out = rest.take_padded<E>(place.rows, dim);
        convert(head_of(attention_.q, row, place.rows, head, dim), q);
        convert(head_of(attention_.d_out, row, place.rows, head, dim), d_out);
        core_({place, row, head, q, place.of(k), place.of(v), d_out, place.of(dk), place.of(dv),
               head_of(attention_.dq, row, place.rows, head, dim)},
              thread, rest);
      }
    }
    scaled(Matrix<const float>(dk), static_cast<float>(attention_.scale),
           head_of(attention_.dk, first_key, keys, kv_head, dim));
    convert(Matrix<const float>(dv), head_of(attention_.dv, first_key, keys, kv_head, dim));
  }

 private:
  using E = typename Core::Element;
  const Attention& attention_;
  const AttentionShape& shape_;
  Core core_;
};

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
  // Too few heads for the threads: divide their queries. The last panels see the most keys, so they go first.
  const std::int64_t parts = std::min(panels, (4 * stream.threads() + heads - 1) / heads);
  parallel_tasks(stream.threads(), parts * heads, [&](std::int64_t i, int thread) {
    const std::int64_t part = parts - 1 - i / heads, head = i % heads;
    task(head / shape.kv_heads, head % shape.kv_heads, part * panels / parts, (part + 1) * panels / parts, thread,
         scratch.of(thread));
  });
}

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

/// Whether the GEMMs read bfloat16: where the CPU multiplies that itself, else they read float. oneDNN would compile a
/// product for every key length while text is generated token by token.
template <class T>
bool in_bf16(const CpuStream& stream, const AttentionShape& shape) {
  return std::is_same_v<T, bfloat16> && uses_native_bf16(stream) && shape.query_len >= panel_rows;
}

}  // namespace lyceum
