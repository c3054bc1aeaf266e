#include "train/eval/evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "model/routing/routing_sums.h"
#include "parallel/tensor/token_layout.h"
#include "train/eval/forward_passes.h"
#include "train/setup/samples.h"

namespace lyceum {

namespace {

/// Sums over sequences, where l is the summed loss of a sequence and n the number of its targets that count: Σ l, Σ n,
/// Σ l², Σ l·n, Σ n². Only ranks that have the last stage add sequences.
struct LossSums {
  std::array<double, 5> sums{};

  void add(double loss, double targets) {
    const std::array terms{loss, targets, loss * loss, loss * targets, targets * targets};
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
  }
  double targets() const { return sums[1]; }
  double mean() const { return sums[0] / sums[1]; }
  /// Returns the standard error of mean(), estimated from the spread over sequences: the square root of the variance of
  /// the ratio Σ l / Σ n, to first order.
  double standard_error(double sequences) const {
    if (sequences < 2) return 0;
    const double r = mean(), squares = sums[2] - 2 * r * sums[3] + r * r * sums[4];
    return std::sqrt(std::max(squares, 0.0) * sequences / (sequences - 1)) / sums[1];
  }
};

/// Adds sequences to `sums`. `losses` [sequences · seq_len]: one per target, 0 for targets that do not count.
/// `targets` [sequences]: the number of targets of each sequence that count.
void add(LossSums& sums, const Stream& stream, const Tensor& losses, std::span<const std::int64_t> targets) {
  dispatch_accumulator(losses.dtype(), [&]<class A>() {
    const std::vector<A> values = values_of<A>(stream, losses);
    const std::int64_t seq_len = std::ssize(values) / std::ssize(targets);
    auto first = values.begin();
    for (const std::int64_t n : targets) {
      sums.add(std::accumulate(first, first + seq_len, 0.0), static_cast<double>(n));
      first += seq_len;
    }
  });
}

/// The receivers of data about the micro-batches of one call of forward().
struct Watched {
  std::span<TokenCollector::MicroBatchRecord>
      seen;                          // filled with losses and choices, one per micro-batch; empty: not recorded
  const SublayerObserver* observer;  // or null
};

/// Runs the forward passes of micro-batches of equal size through all stages. Adds their sequences to `sums` on the
/// ranks that have the last stage.
void forward(StagedModel& model, const RunSetup& setup, const Config& config, std::span<const Samples> micro_batches,
             LossSums& sums, const Watched& watched) {
  std::vector<std::vector<std::int64_t>> targets(micro_batches.size());  // of each sequence, that count
  const auto load_batch = [&](const Transformer& stage, int micro_batch) {
    const auto at = static_cast<std::size_t>(micro_batch);
    const Samples& samples = micro_batches[at];
    TokenBatch batch = allocate_batch(setup.stream, config, samples.count, stage.reads_tokens());
    if (stage.reads_tokens() || batch.first_keys.defined()) {
      targets[at] = load(setup.stream, samples, config.model.vocab, batch);
    }
    batch.first_token = samples.first * config.batch.seq_len;
    if (!watched.seen.empty()) batch.chosen = &watched.seen[at].chosen;
    batch.observer = watched.observer;
    return batch;
  };
  const auto take = [&](const TokenBatch& batch, int micro_batch) {
    const auto at = static_cast<std::size_t>(micro_batch);
    add(sums, setup.stream, batch.token_losses, targets[at]);
    if (!watched.seen.empty()) watched.seen[at].losses = batch.token_losses;
  };
  run(model, setup,
      {.micro_batches = static_cast<int>(micro_batches.size()),
       .sequences = micro_batches[0].count,
       .seq_len = config.batch.seq_len,
       .load = load_batch,
       .take = take});
}

/// Runs `samples` samples, spread evenly over those of the loader. Returns their sums over all ranks.
LossSums sum_losses(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t samples, const EvaluationWatch& watch) {
  const auto group = static_cast<std::size_t>(micro_batches_in_flight(setup.mesh.pipeline.size()));
  const std::int64_t ranks = setup.mesh.data.size(), rank = setup.mesh.data.rank(), micro = config.batch.micro;
  const TokenLoader read = loader.spread(samples);
  LossSums own;
  std::vector<Samples> waiting;
  const auto run_waiting = [&](bool counts = true) {
    if (waiting.empty()) return;
    std::vector<TokenCollector::MicroBatchRecord> seen(watch.collector ? waiting.size() : 0);
    forward(model, setup, config, waiting, own, {.seen = seen, .observer = counts ? watch.observer : nullptr});
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const TokenLayout layout(setup.mesh.tensor, config.parallel.sequence, waiting[i].count * config.batch.seq_len,
                               config.batch.seq_len);
      if (counts) seen[i].samples = {waiting[i].first, waiting[i].count};
      seen[i].own_tokens = layout.own();
    }
    if (watch.collector) watch.collector->collect(read, seen);
    waiting.clear();
  };
  for (std::int64_t first = 0; first < samples; first += ranks * micro) {
    const std::int64_t mine = first + rank * micro;
    const std::int64_t sequences = std::clamp<std::int64_t>(samples - mine, 0, micro);
    const bool last = first + ranks * micro >= samples;
    if (last) run_waiting();  // separately: the last micro-batch may be smaller than those before
    if (sequences > 0) {
      waiting.push_back({&read, mine, sequences});
      if (last || waiting.size() == group) run_waiting();
      continue;
    }
    // A rank without samples left runs one sample that is not counted, since other ranks need its experts.
    const LossSums counted = own;
    model.count_routing(false);
    waiting.push_back({&read, 0, 1});
    run_waiting(false);
    model.count_routing(true);
    own = counted;
  }
  setup.mesh.data.all_reduce(std::span(own.sums));
  setup.mesh.pipeline.all_reduce(std::span(own.sums));  // only the last stage has sums other than zero
  return own;
}

}  // namespace

std::int64_t evaluated_samples(const Config& config, const TokenLoader& loader, std::int64_t batches) {
  const std::int64_t count = loader.order().count(), global = config.batch.global;
  return batches > 0 && batches <= count / global ? batches * global : count;
}

void warm_up(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader) {
  sum_losses(model, setup, config, loader, evaluated_samples(config, loader, 1), {});
  model.clear_routing();
}

Evaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t batches, const EvaluationWatch& watch) {
  const std::int64_t samples = evaluated_samples(config, loader, batches);
  model.clear_routing();
  const LossSums own = sum_losses(model, setup, config, loader, samples, watch);
  require_input(own.targets() > 0, "{}: none of the tokens in the {} samples to evaluate counts in the loss",
                loader.token_source().prefix(), samples);
  Evaluation result{.loss = own.mean(),
                    .standard_error = own.standard_error(static_cast<double>(samples)),
                    .samples = samples,
                    .tokens = std::llround(own.targets()),
                    .positions = samples * config.batch.seq_len,
                    .routing = sum_routing_over_ranks(config, setup.mesh, model.routing())};
  model.clear_routing();
  return result;
}

SourcesEvaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config,
                           std::span<const TokenLoader> loaders, std::int64_t batches, const EvaluationWatch& watch) {
  SourcesEvaluation result;
  Evaluation& whole = result.whole;
  double losses = 0, squares = 0;
  for (const TokenLoader& loader : loaders) {
    const Evaluation& own = result.sources.emplace_back(evaluate(model, setup, config, loader, batches, watch));
    const auto tokens = static_cast<double>(own.tokens);
    losses += own.loss * tokens;
    squares += std::pow(own.standard_error * tokens, 2);
    whole.samples += own.samples;
    whole.tokens += own.tokens;
    whole.positions += own.positions;
    add(whole.routing, own.routing);
  }
  whole.loss = losses / static_cast<double>(whole.tokens);
  whole.standard_error = std::sqrt(squares) / static_cast<double>(whole.tokens);
  return result;
}

}  // namespace lyceum
