#include "train/eval/sequence_scores.h"

#include <algorithm>
#include <numeric>

#include "core/copy.h"
#include "core/error.h"
#include "kernels/cross_entropy.h"
#include "train/eval/forward_passes.h"

namespace lyceum {

namespace {

std::int64_t length_of(const ScoredSequence& sequence) { return std::ssize(sequence.tokens) - 1; }  // inputs

std::int64_t rounded_up_ratio(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Sequences of one length that all data ranks compute at the same time. Each rank has `micro_batches` of `size`
/// sequences: sequence i of micro-batch b of data rank r is members[(r · micro_batches + b) · size + i]. If there are
/// fewer members, the rest are copies of the first one, which are not scored.
struct Round {
  std::span<const std::size_t> members;  // indices of sequences
  std::int64_t micro_batches, size, length;
};

/// Divides the sequences `order`, which are sorted by length, into rounds.
std::vector<Round> rounds_of(std::span<const ScoredSequence> sequences, std::span<const std::size_t> order,
                             const RunSetup& setup, const Config& config) {
  const std::int64_t ranks = setup.mesh.data.size(), in_flight = micro_batches_in_flight(setup.mesh.pipeline.size());
  std::vector<Round> rounds;
  while (!order.empty()) {
    const std::int64_t length = length_of(sequences[order.front()]);
    const auto end = std::ranges::find_if(order, [&](std::size_t s) { return length_of(sequences[s]) != length; });
    const std::int64_t alike = end - order.begin();
    // A micro-batch has about as many tokens as in training.
    const std::int64_t most = std::max<std::int64_t>(1, config.batch.micro * config.batch.seq_len / length);
    const std::int64_t count = std::min(alike, ranks * in_flight * most);
    const std::int64_t micro_batches = std::min(in_flight, rounded_up_ratio(count, ranks * most));
    // Each tensor rank needs at least one token with parallel.sequence.
    const std::int64_t size =
        std::max(rounded_up_ratio(count, ranks * micro_batches), rounded_up_ratio(setup.mesh.tensor.size(), length));
    rounds.push_back({order.first(static_cast<std::size_t>(count)), micro_batches, size, length});
    order = order.subspan(static_cast<std::size_t>(count));
  }
  return rounds;
}

/// Returns the index in round.members of sequence i of a micro-batch of this data rank; members.size() or more for a
/// copy that is not scored.
std::int64_t member_of(const Round& round, const RunSetup& setup, int micro_batch, std::int64_t i) {
  return (setup.mesh.data.rank() * round.micro_batches + micro_batch) * round.size + i;
}

/// Computes a round and writes the results of its scored sequences on the ranks that have the last stage.
void compute(StagedModel& model, const RunSetup& setup, std::span<const ScoredSequence> sequences, const Round& round,
             std::span<double> scores) {
  const auto sequence_of = [&](int micro_batch, std::int64_t i) {
    const std::int64_t member = member_of(round, setup, micro_batch, i);
    return round.members[member < std::ssize(round.members) ? static_cast<std::size_t>(member) : 0];
  };
  const auto load = [&](const Transformer& stage, int micro_batch) {
    TokenBatch batch{.inputs = {}, .targets = {}, .sequences = round.size, .seq_len = round.length};
    if (!stage.reads_tokens()) return batch;
    std::vector<std::int32_t> inputs, targets;
    for (std::int64_t i = 0; i < round.size; ++i) {
      const ScoredSequence& sequence = sequences[sequence_of(micro_batch, i)];
      const auto& tokens = sequence.tokens;
      inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
      targets.insert(targets.end(), static_cast<std::size_t>(round.length - sequence.scored), no_target);
      targets.insert(targets.end(), tokens.end() - sequence.scored, tokens.end());
    }
    const auto on_device = [&](const std::vector<std::int32_t>& values) {
      Tensor tensor = Tensor::empty(setup.stream, DType::i32, {std::ssize(values)}, MemoryKind::buffers);
      copy_to_device(setup.stream, tensor.span<std::int32_t>(), std::span<const std::int32_t>(values));
      return tensor;
    };
    batch.inputs = on_device(inputs);
    batch.targets = on_device(targets);
    return batch;
  };
  const auto take = [&](const TokenBatch& batch, int micro_batch) {
    dispatch_accumulator(batch.token_losses.dtype(), [&]<class A>() {
      const std::vector<A> losses = values_of<A>(setup.stream, batch.token_losses);
      for (std::int64_t i = 0; i < round.size; ++i) {
        if (member_of(round, setup, micro_batch, i) >= std::ssize(round.members)) continue;
        const auto first = losses.begin() + i * round.length;
        scores[sequence_of(micro_batch, i)] = -std::accumulate(first, first + round.length, 0.0);
      }
    });
  };
  run(model, setup,
      {.micro_batches = static_cast<int>(round.micro_batches),
       .sequences = round.size,
       .seq_len = round.length,
       .load = load,
       .take = take});
}

}  // namespace

std::vector<double> log_probabilities(StagedModel& model, const RunSetup& setup, const Config& config,
                                      std::span<const ScoredSequence> sequences) {
  for (const ScoredSequence& sequence : sequences) {
    require(
        sequence.scored >= 1 && sequence.scored <= length_of(sequence) && length_of(sequence) <= config.batch.seq_len,
        "{} scored tokens of {}, with batch.seq_len = {}", sequence.scored, sequence.tokens.size(),
        config.batch.seq_len);
    for (const std::int32_t token : sequence.tokens) {
      require_input(token >= 0 && token < config.model.vocab, "token {} is not below model.vocab = {}", token,
                    config.model.vocab);
    }
  }
  std::vector<std::size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  // The longest ones, which need the most memory, come first.
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t s) { return length_of(sequences[s]); });
  std::vector<double> scores(sequences.size());
  model.count_routing(false);
  for (const Round& round : rounds_of(sequences, order, setup, config)) {
    compute(model, setup, sequences, round, scores);
  }
  model.count_routing(true);
  setup.mesh.data.all_reduce(std::span(scores));
  setup.mesh.pipeline.all_reduce(std::span(scores));  // only ranks with the last stage have results
  return scores;
}

}  // namespace lyceum
