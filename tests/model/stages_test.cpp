#include "model/stages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/counts.h"
#include "support/model_stage.h"

namespace lyceum {
namespace {

constexpr int microbatches = 3;

Config model_config() {
  Config config = tiny_config();
  config.model.layers = 4;
  resolve(config, 1);
  config.batch.micro = 2;
  return config;
}

/// A chain of stages that begin at the blocks `cuts`. Each receives the result of the previous one.
class Chain {
 public:
  Chain(const Config& config, const RunSetup& setup, DType type, const std::vector<std::int64_t>& cuts) {
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
      stages.push_back(std::make_unique<ModelStage>(config, setup, type, Range{cuts[s], cuts[s + 1] - cuts[s]}));
    }
  }
  /// Runs all forward passes first, then backward, and weight gradients last: the most extreme order that a schedule
  /// may have.
  void run() {
    for (int m = 0; m < microbatches; ++m) {
      Tensor x;
      for (const auto& stage : stages) x = stage->stage.forward(m, x);
      EXPECT_FALSE(x.defined());
    }
    for (int m = 0; m < microbatches; ++m) {
      Tensor dy;
      for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) dy = (*stage)->stage.backward_input(m, dy);
      EXPECT_FALSE(dy.defined());
    }
    for (int m = 0; m < microbatches; ++m) {
      for (const auto& stage : stages) stage->stage.backward_weight(m);
    }
  }
  std::vector<std::unique_ptr<ModelStage>> stages;
};

/// Returns the losses of one name, micro-batch by micro-batch, in each of them the stages in order.
std::vector<Tensor> losses_of(const Chain& chain, const std::string& name) {
  std::vector<Tensor> all;
  for (std::size_t m = 0; m < microbatches; ++m) {
    for (const auto& stage : chain.stages) {
      const auto& own = stage->losses[name];
      for (std::size_t i = m * own.size() / microbatches; i < (m + 1) * own.size() / microbatches; ++i) {
        all.push_back(own[i]);
      }
    }
  }
  return all;
}

void expect_equal_to_whole(const Config& config, DType type, const std::vector<std::int64_t>& cuts) {
  SCOPED_TRACE(testing::PrintToString(cuts));
  const auto setup = make_setup(ProcessGroup::self(), {});
  ModelStage whole(config, *setup, type);
  whole.run(microbatches);
  Chain chain(config, *setup, type, cuts);
  chain.run();

  std::set<std::string> found;
  for (const auto& stage : chain.stages) {
    expect_part_of(whole, *stage);
    for (const auto& unit : stage->model.units()) found.insert(unit->name());
  }
  EXPECT_EQ(found.size(), whole.model.units().size());
  for (const auto& [name, expected] : whole.losses) {
    const std::vector<Tensor> losses = losses_of(chain, name);
    ASSERT_EQ(losses.size(), expected.size()) << name;
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_TRUE(same_bits(losses[i], expected[i])) << name;
  }
}

TEST(ModelStages, AreTheWholeModelBitForBit) {
  for (const std::vector<std::int64_t>& cuts :
       std::vector<std::vector<std::int64_t>>{{0, 4}, {0, 1, 4}, {0, 3, 4}, {0, 1, 2, 3, 4}}) {
    expect_equal_to_whole(model_config(), DType::f32, cuts);
  }
}

TEST(ModelStages, WithoutDenseOrWithoutSparseLayers) {
  Config config = model_config();
  config.model.first_dense_layers = 2;  // the first stage has only dense layers, the second only sparse ones
  expect_equal_to_whole(config, DType::f32, {0, 2, 4});
  config = model_config();
  config.moe.experts = 0;
  expect_equal_to_whole(config, DType::f32, {0, 2, 4});
}

/// The last stage has the modules, and a copy of the embedding for them.
TEST(ModelStages, ModulesAreInTheLastStage) {
  Config config = model_config();
  config.mtp = {.depth = 2, .weight = 0.3};
  for (const bool tied : {false, true}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      config.model.tie_embeddings = tied;
      config.model.recompute = recompute;
      expect_equal_to_whole(config, DType::f32, {0, 2, 4});
    }
  }
  const auto setup = make_setup(ProcessGroup::self(), {});
  Chain chain(config, *setup, DType::f32, {0, 1, 4});
  EXPECT_TRUE(chain.stages.front()->model.first_stage());
  EXPECT_FALSE(chain.stages.back()->model.first_stage());
  EXPECT_EQ(chain.stages.front()->unit("model/mtp/0/dense"), nullptr);
  EXPECT_NE(chain.stages.back()->unit("model/mtp/1/dense"), nullptr);
  const ParameterUnit *first = chain.stages.front()->model.shared_table(),
                      *last = chain.stages.back()->model.shared_table();
  ASSERT_TRUE(first && last);
  EXPECT_FALSE(first->twin());
  EXPECT_TRUE(last->twin());
  EXPECT_TRUE(same_bits(first->values(), last->values()));
}

TEST(ModelStages, InBfloat16AndRecomputed) {
  Config config = model_config();
  expect_equal_to_whole(config, DType::bf16, {0, 1, 3, 4});
  config.model.recompute = Recompute::full;
  expect_equal_to_whole(config, DType::f32, {0, 2, 4});
}

TEST(ModelStages, ATiedTableHasACopyInTheLastStage) {
  Config config = model_config();
  config.model.tie_embeddings = true;
  const auto setup = make_setup(ProcessGroup::self(), {});
  ModelStage whole(config, *setup, DType::f32);
  EXPECT_EQ(whole.model.shared_table(), nullptr);
  whole.run(microbatches);
  Chain chain(config, *setup, DType::f32, {0, 2, 3, 4});
  chain.run();
  for (const auto& stage : chain.stages) expect_part_of(whole, *stage);
  EXPECT_EQ(chain.stages[1]->model.shared_table(), nullptr);

  const ParameterUnit* first = chain.stages.front()->model.shared_table();
  const ParameterUnit* last = chain.stages.back()->model.shared_table();
  ASSERT_TRUE(first && last);
  EXPECT_EQ(last->name(), first->name());
  EXPECT_TRUE(same_bits(first->values(), last->values()));
  const auto expected = whole.unit(first->name())->gradients().span<float>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float sum = first->gradients().span<float>()[i] + last->gradients().span<float>()[i];
    ASSERT_TRUE(std::abs(sum - expected[i]) <= 1e-6) << i;
  }
  EXPECT_GT(size_of_gradient(*first), 0);
  EXPECT_GT(size_of_gradient(*last), 0);
}

TEST(ModelStages, Refusals) {
  const Config config = model_config();
  const auto setup = make_setup(ProcessGroup::self(), {});
  EXPECT_THROW(ModelStage(config, *setup, DType::f32, Range{1, 0}), Error);
  EXPECT_THROW(ModelStage(config, *setup, DType::f32, Range{3, 2}), Error);
  ModelStage first(config, *setup, DType::f32, Range{0, 2}), last(config, *setup, DType::f32, Range{2, 2});
  EXPECT_THROW(last.stage.forward(0, {}), Error);
  const Tensor x = first.stage.forward(0, {});
  EXPECT_EQ(x.shape(), first.model.boundary(2 * config.batch.seq_len, config.batch.seq_len));
  EXPECT_THROW(first.stage.forward(1, x), Error);
  Tape tape(setup->stream);
  EXPECT_THROW(first.model.forward(tape, random_batch(setup->stream, config, 0)), Error);
  EXPECT_THROW(last.model.forward(tape, random_batch(setup->stream, config, 0)), Error);
}

TEST(StageBlocks, CostsAreThoseOfTheModel) {
  Config config = model_config();
  for (const std::int64_t dense : {0, 1, 4}) {
    config.model.first_dense_layers = dense;
    double sum = head_flops(config);
    for (std::int64_t layer = 0; layer < config.model.layers; ++layer) sum += block_flops(config, layer);
    EXPECT_DOUBLE_EQ(3 * sum, count_model(config).causal_flops_per_sequence);
  }
}

TEST(StageBlocks, CostsOfModulesAreThoseOfTheModel) {
  Config config = model_config();
  config.mtp.depth = 2;
  const Range all{0, config.model.layers};
  EXPECT_DOUBLE_EQ(stage_flops(config, all).all(), count_model(config).causal_flops_per_sequence);
  config.model.loss_chunk = 1;
  const double product = 2 * static_cast<double>(config.model.vocab * config.model.hidden * config.batch.seq_len);
  EXPECT_DOUBLE_EQ(stage_flops(config, all).recomputed, 3 * product) << "the head is used three times";
  config.model.loss_chunk = 0;
  config.model.recompute = Recompute::full;
  const double heads = output_flops(config).forward - module_block_flops(config).forward;
  const double norms = 2.0 * 2 * static_cast<double>(config.model.hidden * config.batch.seq_len);  // after the blocks
  EXPECT_DOUBLE_EQ(stage_flops(config, all).recomputed, stage_flops(config, all).forward - heads - norms);
}

TEST(StageBlocks, BackwardRecomputesWhatIsNotKept) {
  Config config = model_config();
  const Range all{0, config.model.layers};
  const auto again = [&](Recompute mode) {
    config.model.recompute = mode;
    return stage_flops(config, all).recomputed;
  };
  const auto tokens = static_cast<double>(config.batch.seq_len);
  const auto width = static_cast<double>(config.model.layers * config.model.heads * config.model.head_dim);
  EXPECT_EQ(again(Recompute::none), 0);
  EXPECT_DOUBLE_EQ(again(Recompute::selective), 2 * tokens * tokens * width);
  EXPECT_DOUBLE_EQ(again(Recompute::full), stage_flops(config, all).forward - head_flops(config));
  EXPECT_DOUBLE_EQ(stage_flops(config, all).all(),
                   count_model(config).causal_flops_per_sequence + again(Recompute::full));
}

TEST(StageBlocks, BackwardRecomputesLogitsThatAreNotKept) {
  Config config = model_config();
  const Range last{1, config.model.layers - 1};
  const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
  const StageFlops kept = stage_flops(config, last);
  const double product = 2 * static_cast<double>(config.model.vocab * config.model.hidden * config.batch.seq_len);
  for (const std::int64_t chunk : {tokens - 1, tokens, std::int64_t{0}}) {
    config.model.loss_chunk = chunk;
    const double again = chunk == tokens - 1 ? product : 0;
    const StageFlops flops = stage_flops(config, last);
    EXPECT_DOUBLE_EQ(flops.forward, kept.forward);
    EXPECT_DOUBLE_EQ(flops.backward_input(), kept.forward + 2 * again);
    EXPECT_DOUBLE_EQ(flops.backward_weight(), kept.forward - again);
    EXPECT_DOUBLE_EQ(flops.all(), kept.all() + again);
    EXPECT_EQ(stage_flops(config, {0, 1}).recomputed, 0);
  }
}

/// The head costs 1.2 blocks, three passes each. It shares a stage with three of eight blocks, but not if blocks are
/// computed a fourth time in backward.
TEST(StageBlocks, AreCutWithRecomputation) {
  Config config = model_config();
  config.model.layers = 8;
  config.model.first_dense_layers = 0;
  config.model.vocab = 1;
  const double word = head_flops(config) / 2;
  config.model.vocab = static_cast<std::int64_t>(1.2 * block_flops(config, 0) / word) - 1;
  EXPECT_EQ(stage_blocks(config, 2), (std::vector<Range>{{0, 5}, {5, 3}}));
  config.model.recompute = Recompute::full;
  EXPECT_EQ(stage_blocks(config, 2), (std::vector<Range>{{0, 4}, {4, 4}}));
}

/// Attention makes the blocks dearer than the head with longer sequences; the model is divided for those of stage 1.
TEST(StageBlocks, AreTheSameInAllTrainingStages) {
  Config config = model_config();
  config.model.layers = 8;
  config.model.first_dense_layers = 0;
  config.model.vocab = 1;
  config.model.vocab = static_cast<std::int64_t>(4 * block_flops(config, 0) / head_flops(config));
  config.training_stages = {{.from_step = 2, .values = {{"batch.seq_len", "4096"}}}};
  const std::vector<Range> first{{0, 5}, {5, 3}};
  EXPECT_EQ(stage_blocks(config_of_stage(config, 1), 2), first);
  EXPECT_EQ(stage_blocks(config_of_stage(config, 2), 2), first);
  Config alone = config_of_stage(config, 2);
  alone.division_batch.reset();
  EXPECT_EQ(stage_blocks(alone, 2), (std::vector<Range>{{0, 4}, {4, 4}}));
}

TEST(StageBlocks, TheHeadTakesThePlaceOfBlocks) {
  Config config = model_config();
  config.model.layers = 8;
  config.model.first_dense_layers = 0;
  config.model.vocab = 1;
  EXPECT_EQ(stage_blocks(config, 2), (std::vector<Range>{{0, 4}, {4, 4}}));
  config.model.vocab = static_cast<std::int64_t>(4 * block_flops(config, 0) /
                                                 head_flops(config));  // the head costs as much as two blocks
  EXPECT_EQ(stage_blocks(config, 2), (std::vector<Range>{{0, 5}, {5, 3}}));
  EXPECT_THROW(stage_blocks(config, 9), Error);
}

TEST(StageBlocks, ModulesTakeThePlaceOfBlocks) {
  Config config = model_config();
  config.model.layers = 8;
  config.model.first_dense_layers = 0;
  config.model.vocab = 1;
  config.mtp.depth = 2;
  EXPECT_EQ(stage_blocks(config, 2), (std::vector<Range>{{0, 5}, {5, 3}}));
  config.mtp.depth = 4;
  EXPECT_EQ(stage_blocks(config, 2), (std::vector<Range>{{0, 6}, {6, 2}}));
}

}  // namespace
}  // namespace lyceum
