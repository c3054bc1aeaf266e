#pragma once

#include "kernels/attention.h"
#include "kernels/instances.h"

namespace lyceum {

/// Stick-breaking attention [Shen et al. 2023, ModuleFormer]. Each query has a stick of length 1, from which its keys
/// break off parts, the newest (last) key first: key i takes the share β_i = sigmoid(scale · q·k_i) of the rest that
/// the newer keys have left. Its weight is the length of its part, p_i = β_i · Π_{j > i} (1 - β_j), and out = Σ_i p_i
/// v_i. Weights add up to less than 1; the rest after the oldest key is dropped. A query sees the same keys as in
/// AttentionForward.
template <class T>
struct StickBreakingForward {
  AttentionShape shape;
  Matrix<const T> q, k, v;  // as in AttentionForward
  Matrix<T> out;            // as in AttentionForward
  Matrix<double> log_rest;  // [sequences · query_len, heads]: Σ_i log(1 - β_i), the log of the rest, kept for backward
  double scale;
  FirstKeys first_keys = {};
};

/// Gradients of StickBreakingForward by q, k and v. With the logits z_i = scale · q·k_i and g_i = d_out·v_i:
/// dz_i = p_i g_i - β_i Σ_{j <= i} p_j g_j. This is one pass over the keys, from the oldest to the newest. The log of
/// the rest that newer keys have left, Σ_{j > i} log(1 - β_j), is log_rest minus the terms of the keys passed so far.
/// This difference loses digits, so log_rest is stored in double.
template <class T>
struct StickBreakingBackward {
  AttentionShape shape;
  Matrix<const T> q, k, v, d_out;  // as in StickBreakingForward; d_out like out
  Matrix<const double> log_rest;   // the result of StickBreakingForward
  Matrix<T> dq, dk, dv;            // like q, k, v
  double scale;
  FirstKeys first_keys = {};
};

template <class T>
void run(const CpuStream& stream, const StickBreakingForward<T>& attention);
template <class T>
void run(const CpuStream& stream, const StickBreakingBackward<T>& attention);
template <class T>
void run(const CudaStream& stream, const StickBreakingForward<T>& attention);
template <class T>
void run(const CudaStream& stream, const StickBreakingBackward<T>& attention);

#define LYCEUM_STICK_BREAKING_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, StickBreakingForward) \
  LYCEUM_FLOATS(INSTANCE, StickBreakingBackward)

}  // namespace lyceum
