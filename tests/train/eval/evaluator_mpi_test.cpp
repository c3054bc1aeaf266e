#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "io/data/tokens/token_formats.h"
#include "support/logged_tokens.h"
#include "support/tested_world.h"
#include "support/tiny_run.h"
#include "train/eval/evaluator.h"

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
  config.balance = {};  // balance losses are not compared
  for (const std::int64_t batches : {0, 1, 100}) {
    const Evaluation serial = evaluate_on(config, ProcessGroup::self(), 8, batches);
    EXPECT_EQ(serial.samples, batches == 1 ? 8 : 46);
    EXPECT_EQ(serial.tokens, serial.samples * config.batch.seq_len);
    for (const int tensor : {1, std::min(2, test_world().size())}) {
      const Evaluation mesh = evaluate_on(config, test_world(), 3, batches, tensor);
      EXPECT_EQ(mesh.samples, serial.samples);
      EXPECT_EQ(mesh.tokens, serial.tokens);
      EXPECT_TRUE(std::abs(mesh.loss - serial.loss) <= 1e-5 * serial.loss) << mesh.loss << " for " << serial.loss;
      EXPECT_TRUE(std::abs(mesh.standard_error - serial.standard_error) <= 1e-4 * serial.standard_error)
          << mesh.standard_error << " for " << serial.standard_error;
    }
  }
}

/// Modules have no part in the loss, and their routers count nothing.
TEST(Evaluate, DoesNotRunModulesOfMultiTokenPrediction) {
  Config config = tiny_config();
  const Evaluation without = evaluate_on(config, test_world(), 3, 1);
  config.mtp.depth = 2;
  const Evaluation with = evaluate_on(config, test_world(), 3, 1);
  EXPECT_EQ(with.loss, without.loss);
  ASSERT_EQ(with.routing.size(), without.routing.size() + 2);
  for (std::size_t l = 0; l < with.routing.size(); ++l) {
    const std::vector<std::int64_t>& counts = with.routing[l].counts;
    if (l < without.routing.size()) {
      EXPECT_EQ(counts, without.routing[l].counts);
    } else {
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), 0);
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
  for (const std::int64_t position : {2, 7, 13, 19, 25, 30, 36, 42}) {  // the middle of each eighth of 46 samples
    const SampleOrder one(SampleOrder::Kind::sequential, 1, loader.order()(position), 1);
    const TokenLoader alone(open_tokens(data.prefix()), one, config.batch.seq_len);
    const Evaluation evaluation = evaluate(model, *setup, config, alone, 0);
    EXPECT_EQ(evaluation.standard_error, 0);
    sum += evaluation.loss;
    squares += evaluation.loss * evaluation.loss;
  }
  EXPECT_NEAR(some.loss, sum / 8, 1e-5);
  EXPECT_NEAR(some.standard_error, std::sqrt((squares - sum * sum / 8) / 7 / 8), 1e-5);
}

TEST(TokenLogOf, AnEvaluationIsTheSameOnEveryMesh) {
  const ProcessGroup world = test_world();
  for (const std::int64_t batches : {0, 3}) {
    Config config = tiny_config();
    config.balance = {};
    const Logged serial = log_tokens(config, ProcessGroup::self(), {.batches = batches});
    std::vector<TokenLogCase> cases{{.micro = 3, .batches = batches}};
    if (world.size() % 2 == 0) {
      cases.push_back({.micro = 3, .batches = batches, .tensor = 2, .sequence = false});
      cases.push_back({.micro = 2, .batches = batches, .pipeline = 2});
    }
    if (world.size() % 4 == 0) cases.push_back({.micro = 1, .batches = batches, .tensor = 2, .pipeline = 2});
    for (const TokenLogCase& how : cases) {
      const Logged mesh = log_tokens(config, world, how);
      if (world.rank() != 0) continue;
      EXPECT_EQ(mesh.identity, serial.identity);
      EXPECT_EQ(mesh.chosen, serial.chosen);
      expect_near(mesh.losses, serial.losses);
      for (std::size_t l = 0; l < serial.gates.size(); ++l) expect_near(mesh.gates[l], serial.gates[l]);
    }
  }
}

/// Compares the token log with the mean loss, the routing counts and the tokens in the file.
TEST(TokenLogOf, AnEvaluationAddsUpToIt) {
  const Config config = tiny_config();
  const Logged log = log_tokens(config, ProcessGroup::self(), {.micro = 5});
  ASSERT_EQ(std::ssize(log.losses), log.evaluation.tokens);
  EXPECT_NEAR(std::accumulate(log.losses.begin(), log.losses.end(), 0.0) / static_cast<double>(log.losses.size()),
              log.evaluation.loss, 1e-6);
  ASSERT_EQ(log.chosen.size(), 2u);
  for (std::size_t l = 0; l < 2; ++l) {
    std::vector<std::int64_t> counts(3 * 9, 0);
    for (std::size_t i = 0; i < log.chosen[l].size(); ++i) {
      ++counts[i % 3 * 9 + static_cast<std::size_t>(log.chosen[l][i])];
      EXPECT_TRUE(i % 3 == 0 || log.gates[l][i] <= log.gates[l][i - 1]);  // best first
    }
    EXPECT_EQ(counts, log.evaluation.routing[l].counts);
  }
  const TinyData data(config.model.vocab, 552);
  const auto file = open_tokens(data.prefix());
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file->tokens()));
  file->read(0, tokens);
  std::set<std::int64_t> positions;
  for (std::size_t i = 0; i < log.losses.size(); ++i) {
    const auto position = static_cast<std::size_t>(log.identity[0][i]);
    EXPECT_EQ(log.identity[1][i], tokens[position]);
    EXPECT_EQ(log.identity[2][i], tokens[position + 1]);
    positions.insert(log.identity[0][i]);
  }
  EXPECT_EQ(positions.size(), log.losses.size());  // each token is logged once
}

/// A run that chooses all experts logs them in the order of the first mixture's scores, from which the choices with
/// skip_top follow. Only the first mixture is compared, since the input of later ones depends on its choices.
TEST(SkipTop, TakesTheNextOnesOnEveryMesh) {
  const ProcessGroup world = test_world();
  for (const std::int64_t groups : {0, 2}) {
    Config config = tiny_config();
    config.balance = {.device_groups = 3};
    Config every = config;
    every.moe.top_k = groups ? 6 : 9;
    config.moe.top_k = 2;
    config.moe.group_limit = every.moe.group_limit = groups;
    const Logged order = log_tokens(every, ProcessGroup::self(), {});
    const Logged none = log_tokens(config, ProcessGroup::self(), {});
    for (const std::int64_t skip : {1, 4}) {
      const Logged serial = log_tokens(config, ProcessGroup::self(), {.skip_top = skip});
      const auto tokens = serial.losses.size();
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t j = 0; j < 2; ++j) {
          const std::size_t at = t * static_cast<std::size_t>(every.moe.top_k) + static_cast<std::size_t>(skip) + j;
          EXPECT_EQ(serial.chosen[0][t * 2 + j], order.chosen[0][at]);
          EXPECT_EQ(serial.gates[0][t * 2 + j], order.gates[0][at]);
        }
      }
      EXPECT_TRUE(std::abs(serial.evaluation.loss - none.evaluation.loss) > 1e-4);
      const Logged mesh = log_tokens(config, world, {.micro = 3, .skip_top = skip});
      EXPECT_NEAR(mesh.evaluation.loss, serial.evaluation.loss, 1e-5 * serial.evaluation.loss);
      EXPECT_TRUE(world.rank() != 0 || mesh.chosen == serial.chosen);
    }
  }
}

TEST(Evaluate, AnUntrainedModelKnowsNothing) {
  Config config = tiny_config();
  config.model.init_std = 1e-3;
  const Evaluation evaluation = evaluate_on(config, test_world(), 8, 0);
  EXPECT_NEAR(evaluation.loss, std::log(61.0), 1e-2);
}

}  // namespace
}  // namespace lyceum
