#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/attention_schedule.cuh"
#include "kernels/cuda/warp_tiles.cuh"

namespace lyceum::cuda {

inline constexpr float log2_of_e = 1.4426950408889634f;

/// A row-major matrix as a kernel parameter: address and row stride in elements, without extents.
template <class T>
struct StridedMatrix {
  T* data;
  std::int64_t stride;
  StridedMatrix(const Matrix<T>& matrix) : data(matrix.data), stride(matrix.stride) {}  // NOLINT: implicit by design
  StridedMatrix(T* data, std::int64_t stride) : data(data), stride(stride) {}
  LYCEUM_HOST_DEVICE T* at(std::int64_t row, std::int64_t col) const { return data + row * stride + col; }
};

/// The fields of AttentionForward as a kernel parameter. Pointers are to device memory.
template <class T>
struct ForwardTask {
  AttentionShape shape;  // with value_dim
  StridedMatrix<const T> q, k, v;
  StridedMatrix<T> out;
  StridedMatrix<Accumulator<T>> log_sum_exp;
  Accumulator<T> scale;
  const std::int32_t* first_keys;  // see FirstKeys; null: 0 for all
  bool aligned;  // all rows of q, k, v, out begin at multiples of 16 bytes, and heads have multiples of 8 columns
  StridedMatrix<Accumulator<T>> largest;  // null: not wanted
};

/// The fields of AttentionBackward as a kernel parameter.
template <class T>
struct BackwardTask {
  AttentionShape shape;
  StridedMatrix<const T> q, k, v, out, d_out;
  StridedMatrix<const Accumulator<T>> log_sum_exp;
  StridedMatrix<Accumulator<T>> delta;  // [sequences · query_len, heads]: Σ_d out · d_out
  StridedMatrix<T> dq, dk, dv;
  Accumulator<T> scale;
  // See ForwardTask for first_keys and aligned
  const std::int32_t* first_keys;
  bool aligned;
};

/// True if all rows of a matrix of 16-bit elements begin at multiples of 16 bytes.
template <class T>
bool rows_aligned(const Matrix<T>& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
}

/// True if the columns of a head are whole 16-byte chunks.
inline bool heads_aligned(const AttentionShape& shape) {
  return shape.head_dim % 8 == 0 && shape.value_cols() % 8 == 0;
}

/// True if rows of all matrices begin at multiples of 16 bytes and rows of heads are whole 16-byte chunks.
template <class Attention>
bool forward_aligned(const Attention& a) {
  return heads_aligned(a.shape) && rows_aligned(a.q) && rows_aligned(a.k) && rows_aligned(a.v) && rows_aligned(a.out);
}
template <class Attention>
bool backward_aligned(const Attention& a) {
  return heads_aligned(a.shape) && rows_aligned(a.q) && rows_aligned(a.k) && rows_aligned(a.v) &&
         rows_aligned(a.d_out) && rows_aligned(a.dq) && rows_aligned(a.dk) && rows_aligned(a.dv);
}

/// Returns the shape with value_dim set, as the fields `shape` of tasks have it.
inline AttentionShape with_value_dim(AttentionShape shape) {
  shape.value_dim = shape.value_cols();
  return shape;
}

/// Returns the kernel parameter for `a`.
template <class T>
ForwardTask<T> task_of(const AttentionForward<T>& a) {
  return {with_value_dim(a.shape),
          a.q,
          a.k,
          a.v,
          a.out,
          a.log_sum_exp,
          static_cast<Accumulator<T>>(a.scale),
          a.first_keys.data(),
          forward_aligned(a),
          a.largest};
}

/// Returns the kernel parameter for `a`. `delta` is scratch memory of delta_size(a.shape) elements, which the caller
/// owns.
template <class T>
BackwardTask<T> task_of(const AttentionBackward<T>& a, Accumulator<T>* delta) {
  return {with_value_dim(a.shape),
          a.q,
          a.k,
          a.v,
          a.out,
          a.d_out,
          a.log_sum_exp,
          {delta, a.shape.heads},
          a.dq,
          a.dk,
          a.dv,
          static_cast<Accumulator<T>>(a.scale),
          a.first_keys.data(),
          backward_aligned(a)};
}
/// Number of elements of BackwardTask::delta, which is also the number of rows over all query heads.
inline std::int64_t delta_size(const AttentionShape& shape) { return shape.sequences * shape.query_len * shape.heads; }

/// The sequence, query head and key head of a block.
struct HeadIndices {
  int sequence, head, kv_head;
  /// `index` counts the query heads of all sequences.
  LYCEUM_HOST_DEVICE static HeadIndices of_query_head(const AttentionShape& shape, int index) {
    const int heads = static_cast<int>(shape.heads), head = index % heads;
    return {index / heads, head, head / (heads / static_cast<int>(shape.kv_heads))};
  }
};

/// Returns the causal order of one sequence of the task. For a task with a constant `windowless` = true the window is a
/// constant 0, which saves registers.
template <class Task>
LYCEUM_HOST_DEVICE CausalOrder causal_order(const Task& task, std::int64_t sequence) {
  const AttentionShape& shape = task.shape;
  CausalOrder order{static_cast<int>(shape.query_len), static_cast<int>(shape.key_len),
                    task.first_keys ? task.first_keys + sequence * shape.query_len : nullptr};
  if constexpr (!requires { requires Task::windowless; }) {
    order.window = static_cast<int>(shape.window < shape.key_len ? shape.window : 0);
  }
  return order;
}

/// Returns the number of columns of a head of values and results. For a task with a constant `square` = true it is
/// head_dim, which saves registers.
template <class Task>
LYCEUM_HOST_DEVICE std::int64_t value_cols(const Task& task) {
  if constexpr (requires { requires Task::square; }) {
    return task.shape.head_dim;
  } else {
    return task.shape.value_dim;
  }
}

/// Returns rows [first, length) of one sequence, restricted to the `dim` columns of one head. Each sequence has
/// `length` rows.
template <class T>
LYCEUM_DEVICE Panel<T> panel_of(const StridedMatrix<T>& matrix, int sequence, std::int64_t length, int first, int head,
                                std::int64_t dim, bool aligned) {
  return {matrix.at(sequence * length + first, head * dim), matrix.stride, static_cast<int>(length) - first,
          static_cast<int>(dim), aligned};
}

}  // namespace lyceum::cuda
