#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "core/copy.h"
#include "support/latent_model.h"
#include "support/model_stage.h"

namespace lyceum {
namespace {

/// The losses of a model that reads batches of the sequence length of `config`.
double loss_of(Transformer& model, const RunSetup& setup, const Config& config) {
  Tape tape(setup.stream, Tape::Mode::inference);
  const Transformer::Losses losses = model.forward(tape, random_batch(setup.stream, config, 0));
  return values_of<double>(setup.stream, losses.cross_entropy.value).front();
}

/// A model that continues with the configuration of a later training stage computes the same bits as one that is built
/// from that configuration, as evaluations of its checkpoints are.
TEST(SetStage, EqualsAModelOfThatStage) {
  const auto latent = [](std::int64_t query_rank) {
    return [=](Config& config) { make_latent(config.model, query_rank); };
  };
  const std::map<std::string, std::function<void(Config&)>> models{
      {"heads", [](Config&) {}},
      {"attention experts",
       [](Config& config) {
         config.model.attention = AttentionKind::experts;
         config.model.kv_heads = 0;
         config.attention_experts = {.count = 3, .top_k = 2, .gates = {}};
       }},
      {"windows",
       [](Config& config) {
         config.model.window = 20;  // more than the sequences of stage 1
         config.model.window_layers = {1, 0};
       }},
      {"latent", latent(0)},
      {"latent of queries", latent(9)}};
  for (const auto& [name, change] : models) {
    SCOPED_TRACE(name);
    Config config = tiny_config();
    config.batch.micro = 2;
    change(config);
    config.training_stages = {{.from_step = 2,
                               .values = {{"batch.seq_len", "24"},
                                          {"batch.micro", "1"},
                                          {"model.rope_scaling", "yarn"},
                                          {"model.rope_factor", "8"},
                                          {"model.rope_original_length", "12"},
                                          {"model.rope_mscale", "0.7"},
                                          {"model.rope_mscale_all_dim", "1.3"}}}};
    resolve(config, 1);
    require_none(problems(config, 1));
    const Config first = config_of_stage(config, 1), second = config_of_stage(config, 2);
    const auto setup = make_setup(ProcessGroup::self(), {});
    Transformer run(first, setup->stream, setup->mesh, DType::f64, false);
    Transformer reader(second, setup->stream, setup->mesh, DType::f64, false);
    run.initialize(config.run.seed);
    reader.initialize(config.run.seed);
    const double before = loss_of(run, *setup, first);
    run.set_stage(second);
    EXPECT_EQ(loss_of(run, *setup, second), loss_of(reader, *setup, second));
    EXPECT_TRUE(std::isfinite(before));
    run.set_stage(first);
    EXPECT_EQ(loss_of(run, *setup, first), before);
  }
}

}  // namespace
}  // namespace lyceum
