#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <tuple>

#include "autograd/cast.h"
#include "core/copy.h"
#include "support/latent_model.h"
#include "support/model_stage.h"

namespace lyceum {
namespace {

class Generation : public testing::Test {
 protected:
  Config config() const {
    Config config = tiny_config();
    resolve(config, 1);
    return config;
  }
  std::vector<float> next(const Transformer& model, std::span<const std::int32_t> tokens,
                          std::vector<KeyValueCache>& caches) const {
    return values_of<float>(setup_->stream, cast(setup_->stream, model.next_logits(tokens, caches), DType::f32));
  }
  std::unique_ptr<RunSetup> setup_ = make_setup(ProcessGroup::self(), {});
};

/// The cross-entropy of each target is the same from a pass over whole sequences as from next_logits(), one token at a
/// time.
TEST_F(Generation, OneTokenAtATimeIsThePassOverTheSequence) {
  using enum QkNormKind;
  const PositionsConfig plain{}, scaled{.scaling = RopeScalingKind::yarn,
                                        .factor = 4,
                                        .original_length = 16,
                                        .rotary_fraction = 0.7,
                                        .layout = RopeLayout::interleaved};
  for (const auto& [recompute, weights, cut, norm, positions, window] :
       {std::tuple{Recompute::none, AttentionWeights::softmax, false, none, plain, 0},
        std::tuple{Recompute::full, AttentionWeights::softmax, false, none, plain, 0},
        std::tuple{Recompute::none, AttentionWeights::stick_breaking, false, none, plain, 0},
        std::tuple{Recompute::none, AttentionWeights::softmax, false, head, plain, 0},
        std::tuple{Recompute::none, AttentionWeights::softmax, false, head, scaled, 0},
        std::tuple{Recompute::none, AttentionWeights::stick_breaking, false, all, plain, 0},
        std::tuple{Recompute::none, AttentionWeights::softmax, true, none, plain, 0},
        std::tuple{Recompute::none, AttentionWeights::softmax, false, none, plain, 1},
        std::tuple{Recompute::none, AttentionWeights::softmax, false, head, scaled, 5},
        std::tuple{Recompute::none, AttentionWeights::softmax, true, none, plain, 12}}) {
    Config config = this->config();
    config.batch.micro = 1;
    config.model.recompute = recompute;
    config.model.attention_weights = weights;
    config.model.qk_norm = norm;
    config.model.positions = positions;
    config.model.qkv_bias = config.moe.shared_gate = norm != none;
    config.model.window = window;
    if (window == 5) config.model.window_layers = {1, 0};
    config.model.sinks = window > 0 && !cut;
    if (cut) {
      config.moe = {};
      config.sub_dimensions = {.attention = 4, .ffn = 6, .active = 3, .shared = 1};
    }
    Transformer model(config, setup_->stream, setup_->mesh, DType::f32, false);
    model.initialize(1);
    TokenBatch batch = random_batch(setup_->stream, config, 0);
    batch.token_losses = Tensor::empty(setup_->stream, DType::f32, {batch.tokens()});
    Tape tape(setup_->stream, Tape::Mode::inference);
    model.forward(tape, batch);
    const auto inputs = batch.inputs.span<std::int32_t>(), targets = batch.targets.span<std::int32_t>();
    std::vector<KeyValueCache> caches = model.new_caches(config.batch.seq_len);
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      const std::vector<float> logits = next(model, inputs.subspan(t, 1), caches);
      const double sum = std::accumulate(logits.begin(), logits.end(), 0.0,
                                         [](double all, float logit) { return all + std::exp(double{logit}); });
      const double loss = std::log(sum) - logits[static_cast<std::size_t>(targets[t])];
      EXPECT_TRUE(std::abs(loss - batch.token_losses.span<float>()[t]) <= 1e-4)
          << name_of(recompute) << ", " << name_of(weights) << (cut ? ", cut" : "") << ", norms of " << name_of(norm)
          << ", positions " << name_of(positions.scaling) << ", window " << window << ", token " << t;
    }
    EXPECT_EQ(caches.front().length, config.batch.seq_len);
    EXPECT_THROW(next(model, inputs.first(1), caches), Error) << "the sequence is full";
  }
}

/// The losses of latent attention, whose cache has latents and shared keys, are those of a pass over the sequence: for
/// one token at a time, when the matrix of keys and values is absorbed, and for several at a time, when it is not.
TEST_F(Generation, LatentsGiveThePassOverTheSequence) {
  for (const auto& [query_rank, window, scaling, latent] :
       {std::tuple{0, 0, RopeScalingKind::none, 7}, std::tuple{5, 0, RopeScalingKind::none, 7},
        std::tuple{5, 3, RopeScalingKind::none, 40}, std::tuple{5, 0, RopeScalingKind::yarn, 3}}) {
    Config config = tiny_config();
    config.batch.micro = 1;
    make_latent(config.model, query_rank);
    config.model.latent.key_value_rank = latent;
    config.model.window = window;
    if (scaling == RopeScalingKind::yarn) {
      config.model.positions = {
          .scaling = scaling, .factor = 4, .original_length = 16, .mscale = 0.7, .mscale_all_dim = 1.3};
    }
    resolve(config, 1);
    Transformer model(config, setup_->stream, setup_->mesh, DType::f32, false);
    model.initialize(1);
    TokenBatch batch = random_batch(setup_->stream, config, 0);
    batch.token_losses = Tensor::empty(setup_->stream, DType::f32, {batch.tokens()});
    Tape tape(setup_->stream, Tape::Mode::inference);
    model.forward(tape, batch);
    const auto inputs = batch.inputs.span<std::int32_t>(), targets = batch.targets.span<std::int32_t>();
    for (const std::size_t at_once : {std::size_t{1}, std::size_t{4}, inputs.size()}) {
      std::vector<KeyValueCache> caches = model.new_caches(config.batch.seq_len);
      for (std::size_t t = 0; t < inputs.size(); t += at_once) {
        const std::vector<float> logits = next(model, inputs.subspan(t, at_once), caches);
        const std::size_t last = t + at_once - 1;
        const double sum = std::accumulate(logits.begin(), logits.end(), 0.0,
                                           [](double all, float logit) { return all + std::exp(double{logit}); });
        const double loss = std::log(sum) - logits[static_cast<std::size_t>(targets[last])];
        EXPECT_TRUE(std::abs(loss - batch.token_losses.span<float>()[last]) <= 1e-4)
            << "rank " << query_rank << ", window " << window << ", latent " << latent << ", " << at_once
            << " at once, token " << last;
      }
      EXPECT_EQ(caches.front().length, config.batch.seq_len);
      EXPECT_EQ(caches.front().keys.shape()[1], latent + 2);
    }
  }
}

TEST_F(Generation, APromptMayComeInPieces) {
  for (const auto& [weights, window] : {std::pair{AttentionWeights::softmax, 0},
                                        {AttentionWeights::stick_breaking, 0},
                                        {AttentionWeights::softmax, 2}}) {
    Config config = this->config();
    config.model.attention_weights = weights;
    config.model.window = window;
    config.model.sinks = window > 0;
    Transformer model(config, setup_->stream, setup_->mesh, DType::f32, false);
    model.initialize(1);
    model.clear_routing();
    const std::vector<std::int32_t> prompt{3, 1, 4, 1, 5, 9, 2};
    std::vector<KeyValueCache> whole = model.new_caches(config.batch.seq_len), cut = whole;
    const std::vector<float> expected = next(model, prompt, whole);
    next(model, std::span(prompt).first(4), cut);
    const std::vector<float> logits = next(model, std::span(prompt).subspan(4), cut);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(std::abs(logits[i] - expected[i]) <= 1e-4) << i;
    for (const RoutingSums& sums : model.routing()) EXPECT_EQ(imbalance(sums), 0) << "generated text is not counted";
  }
}

}  // namespace
}  // namespace lyceum
