#include "model/prediction_modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/copy.h"
#include "kernels/cross_entropy.h"
#include "model/transformer.h"
#include "support/finite_difference.h"
#include "support/op_check.h"
#include "support/tiny_run.h"

namespace lyceum {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // [tokens, width]

/// One sequence of tokens: inputs[i] is followed by targets[i], or by a token that is not trained on.
struct Sequence {
  std::vector<std::int32_t> inputs, targets;
};

/// A model in double precision whose pass is that of a training step. Its loss is the cross-entropy plus that of the
/// modules, weighted as in training, as sums over tokens.
class Model {
 public:
  explicit Model(Config config)
      : config_(resolved(std::move(config))),
        setup_(make_setup(ProcessGroup::self(), {}, CpuStream(1))),
        model_(config_, setup_->stream, setup_->mesh, DType::f64, true) {
    for (ParameterUnit* unit : model_.units()) unit->allocate(setup_->stream, DType::f64, true);
    model_.initialize(7);
  }

  const Config& config() const { return config_; }
  Transformer::Losses forward(Tape& tape, const Sequence& sequence) {
    const auto count = std::ssize(sequence.inputs);
    const Stream& stream = setup_->stream;
    const TokenBatch batch{.inputs = i32_tensor(stream, {count}, sequence.inputs),
                           .targets = i32_tensor(stream, {count}, sequence.targets),
                           .sequences = 1,
                           .seq_len = count,
                           .step = Tensor::zeros(stream, DType::f64, {1}, MemoryKind::buffers)};
    return model_.forward(tape, batch);
  }
  /// Returns the losses of the modules in order.
  std::vector<double> module_losses(const Sequence& sequence) {
    Tape tape(setup_->stream);
    std::vector<double> losses;
    for (const auto& [layer, loss] : forward(tape, sequence).layers) {
      if (loss.kind != LossKind::mtp) continue;
      EXPECT_EQ(layer, config_.model.layers + std::ssize(losses));
      losses.push_back(values_of<double>(setup_->stream, loss.value.value)[0]);
    }
    return losses;
  }
  double loss(const Sequence& sequence) {
    Tape tape(setup_->stream);
    const Transformer::Losses losses = forward(tape, sequence);
    double sum = values_of<double>(setup_->stream, losses.cross_entropy.value)[0];
    for (const auto& [layer, loss] : losses.layers) {
      const double weight = loss.kind == LossKind::mtp ? module_weight(config_.mtp) : 1;
      sum += weight * values_of<double>(setup_->stream, loss.value.value)[0];
    }
    return sum;
  }
  std::vector<double> gradient(const Sequence& sequence) {
    for (ParameterUnit* unit : model_.units()) {
      if (unit->trained()) std::ranges::fill(unit->gradients().span<double>(), 0.0);
    }
    Tape tape(setup_->stream);
    tape.release_results(config_.model.recompute == Recompute::selective);
    const Transformer::Losses losses = forward(tape, sequence);
    std::vector<Tape::Seed> seeds{tape.seed(losses.cross_entropy, 1)};
    for (const auto& [layer, loss] : losses.layers) {
      seeds.push_back(tape.seed(loss.value, loss.kind == LossKind::mtp ? module_weight(config_.mtp) : 1));
    }
    tape.backward(seeds);
    std::vector<double> all;
    for_each_element(
        [&](const Parameter& parameter, std::size_t i) { all.push_back(parameter.gradient.span<double>()[i]); });
    return all;
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for_each_element(
        [&](const Parameter& parameter, std::size_t i) { all.push_back(parameter.value.span<double>()[i]); });
    return all;
  }
  void set_weights(const std::vector<double>& values) {
    auto next = values.begin();
    for_each_element([&](const Parameter& parameter, std::size_t i) { parameter.value.span<double>()[i] = *next++; });
  }
  /// Returns a logical tensor as rows; a vector is one row.
  Rows tensor(const std::string& name) const {
    for (const ParameterUnit* unit : model_.units()) {
      for (const auto& parameter : unit->parameters()) {
        for (const ParameterSlice& slice : parameter->slices) {
          if (slice.name == name) return rows_of(*parameter, slice);
        }
      }
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

 private:
  static Config resolved(Config config) {
    resolve(config, 1);
    return config;
  }
  static Rows rows_of(const Parameter& parameter, const ParameterSlice& slice) {
    const int last = slice.shape.rank() - 1;
    const std::int64_t cols = slice.extent[last], pitch = slice.in_memory()[last];
    const auto values = parameter.value.span<double>().subspan(static_cast<std::size_t>(slice.first));
    Rows rows;
    for (std::int64_t r = 0; r < slice.extent.size() / cols; ++r) {
      const auto begin = values.begin() + r * pitch;
      rows.emplace_back(begin, begin + cols);
    }
    return rows;
  }
  /// Calls f(parameter, i) for each element of each trained parameter, padding included.
  template <class F>
  void for_each_element(F&& f) {
    for (const ParameterUnit* unit : model_.units()) {
      if (!unit->trained()) continue;
      for (const auto& parameter : unit->parameters()) {
        for (std::int64_t i = 0; i < parameter->shape.size(); ++i) f(*parameter, static_cast<std::size_t>(i));
      }
    }
  }

  Config config_;
  std::unique_ptr<RunSetup> setup_;
  Transformer model_;
};

/// A plain description of a dense Llama model with modules, written from the formulas, token by token.
class Reference {
 public:
  explicit Reference(const Model& model) : model_(model), config_(model.config()) {}

  /// Returns the sums of the modules' losses over the tokens of a sequence.
  std::vector<double> module_losses(const Sequence& sequence) const {
    const auto tokens = sequence.inputs.size();
    const Rows table = model_.tensor("model/embed_tokens/weight");
    Rows h;
    for (const std::int32_t token : sequence.inputs) h.push_back(table[static_cast<std::size_t>(token)]);
    for (std::int64_t layer = 0; layer < config_.model.layers; ++layer) {
      h = block(h, "model/layers/" + std::to_string(layer) + "/");
    }
    h = norms(h, "model/norm/weight");
    std::vector<double> losses;
    for (std::size_t k = 1; k <= static_cast<std::size_t>(config_.mtp.depth); ++k) {
      const std::string prefix = "model/mtp/" + std::to_string(k - 1) + "/";
      // Only the first tokens − k positions have a token t_{i+k}; later ones change nothing before them.
      h.resize(tokens - k);
      Rows embedded;
      for (std::size_t i = 0; i + k < tokens; ++i) {
        embedded.push_back(table[static_cast<std::size_t>(sequence.inputs[i + k])]);
      }
      const Rows left = norms(h, prefix + "hnorm/weight"), right = norms(embedded, prefix + "enorm/weight");
      Rows joined = left;
      for (std::size_t i = 0; i < joined.size(); ++i)
        joined[i].insert(joined[i].end(), right[i].begin(), right[i].end());
      h = norms(block(times(joined, model_.tensor(prefix + "proj/weight")), prefix), prefix + "norm/weight");
      losses.push_back(cross_entropy(h, sequence, k));
    }
    return losses;
  }

 private:
  /// Returns x · Wᵀ.
  static Rows times(const Rows& x, const Rows& weight) {
    Rows y;
    for (const Row& row : x) {
      Row& out = y.emplace_back();
      for (const Row& w : weight) out.push_back(std::inner_product(w.begin(), w.end(), row.begin(), 0.0));
    }
    return y;
  }
  Rows norms(Rows x, const std::string& name) const {
    const Row weight = model_.tensor(name).front();
    for (Row& row : x) {
      const double squares = std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + config_.model.norm_eps);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] *= scale * weight[c];
    }
    return x;
  }
  /// Rotates each head of x by its position.
  void rotate(Rows& x) const {
    const auto dim = static_cast<std::size_t>(config_.model.head_dim), half = dim / 2;
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t head = 0; head < x[t].size(); head += dim) {
        for (std::size_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(t) * std::pow(config_.model.rope_base, -2 * static_cast<double>(i) /
                                                                                              static_cast<double>(dim));
          double &a = x[t][head + i], &b = x[t][head + i + half];
          const double before = a;
          a = before * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + before * std::sin(angle);
        }
      }
    }
  }
  Rows attention(const Rows& x, const std::string& prefix) const {
    Rows q = times(x, model_.tensor(prefix + "q_proj/weight")), k = times(x, model_.tensor(prefix + "k_proj/weight"));
    const Rows v = times(x, model_.tensor(prefix + "v_proj/weight"));
    rotate(q);
    rotate(k);
    const auto dim = static_cast<std::size_t>(config_.model.head_dim);
    const auto group = static_cast<std::size_t>(config_.model.heads / config_.model.kv_heads);
    Rows result;
    for (std::size_t t = 0; t < x.size(); ++t) {
      Row& out = result.emplace_back(q[t].size(), 0.0);
      for (std::size_t head = 0; head < q[t].size() / dim; ++head) {
        const std::size_t from = head * dim, shared = head / group * dim;
        Row weights;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::size_t c = 0; c < dim; ++c) score += q[t][from + c] * k[s][shared + c];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        }
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t c = 0; c < dim; ++c) out[from + c] += weights[s] / sum * v[s][shared + c];
        }
      }
    }
    return times(result, model_.tensor(prefix + "o_proj/weight"));
  }
  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t c = 0; c < x[t].size(); ++c) x[t][c] += y[t][c];
    }
  }
  Rows block(Rows x, const std::string& prefix) const {
    add(x, attention(norms(x, prefix + "input_layernorm/weight"), prefix + "self_attn/"));
    const Rows inner = norms(x, prefix + "post_attention_layernorm/weight");
    Rows gate = times(inner, model_.tensor(prefix + "mlp/gate_proj/weight"));
    const Rows up = times(inner, model_.tensor(prefix + "mlp/up_proj/weight"));
    for (std::size_t t = 0; t < gate.size(); ++t) {
      for (std::size_t c = 0; c < gate[t].size(); ++c) gate[t][c] *= up[t][c] / (1 + std::exp(-gate[t][c]));
    }
    add(x, times(gate, model_.tensor(prefix + "mlp/down_proj/weight")));
    return x;
  }
  /// Returns −Σ_i log p(t_{i+k+1}) for the rows h_i.
  double cross_entropy(const Rows& h, const Sequence& sequence, std::size_t k) const {
    const bool tied = config_.model.tie_embeddings;
    const Rows logits = times(h, model_.tensor(tied ? "model/embed_tokens/weight" : "lm_head/weight"));
    double loss = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const std::int32_t target = sequence.targets[i + k];
      if (target == no_target) continue;
      double sum = 0;
      for (const double logit : logits[i]) sum += std::exp(logit);
      loss += std::log(sum) - logits[i][static_cast<std::size_t>(target)];
    }
    return loss;
  }

  const Model& model_;
  const Config& config_;
};

Config small_dense() {
  Config config;
  config.batch = {.global = 1, .micro = 1, .seq_len = 6};
  // The width of the FFN is a multiple of 8, so that its matrices are not padded, see disturb().
  config.model = {.layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn_hidden = 8, .vocab = 11};
  config.model.init_std = 0.5;
  config.mtp = {.depth = 2, .weight = 0.7};
  return config;
}

const Sequence six_tokens{{3, 9, 0, 7, 7, 1}, {9, 0, no_target, 7, 1, 10}};

/// Adds random numbers to all weights, padding included. Weights of norms are then not ones, so that it matters where
/// they are used.
void disturb(Model& model) {
  std::vector<double> weights = model.weights();
  const Philox random(5, "disturb");
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += 0.2 * random.normal(i);
  model.set_weights(weights);
}

TEST(PredictionModules, ComputeTheFormulas) {
  for (const bool tied : {false, true}) {
    for (const std::int64_t depth : {1, 2, 5}) {
      Config config = small_dense();
      config.model.tie_embeddings = tied;
      config.mtp.depth = depth;
      Model model(config);
      disturb(model);
      const std::vector<double> losses = model.module_losses(six_tokens),
                                expected = Reference(model).module_losses(six_tokens);
      ASSERT_EQ(losses.size(), expected.size());
      for (std::size_t k = 0; k < losses.size(); ++k) {
        EXPECT_TRUE(std::abs(losses[k] - expected[k]) <= 1e-10 * expected[k]) << losses[k] << " for " << expected[k];
        EXPECT_GT(expected[k], 0);
      }
    }
  }
}

TEST(PredictionModules, HaveTheGradientOfTheirLoss) {
  for (const bool chunked : {false, true}) {
    Config config = small_dense();
    config.model.layers = 1;
    if (chunked) {  // all experts are chosen, so that the loss has a gradient everywhere
      config.model.tie_embeddings = true;
      config.model.loss_chunk = 4;
      config.moe.experts = config.moe.top_k = 3;
      config.moe.expert_hidden = 4;
      config.balance.z_loss = 0.1;
    }
    Model model(config);
    disturb(model);
    const std::vector<double> at = model.weights(), gradient = model.gradient(six_tokens);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      config.model.recompute = recompute;
      Model replayed(config);
      replayed.set_weights(at);
      EXPECT_EQ(replayed.gradient(six_tokens), gradient);
    }
    const auto loss = [&](const std::vector<double>& weights) {
      model.set_weights(weights);
      return model.loss(six_tokens);
    };
    expect_gradient_along(32, loss, at, gradient);
  }
}

TEST(PredictionModules, RunInTrainingOnly) {
  Model model(small_dense());
  EXPECT_EQ(model.module_losses(six_tokens).size(), 2u);
  const auto setup = make_setup(ProcessGroup::self(), {}, CpuStream(1));
  Transformer reads(model.config(), setup->stream, setup->mesh, DType::f64, false);
  Tape tape(setup->stream, Tape::Mode::inference);
  const TokenBatch batch{.inputs = i32_tensor(setup->stream, {6}, six_tokens.inputs),
                         .targets = i32_tensor(setup->stream, {6}, six_tokens.targets),
                         .sequences = 1,
                         .seq_len = 6};
  EXPECT_TRUE(reads.forward(tape, batch).layers.empty());
}

/// A sequence of two tokens is too short for the second module.
TEST(PredictionModules, HaveNoLossWithoutFurtherTokens) {
  Model model(small_dense());
  const Sequence two{{3, 9}, {9, 0}};
  const std::vector<double> losses = model.module_losses(two);
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_GT(losses[0], 0);
  EXPECT_EQ(losses[1], 0) << "t_3 is not in the batch";
}

TEST(PredictionModules, FactorIsTheMeanOfModules) {
  EXPECT_DOUBLE_EQ(module_weight({.depth = 1, .weight = 0.3}), 0.3);
  EXPECT_DOUBLE_EQ(module_weight({.depth = 4, .weight = 0.3}), 0.075);
}

}  // namespace
}  // namespace lyceum
