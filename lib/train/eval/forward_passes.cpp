#include "train/eval/forward_passes.h"

#include <memory>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/tape_stage.h"
#include "parallel/pipeline/transfers.h"

namespace lyceum {

void run(StagedModel& model, const RunSetup& setup, const ForwardPasses& passes) {
  std::vector<std::unique_ptr<TapeStage>> stages;
  std::vector<TapeStage*> pointers;
  for (const auto& stage : model.stages()) {
    const auto run_stage = [&](Tape& tape, int micro_batch, const Variable& x) {
      TokenBatch batch = passes.load(*stage, micro_batch);
      if (stage->last_stage()) {
        batch.token_losses =
            Tensor::empty(setup.stream, accumulator_of(stage->type()), {batch.tokens()}, MemoryKind::buffers);
      }
      const Transformer::StageResult result = stage->forward_stage(tape, batch, x);
      if (stage->last_stage()) passes.take(batch, micro_batch);
      return TapeStage::Results{.y = result.y};
    };
    stages.push_back(std::make_unique<TapeStage>(setup.stream, run_stage, Tape::Mode::inference));
    pointers.push_back(stages.back().get());
  }
  const ProcessGroup& pipeline = setup.mesh.pipeline;
  const PipelineShape shape{.ranks = pipeline.size(),
                            .virtual_stages = static_cast<int>(pointers.size()),
                            .microbatches = passes.micro_batches};
  const Transformer& first = *model.stages().front();
  const PipelineBoundary boundary{.stream = setup.stream,
                                  .type = first.type(),
                                  .shape = first.boundary(passes.sequences * passes.seq_len, passes.seq_len)};
  PipelineExecutor(with_transfers(forward_only(shape)), pipeline.rank(), pointers, pipeline, boundary).run();
}

}  // namespace lyceum
