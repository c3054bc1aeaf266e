#include "parallel/tensor/linear_cross_entropy.h"

#include "autograd/linear.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/measures.h"
#include "kernels/pair_divergence.h"

namespace lyceum {

namespace {

/// The tokens of one chunk.
struct Chunk {
  Tensor x, logits;  // [tokens, hidden], [tokens, words]
  std::span<const std::int32_t> targets;
  Range tokens;

  /// Returns the elements of a per-token tensor that belong to this chunk; none if it is undefined.
  template <class A>
  std::span<A> of(const Tensor& all) const {
    if (!all.defined()) return {};
    return all.span<A>().subspan(static_cast<std::size_t>(tokens.first), static_cast<std::size_t>(tokens.count));
  }
};

/// Allocates the logits of one chunk.
Tensor new_logits(const Stream& stream, const LinearCrossEntropy& op, const Tensor& x) {
  const std::int64_t tokens = x.shape()[0];
  const bool all = LinearCrossEntropy::keeps_logits(op.chunk, tokens);
  return Tensor::empty(stream, x.dtype(), {all ? tokens : op.chunk, op.words.count});
}

template <class F>
void for_each_chunk(const LinearCrossEntropy& op, const Tensor& x, const Tensor& logits, F&& f) {
  const std::int64_t tokens = x.shape()[0], most = logits.shape()[0];
  for (std::int64_t first = 0; first < tokens; first += most) {
    const Range own{first, std::min(most, tokens - first)};
    f(Chunk{.x = x.slice(own.first, own.count),
            .logits = logits.slice(0, own.count),
            .targets = op.targets.slice(own.first, own.count).span<const std::int32_t>(),
            .tokens = own});
  }
}

/// Computes the logits of all tokens, chunk by chunk, and calls `f` for each chunk. Keeps the logits if there is only
/// one chunk.
template <class F>
void sweep_forward(const Stream& stream, const LinearCrossEntropy& op, LinearCrossEntropy::Saved& saved, F&& f) {
  const Tensor logits = new_logits(stream, op, saved.x);
  for_each_chunk(op, saved.x, logits, [&](const Chunk& chunk) {
    multiply_transposed(stream, chunk.x, op.weight->value, chunk.logits);
    f(chunk);
  });
  if (!op.weights_in_backward()) saved.logits = logits;
}

/// The loss, the squared log-sum-exp and the largest logit of each token, [tokens] each. The latter two are undefined
/// if they are not needed.
struct TokenLosses {
  Tensor loss, squares, largest;
};
template <class A>
std::span<A> span_or_none(const Tensor& tensor) {
  return tensor.defined() ? tensor.span<A>() : std::span<A>();
}

TokenLosses room_for_losses(const Stream& stream, const LinearCrossEntropy& op, const Tensor& log_sum_exp) {
  const auto room = [&] { return Tensor::empty(stream, log_sum_exp.dtype(), log_sum_exp.shape()); };
  return {.loss = op.losses.defined() ? op.losses : room(),
          .squares = op.z ? room() : Tensor(),
          .largest = op.largest_logit.defined() ? room() : Tensor()};
}

/// Returns the losses of the tokens, if all words are on this rank.
template <class T>
TokenLosses own_losses(const Stream& stream, const LinearCrossEntropy& op, LinearCrossEntropy::Saved& saved) {
  using A = Accumulator<T>;
  const TokenLosses losses = room_for_losses(stream, op, saved.log_sum_exp);
  sweep_forward(stream, op, saved, [&](const Chunk& chunk) {
    launch(stream, CrossEntropyForward<T>{.logits = chunk.logits.matrix<T>(),
                                          .targets = chunk.targets,
                                          .loss = chunk.of<A>(losses.loss),
                                          .log_sum_exp = chunk.of<A>(saved.log_sum_exp),
                                          .squares = chunk.of<A>(losses.squares),
                                          .largest = chunk.of<A>(losses.largest)});
  });
  return losses;
}

/// Returns the losses of the tokens, if the words are divided among ranks. The statistics of all tokens are exchanged
/// at once.
template <class T>
TokenLosses shared_losses(const Stream& stream, const LinearCrossEntropy& op, LinearCrossEntropy::Saved& saved) {
  using A = Accumulator<T>;
  const Tensor& log_sum_exp = saved.log_sum_exp;
  const std::int64_t tokens = log_sum_exp.size(), ranks = op.group->size();
  const Tensor own = Tensor::empty(stream, log_sum_exp.dtype(), {tokens, 3});
  sweep_forward(stream, op, saved, [&](const Chunk& chunk) {
    launch(stream, CrossEntropyPart<T>{.logits = chunk.logits.matrix<T>(),
                                       .targets = chunk.targets,
                                       .first = op.words.first,
                                       .vocab = op.vocab,
                                       .statistics = own.slice(chunk.tokens.first, chunk.tokens.count).matrix<A>()});
  });
  const Tensor all = Tensor::empty(stream, own.dtype(), {ranks * tokens, 3});
  op.group->all_gather(own, all, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), own.size()));
  const TokenLosses losses = room_for_losses(stream, op, log_sum_exp);
  launch(stream, CrossEntropyJoin<A>{.statistics = all.matrix<A>(),
                                     .targets = op.targets.span<const std::int32_t>(),
                                     .loss = losses.loss.span<A>(),
                                     .log_sum_exp = log_sum_exp.span<A>(),
                                     .squares = span_or_none<A>(losses.squares),
                                     .largest = span_or_none<A>(losses.largest)});
  return losses;
}

/// Computes the sums of PairDivergence over the whole vocabulary and returns the total divergence, a scalar.
template <class T>
Tensor total_divergence(const Stream& stream, const LinearCrossEntropy& op, LinearCrossEntropy::Saved& saved) {
  using A = Accumulator<T>;
  const std::int64_t pairs = saved.log_sum_exp.size() / 2;
  saved.pairs = Tensor::empty(stream, saved.log_sum_exp.dtype(), {2, pairs});
  launch(stream, PairDivergence<T>{.logits = saved.logits.matrix<T>(),
                                   .targets = op.targets.span<const std::int32_t>(),
                                   .log_sum_exp = saved.log_sum_exp.span<A>(),
                                   .seq_len = op.pair_len,
                                   .sums = saved.pairs.matrix<A>()});
  if (op.group->size() > 1) op.group->all_reduce_async(saved.pairs).wait();
  const Tensor total = Tensor::empty(stream, saved.pairs.dtype(), {1});
  launch(stream, Total<A>{.x = saved.pairs.slice(0, 1).span<A>(), .y = total.span<A>()});
  return total;
}

}  // namespace

std::array<Tensor, 3> LinearCrossEntropy::forward(const Stream& stream, Saved& saved, const Tensor& x) const {
  const std::int64_t tokens = x.shape()[0];
  const DType type = accumulator_of(x.dtype());
  require(targets.size() == tokens && weight->shape[0] == words.count && weight->shape[1] == x.shape()[1],
          "{} targets and {} of {} words do not match the input {} and the weight {}", targets.size(), words.count,
          vocab, x.shape().text(), weight->shape.text());
  require(pair_len == 0 || keeps_logits(chunk, tokens),
          "copies of samples need all logits, but chunk = {} of {} tokens", chunk, tokens);
  saved = {.x = x, .log_sum_exp = Tensor::empty(stream, type, {tokens}), .logits = {}, .pairs = {}};
  Tensor divergence;
  const Tensor sum = Tensor::empty(stream, type, {1}), squares = z ? Tensor::empty(stream, type, {1}) : Tensor();
  dispatch_float(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const TokenLosses losses =
        group->size() == 1 ? own_losses<T>(stream, *this, saved) : shared_losses<T>(stream, *this, saved);
    launch(stream, Total<A>{.x = losses.loss.span<A>(), .y = sum.span<A>()});
    if (z) launch(stream, Total<A>{.x = losses.squares.span<A>(), .y = squares.span<A>()});
    if (largest_logit.defined()) {
      launch(stream, RaiseToLargest<A>{.x = losses.largest.span<A>(), .y = largest_logit.span<double>()});
    }
    if (pair_len > 0) divergence = total_divergence<T>(stream, *this, saved);
  });
  return {sum, squares, divergence};
}

std::array<Tensor, 1> LinearCrossEntropy::backward(const Stream& stream, Saved& saved, const Tensor& dy,
                                                   const Tensor& dz, const Tensor& d_pairs) const {
  const Tensor scale = dy.defined() ? dy : Tensor::zeros(stream, saved.log_sum_exp.dtype(), {1});
  const bool again = weights_in_backward();
  const Tensor logits = again ? new_logits(stream, *this, saved.x) : saved.logits;
  const Tensor dx = Tensor::empty(stream, saved.x.dtype(), saved.x.shape());
  dispatch_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for_each_chunk(*this, saved.x, logits, [&](const Chunk& chunk) {
      if (again) multiply_transposed(stream, chunk.x, weight->value, chunk.logits);
      const CrossEntropyBackward<T> loss{.logits = chunk.logits.matrix<T>(),
                                         .targets = chunk.targets,
                                         .log_sum_exp = chunk.of<A>(saved.log_sum_exp),
                                         .scale = scale.span<A>(),
                                         .d_logits = chunk.logits.matrix<T>(),
                                         .first = words.first,
                                         .vocab = vocab,
                                         .z_scale = span_or_none<const A>(dz)};
      if (d_pairs.defined()) {
        launch(stream, PairedCrossEntropyBackward<T>{.logits = loss.logits,
                                                     .targets = loss.targets,
                                                     .log_sum_exp = loss.log_sum_exp,
                                                     .scale = loss.scale,
                                                     .d_logits = loss.d_logits,
                                                     .first = loss.first,
                                                     .vocab = loss.vocab,
                                                     .z_scale = loss.z_scale,
                                                     .seq_len = pair_len,
                                                     .sums = saved.pairs.matrix<A>(),
                                                     .pair_scale = d_pairs.span<const A>()});
      } else {
        launch(stream, loss);
      }
      multiply(stream, chunk.logits, weight->value, dx.slice(chunk.tokens.first, chunk.tokens.count));
      if (again && weight->trained()) add_weight_grad(stream, chunk.logits, chunk.x, *weight);
    });
  });
  saved.log_sum_exp = saved.pairs = {};
  return {dx};
}

void LinearCrossEntropy::weight_grad(const Stream& stream, Saved& saved, const Tensor&, const Tensor&,
                                     const Tensor&) const {
  if (!weights_in_backward()) add_weight_grad(stream, saved.logits, saved.x, *weight);
}

}  // namespace lyceum
