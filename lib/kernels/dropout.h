#pragma once

#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/instances.h"

namespace lyceum {

/// Names the random numbers of dropout at one site of a model. Each is a pure function of seed, site, step, token and
/// column. The mask therefore depends neither on the mesh nor on the division into micro-batches, and recomputation and
/// backward draw it again instead of keeping it.
///
/// With block = b > 1, runs of b consecutive tokens are dropped in one column, as in DropBlock [Ghiasi et al. 2018] on
/// a feature map of one dimension. A run may begin at any token, also up to b - 1 tokens before a sequence, and ends
/// with the sequence at the latest. So each element is dropped with the same probability, the rate, if runs begin with
/// probability 1 - (1 - rate)^(1/b).
struct DropoutMask {
  std::uint64_t seed;
  std::int64_t site;             // in [0, 2^16)
  std::int64_t first;            // index of row 0's token in the batch of the whole step; in [0, 2^37)
  std::span<const double> step;  // [1], in memory of the stream's device: a whole number below 2^32
  std::int64_t block = 1;        // tokens in [1, most_dropped_tokens] that are dropped together
  std::int64_t seq_len = 1;      // tokens of a sequence; not read if block = 1
};

/// The largest DropoutMask::block.
inline constexpr std::int64_t most_dropped_tokens = 1024;

/// y = x · m / (1 − rate), where each m is 0 with probability `rate` and 1 otherwise. y may be x. With dy for x, it is
/// the gradient. [Srivastava et al. 2014]
template <class T>
struct ApplyDropout {
  Matrix<const T> x;  // [tokens, columns]
  Matrix<T> y;        // [tokens, columns]
  DropoutMask mask;
  double rate;  // in [0, 1)
};

// Concrete dropout [Gal et al. 2017] has a rate p = σ(logit) that is learnt. For the gradient, the choice between
// dropping and keeping an element is relaxed to a number z between 0 (kept) and 1 (dropped):
//
//   z = σ((log p − log(1 − p) + log u − log(1 − u)) / t),  u uniform in (0, 1), t = 1/10
//
/// y = x · (1 − z) / (1 − p). y may be x. With dy for x, it is the gradient with respect to x. The mask must have
/// block = 1.
template <class T>
struct ApplyConcreteDropout {
  Matrix<const T> x;         // [tokens, columns]
  std::span<const T> logit;  // [1]: log p − log(1 − p)
  Matrix<T> y;               // [tokens, columns]
  DropoutMask mask;
};

/// The gradient with respect to the logit, as one sum per token:
/// d_logit[r] = Σ_c dy · x · (1 − z) / (1 − p) · (p − z/t)
template <class T>
struct ConcreteDropoutGrad {
  Matrix<const T> x, dy;              // [tokens, columns]
  std::span<const T> logit;           // [1]
  std::span<Accumulator<T>> d_logit;  // [tokens]
  DropoutMask mask;
};

/// The regulariser of concrete dropout, as in the authors' implementation, in which weights are those of the layer
/// whose results are dropped:
/// loss[0] = norm_factor · squares / (1 − p) + entropy_factor · (p log p + (1 − p) log(1 − p))
template <class T>
struct ConcreteRegulariser {
  std::span<const T> logit;                 // [1]
  std::span<const Accumulator<T>> squares;  // [1]: Σ w² of the layer's weights
  std::span<Accumulator<T>> loss;           // [1]
  double norm_factor, entropy_factor;
};

/// Gradients of ConcreteRegulariser: d_squares = d_loss · ∂loss/∂squares, and d_logit += d_loss · ∂loss/∂logit. One of
/// the two results may be none.
template <class T>
struct ConcreteRegulariserBackward {
  std::span<const T> logit;                         // [1]
  std::span<const Accumulator<T>> squares, d_loss;  // [1]
  std::span<Accumulator<T>> d_squares;              // [1] or none
  std::span<Accumulator<T>> d_logit;                // [1] or none
  double norm_factor, entropy_factor;
};

template <class T>
void run(const CpuStream& stream, const ApplyDropout<T>& dropout);
template <class T>
void run(const CpuStream& stream, const ApplyConcreteDropout<T>& dropout);
template <class T>
void run(const CpuStream& stream, const ConcreteDropoutGrad<T>& grad);
template <class T>
void run(const CpuStream& stream, const ConcreteRegulariser<T>& regulariser);
template <class T>
void run(const CpuStream& stream, const ConcreteRegulariserBackward<T>& backward);

template <class T>
void run(const CudaStream& stream, const ApplyDropout<T>& dropout);
template <class T>
void run(const CudaStream& stream, const ApplyConcreteDropout<T>& dropout);
template <class T>
void run(const CudaStream& stream, const ConcreteDropoutGrad<T>& grad);
template <class T>
void run(const CudaStream& stream, const ConcreteRegulariser<T>& regulariser);
template <class T>
void run(const CudaStream& stream, const ConcreteRegulariserBackward<T>& backward);

#define LYCEUM_DROPOUT_KERNELS(INSTANCE)        \
  LYCEUM_FLOATS(INSTANCE, ApplyDropout)         \
  LYCEUM_FLOATS(INSTANCE, ApplyConcreteDropout) \
  LYCEUM_FLOATS(INSTANCE, ConcreteDropoutGrad)  \
  LYCEUM_FLOATS(INSTANCE, ConcreteRegulariser)  \
  LYCEUM_FLOATS(INSTANCE, ConcreteRegulariserBackward)

}  // namespace lyceum
