#pragma once

#include "kernels/activation.h"
#include "kernels/grouped_gemm.h"
#include "kernels/instances.h"

// A grouped product and the activation beside it as one kernel each way. Hopper GPUs compute the activation where the
// product's sums are, in registers; elsewhere it is the two kernels in turns, with the same rounding: the activation
// sees the product's results rounded to T.

namespace lyceum {

/// hidden_e = x_e · w_eᵀ and activated_e = activation(hidden_e): GroupedGemm, then ActivationForward.
template <class T>
struct GemmThenActivation {
  Activation kind;
  Segments segments;
  SegmentedMatrix<const T> x;
  std::span<const Matrix<const T>> weights;  // [inputs_of(kind) · width_e, in_e], gate above up
  SegmentedMatrix<T> hidden;                 // rows of inputs_of(kind) · width_e
  SegmentedMatrix<T> activated;              // rows of width_e
  PickedRows<T> picked = {};                 // the rows of x, if any

  GroupedGemm<T> product() const {
    return {.segments = segments, .x = x, .weights = weights, .y = hidden, .transpose_weights = true, .picked = picked};
  }
  ActivationForward<T> activation() const { return {.kind = kind, .segments = segments, .x = hidden, .y = activated}; }
};

/// d_hidden_e = activation'(hidden_e) of d_activated_e = dy_e · w_e, which nobody keeps, and activated_e again:
/// GroupedGemm, then ActivationBackward. With `gates`, activated_e is gate · activation(hidden_e).
template <class T>
struct GemmThenActivationBackward {
  Activation kind;
  Segments segments;
  SegmentedMatrix<const T> dy;
  std::span<const Matrix<const T>> weights;  // [out_e, width_e]
  SegmentedMatrix<const T> hidden;           // rows of inputs_of(kind) · width_e
  SegmentedMatrix<T> d_hidden;               // the same, in memory of its own
  SegmentedMatrix<T> activated;              // rows of width_e
  PickedRows<T> picked = {};                 // the rows of dy, if any
  RowGates<Accumulator<T>> gates = {};       // by which results are multiplied, if any

  /// d_activated, in the memory of `activated`.
  GroupedGemm<T> product() const {
    return {.segments = segments, .x = dy, .weights = weights, .y = activated, .picked = picked};
  }
  /// Overwrites d_activated, element by element.
  ActivationBackward<T> activation() const {
    return {.kind = kind,
            .segments = segments,
            .x = hidden,
            .dy = activated,
            .dx = d_hidden,
            .y = activated,
            .gates = gates};
  }
};

/// The two kernels in turns. `work`: one of the descriptions above.
template <class Work>
void launch_in_turns(const Stream& stream, const Work& work) {
  launch(stream, work.product());
  launch(stream, work.activation());
}

template <class T>
void run(const CpuStream& stream, const GemmThenActivation<T>& work);
template <class T>
void run(const CpuStream& stream, const GemmThenActivationBackward<T>& work);
template <class T>
void run(const CudaStream& stream, const GemmThenActivation<T>& work);
template <class T>
void run(const CudaStream& stream, const GemmThenActivationBackward<T>& work);

#define LYCEUM_GROUPED_ACTIVATION_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, GemmThenActivation)       \
  LYCEUM_FLOATS(INSTANCE, GemmThenActivationBackward)

}  // namespace lyceum
