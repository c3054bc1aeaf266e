#pragma once

#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/checks.h"
#include "kernels/instances.h"

namespace lyceum {

// Attention sinks [Xiao et al. 2024; gpt-oss 2025]: the softmax of head h has one more logit, the learned b_h, whose
// value is zero, so the weights of the keys add up to less than 1. The kernels of attention do not implement sinks.
// Forward is AttentionForward, then ApplySinks on its results. Backward is AttentionBackward with the results of
// ApplySinks: its formulas need out and log_sum_exp of the whole softmax only, and the sink adds nothing to dq, dk and
// dv. SinkGradients gives the gradient of b.

/// Multiplies the result of attention by the total softmax weight of the keys, sink excluded: with s = log_sum_exp,
/// out = out · sigmoid(s − b_h) and log_sum_exp = log(exp(s) + exp(b_h)), in place.
template <class T>
struct ApplySinks {
  std::span<const T> sinks;            // [heads]: b
  Matrix<T> out;                       // [tokens, heads · value_dim], the result of AttentionForward
  Matrix<Accumulator<T>> log_sum_exp;  // [tokens, heads], likewise
};

/// The contribution of each token to the gradient of the sinks: −exp(b_h − log_sum_exp) · Σ_d out · d_out.
template <class T>
struct SinkGradients {
  std::span<const T> sinks;                  // [heads]
  Matrix<const T> out, d_out;                // [tokens, heads · value_dim]; out: the result of ApplySinks
  Matrix<const Accumulator<T>> log_sum_exp;  // [tokens, heads], the result of ApplySinks
  Matrix<Accumulator<T>> d_sinks;            // [tokens, heads]
};

/// Throws an Error unless the operands fit together. Returns value_dim, the width of a head.
template <class T>
std::int64_t require_fitting(const ApplySinks<T>& apply) {
  const std::int64_t heads = std::ssize(apply.sinks), width = heads > 0 ? apply.out.cols / heads : 0;
  require_extents("ApplySinks", "out", apply.out, apply.log_sum_exp.rows, heads * width);
  require_extents("ApplySinks", "log_sum_exp", apply.log_sum_exp, apply.out.rows, heads);
  return width;
}
template <class T>
std::int64_t require_fitting(const SinkGradients<T>& sinks) {
  const std::int64_t heads = std::ssize(sinks.sinks), width = heads > 0 ? sinks.out.cols / heads : 0;
  require_extents("SinkGradients", "out", sinks.out, sinks.log_sum_exp.rows, heads * width);
  require_extents("SinkGradients", "d_out", sinks.d_out, sinks.out.rows, sinks.out.cols);
  require_extents("SinkGradients", "log_sum_exp", sinks.log_sum_exp, sinks.out.rows, heads);
  require_extents("SinkGradients", "d_sinks", sinks.d_sinks, sinks.out.rows, heads);
  return width;
}

template <class T>
void run(const CpuStream& stream, const ApplySinks<T>& apply);
template <class T>
void run(const CpuStream& stream, const SinkGradients<T>& sinks);

template <class T>
void run(const CudaStream& stream, const ApplySinks<T>& apply);
template <class T>
void run(const CudaStream& stream, const SinkGradients<T>& sinks);

#define LYCEUM_ATTENTION_SINK_KERNELS(INSTANCE) \
  LYCEUM_FLOATS(INSTANCE, ApplySinks)           \
  LYCEUM_FLOATS(INSTANCE, SinkGradients)

}  // namespace lyceum
