#pragma once

#include "kernels/activation.h"
#include "kernels/grouped_gemm.h"
#include "kernels/instances.h"

// A grouped product and the activation that follows it, fused into one kernel for each of forward and backward. Hopper
// GPUs compute the activation in the registers that hold the product's sums. Other devices launch two kernels in
// succession. The bits are the same: the activation always reads the results of the product rounded to T.

namespace lyceum {

/// hidden_e = x_e · w_eᵀ and activated_e = activation(hidden_e + bias_e): GroupedGemm, then ActivationForward. hidden_e
/// does not include the bias.
template <class T>
struct GemmThenActivation {
  ActivationFunction function;
  Segments segments;
  SegmentedMatrix<const T> x;                // [rows, in_e]
  std::span<const Matrix<const T>> weights;  // [inputs_of(function.kind) · width_e, in_e], gate above up
  SegmentedMatrix<T> hidden;                 // [rows, inputs_of(function.kind) · width_e]
  SegmentedMatrix<T> activated;              // [rows, width_e]
  PickedRows<T> picked = {};                 // if set, replaces x
  SegmentVectors<const T> bias = {};         // as in ActivationForward

  /// Return the two kernels that this one fuses.
  GroupedGemm<T> product() const {
    return {.segments = segments, .x = x, .weights = weights, .y = hidden, .transpose_weights = true, .picked = picked};
  }
  ActivationForward<T> activation() const {
    return {.function = function, .segments = segments, .x = hidden, .y = activated, .bias = bias};
  }
};

/// Backward of the activation and of the product that follows it: d_activated_e = dy_e · w_e (GroupedGemm), then
/// d_hidden_e and a recomputed activated_e (ActivationBackward). d_activated_e is an intermediate result that is not
/// stored. With `gates`, activated_e = gate · activation(hidden_e + bias_e), and the gradients of the gates are
/// computed.
template <class T>
struct GemmThenActivationBackward {
  ActivationFunction function;
  Segments segments;
  SegmentedMatrix<const T> dy;               // [rows, out_e]
  std::span<const Matrix<const T>> weights;  // [out_e, width_e]
  SegmentedMatrix<const T> hidden;           // [rows, inputs_of(function.kind) · width_e]
  SegmentedMatrix<T> d_hidden;               // like hidden; must not overlap it
  SegmentedMatrix<T> activated;              // [rows, width_e]
  PickedRows<T> picked = {};                 // if set, replaces dy
  RowGates<Accumulator<T>> gates = {};       // gates of the rows of activated, if any
  SegmentVectors<const T> bias = {};         // as in ActivationForward

  /// Returns the first kernel. It writes d_activated to the memory of `activated`.
  GroupedGemm<T> product() const {
    return {.segments = segments, .x = dy, .weights = weights, .y = activated, .picked = picked};
  }
  /// Returns the second kernel. It replaces d_activated by activated, element by element.
  ActivationBackward<T> activation() const {
    return {.function = function,
            .segments = segments,
            .x = hidden,
            .dy = activated,
            .dx = d_hidden,
            .y = activated,
            .gates = gates,
            .bias = bias};
  }
};

/// Launches the two kernels of a description above in succession.
template <class Work>
void launch_both(const Stream& stream, const Work& work) {
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
