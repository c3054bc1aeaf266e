#include "train/evaluator.h"

#include <algorithm>
#include <array>

#include "core/copy.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/tape_stage.h"
#include "parallel/pipeline/transfers.h"
#include "train/routing_sums.h"
#include "train/samples.h"

namespace lyceum {

namespace {

/// Forward passes of micro-batches of equal size through all stages. Adds their tokens' cross-entropy to `sum` on the
/// ranks that have the last stage.
void forward(StagedModel& model, const RunSetup& setup, const Config& config, std::span<const Samples> micro_batches,
             double& sum) {
  std::vector<std::unique_ptr<TapeStage>> stages;
  std::vector<TapeStage*> pointers;
  for (const auto& stage : model.stages()) {
    const auto run = [&](Tape& tape, int microbatch, const Variable& x) {
      const Samples& samples = micro_batches[static_cast<std::size_t>(microbatch)];
      const bool reads = stage->first_stage() || stage->last_stage();
      const Transformer::Batch batch = empty_batch(setup.stream, samples.count, config.batch.seq_len, reads);
      if (reads) load(setup.stream, samples, config.model.vocab, batch);
      const Transformer::StageResult result = stage->forward_stage(tape, batch, x);
      if (stage->last_stage()) {
        const Tensor& loss = result.losses.cross_entropy.value;
        dispatch_accumulator(loss.dtype(), [&]<class A>() {
          A value = 0;
          copy_to_host(setup.stream, std::span(&value, 1), loss.span<const A>());
          sum += static_cast<double>(value);
        });
      }
      return TapeStage::Results{.y = result.y};
    };
    stages.push_back(std::make_unique<TapeStage>(setup.stream, run, Tape::Mode::inference));
    pointers.push_back(stages.back().get());
  }
  const ProcessGroup& pipeline = setup.mesh.pipeline;
  const PipelineShape shape{.ranks = pipeline.size(),
                            .virtual_stages = static_cast<int>(pointers.size()),
                            .microbatches = static_cast<int>(micro_batches.size())};
  const Transformer& first = *model.stages().front();
  const std::int64_t seq_len = config.batch.seq_len;
  const PipelineBoundary boundary{
      .stream = setup.stream, .type = first.type(), .shape = first.boundary(micro_batches[0].count * seq_len, seq_len)};
  PipelineExecutor(with_transfers(forward_only(shape)), pipeline.rank(), pointers, pipeline, boundary).run();
}

}  // namespace

Evaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t batches) {
  const auto group = static_cast<std::size_t>(evaluated_at_once(setup.mesh.pipeline.size()));
  const std::int64_t ranks = setup.mesh.data.size(), rank = setup.mesh.data.rank(), micro = config.batch.micro;
  const std::int64_t count = loader.order().count();
  const std::int64_t samples = batches > 0 ? std::min(count, batches * config.batch.global) : count;
  std::array<double, 2> sums{0, 0};  // loss, tokens
  std::vector<Samples> waiting;
  const auto run = [&] {
    if (waiting.empty()) return;
    forward(model, setup, config, waiting, sums[0]);
    waiting.clear();
  };
  model.clear_routing();
  for (std::int64_t first = 0; first < samples; first += ranks * micro) {
    const std::int64_t mine = first + rank * micro;
    const std::int64_t sequences = std::clamp<std::int64_t>(samples - mine, 0, micro);
    sums[1] += static_cast<double>(sequences * config.batch.seq_len);
    const bool last = first + ranks * micro >= samples;
    if (last) run();  // the last ones may be fewer
    if (sequences > 0) {
      waiting.push_back({&loader, mine, sequences});
      if (last || waiting.size() == group) run();
      continue;
    }
    // A rank with nothing left runs one sample that does not count: others need its experts.
    const double counted = sums[0];
    model.count_routing(false);
    waiting.push_back({&loader, 0, 1});
    run();
    model.count_routing(true);
    sums[0] = counted;
  }
  setup.mesh.data.all_reduce(std::span(sums));
  std::array<double, 1> loss{sums[0]};
  setup.mesh.pipeline.all_reduce(std::span(loss));  // others than the last stage give zeros
  Evaluation result{.loss = loss[0] / sums[1],
                    .samples = samples,
                    .tokens = static_cast<std::int64_t>(sums[1]),
                    .routing = whole_routing(config, setup.mesh, model.routing())};
  model.clear_routing();
  return result;
}

}  // namespace lyceum
