#include "train/evaluator.h"

#include <algorithm>
#include <array>

#include "train/routing_sums.h"

namespace lyceum {

Transformer::Batch load_batch(const Stream& stream, const Config& config, const TokenLoader& loader, std::int64_t index,
                              std::int64_t sequences) {
  const ProfileScope timed(profile_of(stream), "load batch");
  const std::int64_t tokens = sequences * config.batch.seq_len;
  const Tensor inputs = Tensor::empty(stream, DType::i32, {tokens});
  const Tensor targets = Tensor::empty(stream, DType::i32, {tokens});
  loader.load(index, sequences, config.model.vocab, inputs.span<std::int32_t>(), targets.span<std::int32_t>());
  return {.inputs = inputs, .targets = targets, .seq_len = config.batch.seq_len};
}

Evaluation evaluate(Transformer& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t batches) {
  const std::int64_t ranks = setup.mesh.data.size(), rank = setup.mesh.data.rank(), micro = config.batch.micro;
  const std::int64_t count = loader.order().count();
  const std::int64_t samples = batches > 0 ? std::min(count, batches * config.batch.global) : count;
  std::array<double, 2> sums{0, 0};  // loss, tokens
  model.clear_routing();
  for (std::int64_t first = 0; first < samples; first += ranks * micro) {
    const std::int64_t mine = first + rank * micro;
    const std::int64_t sequences = std::clamp<std::int64_t>(samples - mine, 0, micro);
    // A rank with nothing left runs one sample that does not count: others need its experts.
    const std::int64_t run = std::max<std::int64_t>(sequences, 1);
    model.count_routing(sequences > 0);
    Tape tape(setup.stream, Tape::Mode::inference);
    const Transformer::Batch batch = load_batch(setup.stream, config, loader, sequences ? mine : 0, run);
    const Tensor loss = model.forward(tape, batch).cross_entropy.value;
    if (sequences == 0) continue;
    dispatch_accumulator(loss.dtype(), [&]<class A>() { sums[0] += static_cast<double>(*loss.data<A>()); });
    sums[1] += static_cast<double>(sequences * batch.seq_len);
  }
  model.count_routing(true);
  setup.mesh.data.all_reduce(std::span(sums));
  Evaluation result{.loss = sums[0] / sums[1],
                    .samples = samples,
                    .tokens = static_cast<std::int64_t>(sums[1]),
                    .routing = summed_over(setup.mesh.data, model.routing())};
  model.clear_routing();
  return result;
}

}  // namespace lyceum
