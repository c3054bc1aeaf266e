#pragma once

#include "kernels/cuda/attention_task.cuh"
#include "kernels/stick_breaking.h"

namespace lyceum::cuda {

/// The fields of StickBreakingForward as a kernel parameter. Pointers are to device memory.
template <class T>
struct StickForwardTask {
  AttentionShape shape;
  StridedMatrix<const T> q, k, v;
  StridedMatrix<T> out;
  StridedMatrix<double> log_rest;
  Accumulator<T> scale;
  const std::int32_t* first_keys;  // see ForwardTask, also for aligned
  bool aligned;
};

/// The fields of StickBreakingBackward as a kernel parameter.
template <class T>
struct StickBackwardTask {
  AttentionShape shape;
  StridedMatrix<const T> q, k, v, d_out;
  StridedMatrix<const double> log_rest;
  StridedMatrix<T> dq, dk, dv;
  Accumulator<T> scale;
  const std::int32_t* first_keys;
  bool aligned;
};

template <class T>
StickForwardTask<T> task_of(const StickBreakingForward<T>& a) {
  return {with_value_dim(a.shape),
          a.q,
          a.k,
          a.v,
          a.out,
          a.log_rest,
          static_cast<Accumulator<T>>(a.scale),
          a.first_keys.data(),
          forward_aligned(a)};
}

template <class T>
StickBackwardTask<T> task_of(const StickBreakingBackward<T>& a) {
  return {with_value_dim(a.shape),
          a.q,
          a.k,
          a.v,
          a.d_out,
          a.log_rest,
          a.dq,
          a.dk,
          a.dv,
          static_cast<Accumulator<T>>(a.scale),
          a.first_keys.data(),
          backward_aligned(a)};
}

}  // namespace lyceum::cuda
