#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/copy.h"
#include "core/random.h"
#include "kernels/cross_entropy.h"
#include "plan/mesh_rank.h"
#include "support/errors.h"
#include "support/tested_world.h"
#include "support/tiny_run.h"
#include "train/eval/sequence_scores.h"

namespace lyceum {
namespace {

/// Returns sequences of 2 to seq_len + 1 tokens, several of which have the same length.
std::vector<ScoredSequence> some_sequences(const Config& config, std::size_t count) {
  const Philox random(3, "sequences");
  std::uint64_t at = 0;
  const auto below = [&](std::int64_t n) { return random.below(static_cast<std::uint64_t>(n), at++); };
  std::vector<ScoredSequence> all(count);
  for (ScoredSequence& sequence : all) {
    const std::size_t length = 2 + below(config.batch.seq_len);
    for (std::size_t i = 0; i < length; ++i) {
      sequence.tokens.push_back(static_cast<std::int32_t>(below(config.model.vocab)));
    }
    sequence.scored = 1 + static_cast<std::int64_t>(below(static_cast<std::int64_t>(length) - 1));
  }
  return all;
}

/// Scores each sequence alone, on one rank, with a whole model.
std::vector<double> scores_alone(Config config, std::span<const ScoredSequence> sequences) {
  config.parallel = {};
  resolve(config, 1);
  const auto setup = make_setup(ProcessGroup::self(), {});
  Transformer model(config, setup->stream, setup->mesh, DType::f32, false);
  model.initialize(2);
  std::vector<double> scores;
  for (const ScoredSequence& sequence : sequences) {
    const std::int64_t length = std::ssize(sequence.tokens) - 1;
    std::vector<std::int32_t> inputs(sequence.tokens.begin(), sequence.tokens.end() - 1);
    std::vector<std::int32_t> targets(sequence.tokens.begin() + 1, sequence.tokens.end());
    std::fill(targets.begin(), targets.end() - sequence.scored, no_target);
    TokenBatch batch{.inputs = Tensor::empty(setup->stream, DType::i32, {length}),
                     .targets = Tensor::empty(setup->stream, DType::i32, {length}),
                     .sequences = 1,
                     .seq_len = length};
    copy_to_device(setup->stream, batch.inputs.span<std::int32_t>(), std::span<const std::int32_t>(inputs));
    copy_to_device(setup->stream, batch.targets.span<std::int32_t>(), std::span<const std::int32_t>(targets));
    Tape tape(setup->stream, Tape::Mode::inference);
    const Variable loss = model.forward(tape, batch).cross_entropy;
    scores.push_back(-values_of<float>(setup->stream, loss.value).at(0));
  }
  return scores;
}

std::vector<double> scores_on(Config config, ProcessGroup world, std::span<const ScoredSequence> sequences) {
  resolve(config, world.size());
  const auto setup = make_setup(std::move(world), mesh_shape(config.parallel));
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
  model.initialize(2);
  std::vector<double> scores = log_probabilities(model, *setup, config, sequences);
  for (const RoutingSums& sums : model.routing()) {
    for (const std::int64_t count : sums.counts) EXPECT_EQ(count, 0);
  }
  return scores;
}

void expect_scores(const std::vector<double>& scores, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(scores.size(), expected.size());
  for (std::size_t s = 0; s < scores.size(); ++s) {
    EXPECT_TRUE(std::abs(scores[s] - expected[s]) <= 1e-5 * (1 + std::abs(expected[s])))
        << what << ", sequence " << s << ": " << scores[s] << " for " << expected[s];
  }
}

struct ScoredModel {
  const char* name;
  std::function<void(Config&)> change;
};
const std::vector<ScoredModel>& scored_models() {
  static const std::vector<ScoredModel> all{{"experts", [](Config&) {}},
                                            {"limited capacity", [](Config& c) { c.moe.capacity_factor = 0.6; }},
                                            {"hash",
                                             [](Config& c) {
                                               c.moe.router = RouterKind::hash;
                                               c.moe.top_k = 1;
                                             }},
                                            {"zero and copy experts",
                                             [](Config& c) {
                                               c.moe.zero_experts = 3;
                                               c.moe.copy_experts = 2;
                                             }},
                                            {"attention experts",
                                             [](Config& c) {
                                               c.model.attention = AttentionKind::experts;
                                               c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
                                             }},
                                            {"mohd",
                                             [](Config& c) {
                                               c.moe = {};
                                               c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
                                             }},
                                            {"documents", [](Config& c) { c.data.document_mask = true; }}};
  return all;
}

std::vector<ParallelConfig> scored_meshes(int world) {
  std::vector<ParallelConfig> all{{.expert = world}};
  all.push_back({.tensor = 2, .expert = 2, .sequence = true});
  all.push_back({.tensor = 2, .expert_tensor = 2});
  all.push_back({.pipeline = 2, .expert = std::max(1, world / 2)});
  all.push_back({.pipeline = 2, .tensor = 2, .sequence = true});
  return all;
}

TEST(LogProbabilities, AreThoseOfEachSequenceAloneOnEveryMesh) {
  const int world = world_size();
  for (const auto& [name, change] : scored_models()) {
    Config config = tiny_config();
    config.balance = {};
    change(config);
    config.batch.global = 16;
    config.batch.micro = 2;
    const std::vector<ScoredSequence> sequences = some_sequences(config, 37);
    const std::vector<double> expected = scores_alone(config, sequences);
    for (const ParallelConfig& parallel : scored_meshes(world)) {
      Config own = config;
      own.parallel = parallel;
      if (!contradictions(own, world).empty()) continue;
      expect_scores(scores_on(own, test_world(), sequences), expected,
                    std::string(name) + ", " + mesh_shape(parallel).text(world));
    }
  }
}

TEST(LogProbabilities, OfOneShortSequence) {
  Config config = tiny_config();
  config.balance = {};
  config.batch.micro = 1;
  config.parallel = {.expert = world_size(), .sequence = false};
  const std::vector<ScoredSequence> one{{.tokens = {5, 7}, .scored = 1}};
  expect_scores(scores_on(config, test_world(), one), scores_alone(config, one), "one");
}

TEST(LogProbabilities, RefuseTokensBeyondTheVocabulary) {
  Config config = tiny_config();
  resolve(config, 1);
  const auto setup = make_setup(ProcessGroup::self(), {});
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
  const std::vector<ScoredSequence> bad{{.tokens = {1, 61}, .scored = 1}};
  expect_bad_input([&] { log_probabilities(model, *setup, config, bad); }, "token 61 is not below model.vocab = 61");
}

}  // namespace
}  // namespace lyceum
