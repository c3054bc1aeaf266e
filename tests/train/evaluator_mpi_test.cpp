#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_run.h"
#include "train/evaluator.h"

namespace lyceum {
namespace {

Evaluation evaluate_on(Config config, ProcessGroup world, std::int64_t micro, std::int64_t batches, int tensor = 1) {
  const int ranks = world.size();
  config.batch.micro = micro;
  config.parallel.expert = ranks;
  config.parallel.tensor = tensor;
  config.parallel.sequence = true;
  resolve(config, ranks);
  const auto setup = make_setup(std::move(world), {.tensor = tensor, .expert = ranks});
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
  model.initialize(2);
  const TinyData data(config.model.vocab, 552);  // 46 samples: a number that no mesh divides
  return evaluate(model, *setup, config, data.loader(config), batches);
}

TEST(Evaluate, ReadsEverySampleOnceOnEveryMesh) {
  Config config = tiny_config();
  config.balance = {};  // a lone sample has no part in a batch-wide loss
  for (const std::int64_t batches : {0, 1, 100}) {
    const Evaluation serial = evaluate_on(config, ProcessGroup::self(), 8, batches);
    EXPECT_EQ(serial.samples, batches == 1 ? 8 : 46);
    EXPECT_EQ(serial.tokens, serial.samples * config.batch.seq_len);
    for (const int tensor : {1, std::min(2, ProcessGroup::world(60).size())}) {
      const Evaluation mesh = evaluate_on(config, ProcessGroup::world(60), 3, batches, tensor);
      EXPECT_EQ(mesh.samples, serial.samples);
      EXPECT_EQ(mesh.tokens, serial.tokens);
      EXPECT_TRUE(std::abs(mesh.loss - serial.loss) <= 1e-5 * serial.loss) << mesh.loss << " for " << serial.loss;
      EXPECT_TRUE(std::abs(mesh.standard_error - serial.standard_error) <= 1e-4 * serial.standard_error)
          << mesh.standard_error << " for " << serial.standard_error;
    }
  }
}

TEST(Evaluate, SpreadsItsSampleAndTellsHowSureItIs) {
  Config config = tiny_config();
  config.batch.micro = 3;
  resolve(config, 1);
  const auto setup = make_setup(ProcessGroup::self(), {});
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
  model.initialize(2);
  const TinyData data(config.model.vocab, 552);
  const TokenLoader loader = data.loader(config);
  const Evaluation some = evaluate(model, *setup, config, loader, 1);
  ASSERT_EQ(some.samples, 8);
  double sum = 0, squares = 0;
  for (const std::int64_t position : {2, 7, 13, 19, 25, 30, 36, 42}) {  // of 46: the middle of each eighth
    const SampleOrder one(SampleOrder::Kind::sequential, 1, loader.order()(position), 1);
    const TokenLoader alone(std::make_shared<const TokenFile>(data.prefix()), one, config.batch.seq_len);
    const Evaluation evaluation = evaluate(model, *setup, config, alone, 0);
    EXPECT_EQ(evaluation.standard_error, 0);
    sum += evaluation.loss;
    squares += evaluation.loss * evaluation.loss;
  }
  EXPECT_NEAR(some.loss, sum / 8, 1e-5);
  EXPECT_NEAR(some.standard_error, std::sqrt((squares - sum * sum / 8) / 7 / 8), 1e-5);
}

TEST(Evaluate, AnUntrainedModelKnowsNothing) {
  Config config = tiny_config();
  config.model.init_std = 1e-3;
  const Evaluation evaluation = evaluate_on(config, ProcessGroup::world(60), 8, 0);
  EXPECT_NEAR(evaluation.loss, std::log(61.0), 1e-2);
}

}  // namespace
}  // namespace lyceum
