#include <gtest/gtest.h>

#include <string>

#include "model/stages.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/transfers.h"
#include "support/model_stage.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// A model whose layers do not divide evenly into stages.
Config model_config(int stages) {
  Config config = tiny_config();
  config.model.layers = stages + 2;
  config.model.init_std = 0.05;
  resolve(config, 1);
  config.batch.micro = 1;
  return config;
}

void expect_equal_to_serial(ScheduleKind kind, const PipelineShape& shape, DType type) {
  SCOPED_TRACE(name_of(kind) + ", " + std::to_string(shape.microbatches) + " micro-batches");
  const Config config = model_config(shape.stages());
  const auto alone = make_setup(ProcessGroup::self(), {});
  ModelStage whole(config, *alone, type);
  whole.run(shape.microbatches);

  const auto setup = make_setup(test_world(), {.pipeline = shape.ranks});
  const ProcessGroup& pipeline = setup->mesh.pipeline;
  const std::vector<Range> blocks = stage_blocks(config, shape.stages());
  std::vector<std::unique_ptr<ModelStage>> parts;
  std::vector<TapeStage*> stages;
  for (int stage = pipeline.rank(); stage < shape.stages(); stage += shape.ranks) {
    parts.push_back(std::make_unique<ModelStage>(config, *setup, type, blocks[static_cast<std::size_t>(stage)]));
    stages.push_back(&parts.back()->stage);
  }
  const Schedule schedule = with_transfers(make_schedule(kind, shape));
  check_schedule(schedule);
  const PipelineBoundary boundary{.stream = setup->stream,
                                  .type = type,
                                  .shape = parts[0]->model.boundary(config.batch.seq_len, config.batch.seq_len)};
  PipelineExecutor(schedule, pipeline.rank(), stages, pipeline, boundary).run();

  for (const auto& part : parts) expect_part_of(whole, *part);
  if (pipeline.rank() + 1 < pipeline.size()) return;
  const std::vector<Tensor>&losses = parts.back()->losses["cross-entropy"], &expected = whole.losses["cross-entropy"];
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t m = 0; m < losses.size(); ++m) EXPECT_TRUE(same_bits(losses[m], expected[m])) << "micro-batch " << m;
}

TEST(PipelinedModel, IsTheSerialModelBitForBit) {
  const int ranks = test_world().size();
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
    expect_equal_to_serial(kind, {.ranks = ranks, .microbatches = ranks + 1}, DType::f32);
  }
  expect_equal_to_serial(ScheduleKind::interleaved, {ranks, 2, 2 * ranks}, DType::f32);
  expect_equal_to_serial(ScheduleKind::zero_bubble, {.ranks = ranks, .microbatches = 3}, DType::bf16);
}

}  // namespace
}  // namespace lyceum
