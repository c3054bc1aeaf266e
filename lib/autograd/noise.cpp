#include "autograd/noise.h"

#include "kernels/noise.h"

namespace lyceum {

namespace {

TokenNoise noise_of(const NoisyLogits& op) {
  return {.seed = op.seed, .layer = op.layer, .first = op.first, .step = op.step.span<const double>()};
}

}  // namespace

Tensor NoisyLogits::forward(const Stream& stream, Saved& saved, const Tensor& logits, const Tensor& scale) const {
  saved.scale = scale;
  const Tensor y = Tensor::empty(stream, logits.dtype(), logits.shape());
  dispatch_accumulator(logits.dtype(), [&]<class A>() {
    launch(
        stream,
        AddNoise<A>{.x = logits.matrix<A>(), .scale = scale.matrix<A>(), .y = y.matrix<A>(), .noise = noise_of(*this)});
  });
  return y;
}

std::array<Tensor, 2> NoisyLogits::backward(const Stream& stream, Saved& saved, const Tensor& dy) const {
  const Tensor d_scale = Tensor::empty(stream, dy.dtype(), dy.shape());
  dispatch_accumulator(dy.dtype(), [&]<class A>() {
    launch(stream, AddNoiseBackward<A>{.scale = saved.scale.matrix<A>(),
                                       .dy = dy.matrix<A>(),
                                       .d_scale = d_scale.matrix<A>(),
                                       .noise = noise_of(*this)});
  });
  return {dy, d_scale};
}

}  // namespace lyceum
