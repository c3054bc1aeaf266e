// A sequence of documents that are masked from each other has the same loss and gradients as separate sequences, one
// per document.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/copy.h"
#include "kernels/cross_entropy.h"
#include "support/model_stage.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

/// Adds up losses and gradients over passes, in double.
struct Sums {
  const Config& config;
  std::unique_ptr<RunSetup> setup = make_setup(ProcessGroup::self(), {}, CpuStream(1));
  Transformer model;
  double loss = 0;

  explicit Sums(const Config& c) : config(c), model(c, setup->stream, setup->mesh, DType::f64, true) {
    for (ParameterUnit* unit : model.units()) unit->allocate(setup->stream, DType::f64, true);
    model.initialize(3);
  }
  /// Runs one sequence. `first_keys` may be empty.
  void add(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets,
           const std::vector<std::int32_t>& first_keys) {
    const auto count = std::ssize(inputs);
    const Stream& stream = setup->stream;
    Tape tape(stream);
    const TokenBatch batch{.inputs = i32_tensor(stream, {count}, inputs),
                           .targets = i32_tensor(stream, {count}, targets),
                           .sequences = 1,
                           .seq_len = count,
                           .first_keys = first_keys.empty() ? Tensor() : i32_tensor(stream, {count}, first_keys),
                           .step = Tensor::zeros(stream, DType::f64, {1}, MemoryKind::buffers)};
    const Transformer::Losses losses = model.forward(tape, batch);
    loss += values_of<double>(stream, losses.cross_entropy.value)[0];
    std::vector<Tape::Seed> seeds{tape.seed(losses.cross_entropy, 1)};
    for (const auto& [layer, other] : losses.layers) {
      const double weight = other.kind == LossKind::mtp ? 0.5 : 0;
      seeds.push_back(tape.seed(other.value, weight));
      if (weight > 0) loss += weight * values_of<double>(stream, other.value.value)[0];
    }
    tape.backward(seeds);
  }
};

void check(const std::function<void(Config&)>& change) {
  Config config = tiny_config();
  config.balance = {};
  config.batch = {.global = 1, .micro = 1, .seq_len = 16};
  change(config);
  resolve(config, 1);
  const std::vector<std::int32_t> tokens{7, 3, 3, 60, 1, 0, 22, 9, 9, 8, 41, 5, 17, 33, 2, 50, 12};
  const std::vector<std::int32_t> begins{0, 5, 6, 13, 17};  // the last document is padding
  std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end()), first_keys(16);
  const std::vector<std::int32_t> inputs(tokens.begin(), tokens.end() - 1);
  targets[2] = no_target;  // this token is masked
  Sums alone(config), together(config);
  for (std::size_t d = 0; d + 1 < begins.size(); ++d) {
    const std::int32_t begin = begins[d], end = std::min(begins[d + 1], 16);
    std::fill(first_keys.begin() + begin, first_keys.begin() + end, begin);
    if (end < 16) targets[static_cast<std::size_t>(end - 1)] = no_target;
    alone.add({inputs.begin() + begin, inputs.begin() + end}, {targets.begin() + begin, targets.begin() + end}, {});
  }
  together.add(inputs, targets, first_keys);
  EXPECT_NEAR(together.loss, alone.loss, 1e-11 * alone.loss);
  for (std::size_t u = 0; u < together.model.units().size(); ++u) {
    const ParameterUnit &one = *together.model.units()[u], &other = *alone.model.units()[u];
    if (!one.trained()) continue;
    const auto a = one.gradients().span<double>(), b = other.gradients().span<double>();
    double size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 1e-10) << one.name() << " " << i;
      size += std::abs(a[i]);
    }
    EXPECT_GT(size, 0) << one.name();
  }
}

TEST(Documents, AreSeparateSequencesForSoftmax) {
  check([](Config&) {});
}

TEST(Documents, AreSeparateSequencesInAWindow) {
  check([](Config& c) { c.model.window = 3; });
  check([](Config& c) {
    c.model.window = 6;
    c.model.window_layers = {0, 1};
    c.model.sinks = true;
  });
}

TEST(Documents, AreSeparateSequencesForStickBreaking) {
  check([](Config& c) { c.model.attention_weights = AttentionWeights::stick_breaking; });
}

TEST(Documents, AreSeparateSequencesForAttentionExperts) {
  check([](Config& c) {
    c.model.attention = AttentionKind::experts;
    c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
  });
}

TEST(Documents, AreSeparateSequencesForSubDimensions) {
  check([](Config& c) {
    c.moe = {};
    c.sub_dimensions = {.attention = 4, .ffn = 8, .active = 3, .shared = 1};
  });
}

TEST(Documents, AreSeparateSequencesForModules) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    check([&](Config& c) {
      c.mtp.depth = 3;
      c.model.recompute = recompute;
    });
  }
  check([](Config& c) {
    c.mtp.depth = 1;
    c.model.tie_embeddings = true;
  });
}

TEST(Documents, AreSeparateSequencesWithRecomputation) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    check([&](Config& c) { c.model.recompute = recompute; });
  }
}

}  // namespace
}  // namespace lyceum
