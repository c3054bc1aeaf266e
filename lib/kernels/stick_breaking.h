#pragma once

#include "kernels/attention.h"
#include "kernels/instances.h"

namespace lyceum {

/// Attention that breaks a stick for each query, from the newest key to the oldest: key i takes the share
/// β_i = sigmoid(scale · q·k_i) of what the keys behind it have left, p_i = β_i · Π_{j > i} (1 - β_j), and
/// out = Σ_i p_i v_i. What is left in the end is dropped. Keys are those that the query sees, causally.
/// [Shen et al. 2023, ModuleFormer]
template <class T>
struct StickBreakingForward {
  AttentionShape shape;
  Matrix<const T> q;        // [sequences · query_len, heads · head_dim]
  Matrix<const T> k, v;     // [sequences · key_len, kv_heads · head_dim]
  Matrix<T> out;            // like q
  Matrix<double> log_rest;  // [sequences · query_len, heads]: Σ_i log(1 - β_i), kept for backward
  double scale;
  FirstKeys first_keys = {};
};

/// Gradients of StickBreakingForward. With z the logits and g_i = d_out·v_i: dz_i = p_i g_i - β_i Σ_{j <= i} p_j g_j.
/// One pass over the keys, from the oldest on; what the keys behind have left of the stick is log_rest without those
/// that were passed. That difference is why log_rest is kept in double.
template <class T>
struct StickBreakingBackward {
  AttentionShape shape;
  Matrix<const T> q, k, v, d_out;
  Matrix<const double> log_rest;
  Matrix<T> dq, dk, dv;
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
