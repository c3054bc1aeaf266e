#include "model/routing/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "autograd/noise.h"
#include "core/copy.h"
#include "core/random.h"
#include "kernels/uniform_numbers.h"
#include "support/errors.h"
#include "support/model_stage.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

struct RouterCase {
  const char* name;
  std::function<void(Config&)> change;
  std::vector<std::pair<std::string, Shape>> tensors;  // of one layer, without its prefix: 9 experts, hidden 24
};
void PrintTo(const RouterCase& router, std::ostream* out) { *out << router.name; }

const RouterCase routers[] = {
    {"Softmax", [](Config&) {}, {{"gate/weight", {9, 24}}}},
    {"Sigmoid",
     [](Config& c) {
       c.moe.router = RouterKind::sigmoid;
       c.moe.gates = Gates::renormalized;
       c.balance.z_loss = 0;
       c.balance.bias_rate = 0.01;
       c.moe.group_limit = 2;
     },
     {{"gate/weight", {9, 24}}, {"gate/e_score_correction_bias", {9}}}},
    {"SqrtSoftplus",
     [](Config& c) {
       c.moe.router = RouterKind::sqrt_softplus;
       c.moe.gates = Gates::renormalized;
       c.balance.z_loss = 0;
       c.balance.bias_rate = 0.01;
     },
     {{"gate/weight", {9, 24}}, {"gate/e_score_correction_bias", {9}}}},
    {"Random", [](Config& c) { c.moe.router = RouterKind::random; }, {{"gate/weight", {9, 24}}}},
    {"Noisy",
     [](Config& c) {
       c.moe.router = RouterKind::noisy;
       c.moe.gates = Gates::renormalized;
     },
     {{"gate/weight", {9, 24}}, {"gate/noise/weight", {9, 24}}, {"gate/noise_scale", {9}}}},
    {"Mlp",
     [](Config& c) {
       c.moe.router = RouterKind::mlp;
       c.moe.router_hidden = 5;
       c.moe.gates = Gates::detached;
     },
     {{"gate/in/weight", {5, 24}}, {"gate/weight", {9, 5}}}},
    {"Even", [](Config& c) { c.moe.even_routing = true; }, {{"gate/weight", {9, 24}}}},
    {"AttentionExperts",
     [](Config& c) {
       c.model.attention = AttentionKind::experts;
       c.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
       c.model.ffn = Activation::gelu;
     },
     {{"gate/weight", {9, 24}}}},
    {"Hash",
     [](Config& c) {
       c.moe.router = RouterKind::hash;
       c.moe.top_k = 1;
       c.balance = {};
     },
     {}},
    {"Uniform",
     [](Config& c) {
       c.moe.router = RouterKind::uniform;
       c.balance = {};
     },
     {}}};

class RouterOfModel : public testing::TestWithParam<RouterCase> {
 protected:
  RouterOfModel() {
    config_.batch = {.global = 1, .micro = 1, .seq_len = 12};
    GetParam().change(config_);
    resolve(config_, 1);
    require_none(problems(config_, 1));
  }
  Config config_ = tiny_config();
};

TEST_P(RouterOfModel, HasItsTensors) {
  const auto setup = make_setup(ProcessGroup::self(), {}, CpuStream(1));
  const Transformer model(config_, setup->stream, setup->mesh, DType::f32, false);
  std::vector<std::pair<std::string, Shape>> found;
  const std::string prefix = "model/layers/1/mlp/";
  for (const ParameterUnit* unit : model.units()) {
    for (const auto& parameter : unit->parameters()) {
      const ParameterSlice& slice = parameter->slices.front();
      if (slice.name.starts_with(prefix + "gate/")) found.emplace_back(slice.name.substr(prefix.size()), slice.shape);
    }
  }
  EXPECT_EQ(found, GetParam().tensors);
}

/// The cross-entropy of each target is the same from one pass over a sequence as from next_logits(), token by token.
TEST_P(RouterOfModel, GeneratesByTheForwardPass) {
  const auto setup = make_setup(ProcessGroup::self(), {}, CpuStream(1));
  const Stream& stream = setup->stream;
  Transformer model(config_, stream, setup->mesh, DType::f32, false);
  model.initialize(3);
  TokenBatch batch = random_batch(stream, config_, 0);
  batch.token_losses = Tensor::empty(stream, DType::f32, {batch.tokens()});
  Tape tape(stream, Tape::Mode::inference);
  model.forward(tape, batch);
  const auto losses = values_of<float>(stream, batch.token_losses);
  const auto inputs = values_of<std::int32_t>(stream, batch.inputs);
  const auto targets = values_of<std::int32_t>(stream, batch.targets);
  std::vector<KeyValueCache> caches = model.new_caches(batch.seq_len);
  for (std::size_t t = 0; t < losses.size(); ++t) {
    const auto logits = values_of<float>(stream, model.next_logits(std::span(inputs).subspan(t, 1), caches));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const double loss = std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(targets[t])]);
    EXPECT_NEAR(loss, losses[t], 1e-5) << "token " << t;
  }
}

/// A router of layer 3 alone, in double. Tokens have width 5; there are four experts in two groups. The batch has 12
/// more tokens in front of those of this rank.
struct LoneRouter {
  static constexpr std::int64_t tokens = 6, hidden = 5, experts = 4, layer = 3, first = 12;
  Config config;
  Stream stream = tested_stream();
  ParameterUnit untrained{"untrained", ParameterUnit::Group::replicated, 0, ParameterUnit::Role::buffer};
  std::optional<Router> router;
  Tensor step = tensor_of(stream, {1}, std::vector<double>{7});
  Tensor words = i32_tensor(stream, {tokens}, {5, 1, 900, 5, 0, 77});
  std::int64_t skip = 0;

  explicit LoneRouter(const std::function<void(Config&)>& change) {
    config.model.hidden = hidden;
    config.model.norm_eps = 1e-3;
    config.moe.experts = experts;
    config.moe.top_k = 2;
    config.moe.router_hidden = 3;
    config.balance.expert = 1;
    change(config);
  }
  void add_parameters(ParameterUnit& unit) {
    router.emplace(config, *routed_experts(config, layer), "layer", Router::Units{unit, untrained},
                   Placement::contiguous(experts, 2));
    untrained.allocate(stream, DType::f64, true);
    const Philox random(5, "untrained");
    std::vector<double> values(static_cast<std::size_t>(untrained.size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
    copy_to_device(stream, untrained.values().span<double>(), std::span<const double>(values));
  }
  Router::Choices forward(Tape& tape, const Variable& x) const {
    return router->forward(tape,
                           {.batch = {.inputs = words,
                                      .targets = {},
                                      .sequences = tokens / 3,
                                      .seq_len = 3,
                                      .first_token = first,
                                      .step = step},
                            .layout = TokenLayout(tokens, 3),
                            .rope = {},
                            .skip_top = skip},
                           x, nullptr);
  }
};

struct LoneCase {
  const char* name;
  std::function<void(Config&)> change;
};
void PrintTo(const LoneCase& router, std::ostream* out) { *out << router.name; }

const LoneCase lone_routers[] = {{"Softmax", [](Config&) {}},
                                 {"SoftmaxInAGroup", [](Config& c) { c.moe.group_limit = 1; }},
                                 {"SigmoidInAGroup",
                                  [](Config& c) {
                                    c.moe.router = RouterKind::sigmoid;
                                    c.moe.gates = Gates::renormalized;
                                    c.moe.group_limit = 1;
                                  }},
                                 {"ScaledSigmoid",
                                  [](Config& c) {
                                    c.moe.router = RouterKind::sigmoid;
                                    c.moe.gates = Gates::renormalized;
                                    c.moe.routed_scale = 2.5;
                                  }},
                                 {"ScaledSoftmax", [](Config& c) { c.moe.routed_scale = 16; }},
                                 {"SqrtSoftplus", [](Config& c) { c.moe.router = RouterKind::sqrt_softplus; }},
                                 {"SqrtSoftplusInAGroup",
                                  [](Config& c) {
                                    c.moe.router = RouterKind::sqrt_softplus;
                                    c.moe.gates = Gates::renormalized;
                                    c.moe.group_limit = 1;
                                  }},
                                 {"Random", [](Config& c) { c.moe.router = RouterKind::random; }},
                                 {"Noisy",
                                  [](Config& c) {
                                    c.moe.router = RouterKind::noisy;
                                    c.moe.gates = Gates::renormalized;
                                  }},
                                 {"Mlp",
                                  [](Config& c) {
                                    c.moe.router = RouterKind::mlp;
                                    c.moe.gates = Gates::renormalized;
                                  }},
                                 {"Hash",
                                  [](Config& c) {
                                    c.moe.router = RouterKind::hash;
                                    c.moe.top_k = 1;
                                    c.balance = {};
                                  }},
                                 {"Uniform", [](Config& c) {
                                    c.moe.router = RouterKind::uniform;
                                    c.moe.routed_scale = 3;
                                    c.balance = {};
                                  }}};

class RouterAlone : public testing::TestWithParam<LoneCase> {};

TEST_P(RouterAlone, HasTheGradientsOfFiniteDifferences) {
  const auto lone = std::make_shared<LoneRouter>(GetParam().change);
  check_op({.name = GetParam().name,
            .inputs = {{LoneRouter::tokens, LoneRouter::hidden}},
            .add_parameters = [lone](ParameterUnit& unit) { lone->add_parameters(unit); },
            .run = [lone](Tape& tape, const std::vector<Variable>& x, const ParameterUnit&) -> std::vector<Variable> {
              const Router::Choices choices = lone->forward(tape, x[0]);
              if (!choices.load.value.defined()) return {};
              return {choices.gates, choices.load};
            }});
}

/// A matrix as a list of rows.
using Rows = std::vector<std::vector<double>>;

/// Returns x · Wᵀ for the tensor of that name, to which "layer/" is prefixed.
Rows product(const Rows& x, const std::map<std::string, Rows>& tensors, const std::string& name) {
  Rows y;
  for (const std::vector<double>& row : x) {
    y.emplace_back();
    for (const std::vector<double>& weight : tensors.at(name)) {
      y.back().push_back(std::inner_product(row.begin(), row.end(), weight.begin(), 0.0));
    }
  }
  return y;
}

/// Returns the logits by the formula of each kind of router; empty for a hash. ε are the kernel's values for x = 0 and
/// softplus(s) = 1.
Rows naive_logits(const LoneRouter& lone, const Rows& x, const std::map<std::string, Rows>& tensors) {
  const MoeConfig& moe = lone.config.moe;
  if (moe.router == RouterKind::mlp) {
    Rows inner = product(x, tensors, "gate/in/weight");
    for (std::vector<double>& row : inner) {
      for (double& value : row) value = std::max(value, 0.0);
    }
    return product(inner, tensors, "gate/weight");
  }
  Rows logits = product(x, tensors, "gate/weight");
  if (moe.router != RouterKind::noisy) return logits;
  const Rows noise = product(x, tensors, "gate/noise/weight");
  const std::vector<double>& scale = tensors.at("gate/noise_scale")[0];
  const Tensor zeros = Tensor::zeros(lone.stream, DType::f64, {LoneRouter::tokens, LoneRouter::experts});
  const std::vector<double> level(zeros.size(), std::log(std::exp(1.0) - 1));
  NoisyLogits::Saved unused;
  const NoisyLogits source{
      .seed = lone.config.run.seed, .layer = LoneRouter::layer, .first = LoneRouter::first, .step = lone.step};
  const auto epsilon = values_of<double>(
      lone.stream, source.forward(lone.stream, unused, zeros, tensor_of(lone.stream, zeros.shape(), level)));
  for (std::size_t t = 0; t < logits.size(); ++t) {
    double mean_square = 0;
    for (const double value : noise[t]) mean_square += value * value / 4;
    for (std::size_t e = 0; e < 4; ++e) {
      const double normed = noise[t][e] / std::sqrt(mean_square + lone.config.model.norm_eps);
      logits[t][e] += epsilon[t * 4 + e] * std::log1p(std::exp(scale[e] * normed));
    }
  }
  return logits;
}

TEST_P(RouterAlone, FollowsItsFormula) {
  LoneRouter lone(GetParam().change);
  ParameterUnit unit("unit", ParameterUnit::Group::replicated);
  lone.add_parameters(unit);
  unit.allocate(lone.stream, DType::f64, false);
  std::map<std::string, Rows> tensors;
  const Philox random(6, "lone");
  std::uint64_t drawn = 0;
  for (const ParameterUnit* held : {&unit, &lone.untrained}) {
    for (const auto& parameter : held->parameters()) {
      const Shape& shape = parameter->shape;
      std::vector<double> values = values_of<double>(lone.stream, parameter->value);
      if (held == &unit) {
        for (double& value : values) value = random.normal(drawn++);
        copy_to_device(lone.stream, parameter->value.span<double>(), std::span<const double>(values));
      }
      const auto cols = static_cast<std::ptrdiff_t>(shape[shape.rank() - 1]);
      Rows& rows = tensors[parameter->name.substr(std::string("layer/").size())];
      for (auto at = values.begin(); at != values.end(); at += cols) rows.emplace_back(at, at + cols);
    }
  }
  Rows x;
  std::vector<double> flat;
  for (std::int64_t t = 0; t < LoneRouter::tokens; ++t) {
    x.emplace_back();
    for (std::int64_t c = 0; c < LoneRouter::hidden; ++c) x.back().push_back(random.normal(drawn++));
    flat.insert(flat.end(), x.back().begin(), x.back().end());
  }
  const MoeConfig& moe = lone.config.moe;
  std::vector<double> gates;
  std::vector<std::int32_t> index;
  const auto route = [&](std::int64_t skip) {
    lone.skip = skip;
    Tape tape(lone.stream, Tape::Mode::inference);
    const Router::Choices choices =
        lone.forward(tape, Variable{tensor_of(lone.stream, {LoneRouter::tokens, LoneRouter::hidden}, flat)});
    gates = values_of<double>(lone.stream, choices.gates.value);
    index = values_of<std::int32_t>(lone.stream, choices.index);
  };
  if (moe.router == RouterKind::hash) {
    route(0);
    const auto words = values_of<std::int32_t>(lone.stream, lone.words);
    for (std::size_t t = 0; t < words.size(); ++t) {
      EXPECT_EQ(static_cast<std::uint64_t>(index[t]),
                splitmix64(static_cast<std::uint64_t>(words[t]) + (3ull << 32)) % 4);
      EXPECT_EQ(gates[t], 1);
    }
    return;
  }
  if (moe.router == RouterKind::uniform) {
    route(0);
    std::vector<std::int32_t> expected(index.size());
    const auto k = static_cast<std::size_t>(moe.top_k);
    const auto step = static_cast<std::uint32_t>(values_of<double>(lone.stream, lone.step)[0]);
    for (std::size_t t = 0; t < x.size(); ++t) {
      draw_experts(uniform_key(lone.config.run.seed), LoneRouter::layer, step,
                   LoneRouter::first + static_cast<std::int64_t>(t), 4, &expected[t * k], moe.top_k);
    }
    EXPECT_EQ(index, expected);
    for (const double gate : gates) EXPECT_DOUBLE_EQ(gate, 3.0 / static_cast<double>(k));
    return;
  }
  const bool sigmoid = moe.router == RouterKind::sigmoid, root = moe.router == RouterKind::sqrt_softplus;
  const Rows logits = naive_logits(lone, x, tensors);
  const auto expect_route = [&](std::size_t t, std::size_t skip) {
    std::vector<double> scores, keys;
    double sum = 0;
    for (const double logit : logits[t]) sum += std::exp(logit);
    for (std::size_t e = 0; e < 4; ++e) {
      const double power = std::exp(logits[t][e]);
      scores.push_back(sigmoid ? power / (1 + power) : root ? std::sqrt(std::log(1 + power)) : power / sum);
      keys.push_back(scores[e] + (sigmoid || root ? tensors.at("gate/e_score_correction_bias")[0][e] : 0));
    }
    std::vector<std::int32_t> order{0, 1, 2, 3};
    if (moe.group_limit == 1) {  // the groups are {0, 1} and {2, 3}
      order =
          keys[0] + keys[1] >= keys[2] + keys[3] ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{2, 3};
    }
    std::ranges::sort(order, std::greater(), [&](std::int32_t e) { return keys[static_cast<std::size_t>(e)]; });
    order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(skip));
    double chosen = 0;
    for (std::size_t j = 0; j < 2; ++j) chosen += scores[static_cast<std::size_t>(order[j])];
    for (std::size_t j = 0; j < 2; ++j) {
      EXPECT_EQ(index[t * 2 + j], order[j]) << t << " behind " << skip;
      const double score = scores[static_cast<std::size_t>(order[j])];
      const bool divided = moe.gates == Gates::renormalized;
      const double gate = moe.routed_scale * (divided ? score / chosen : score);
      EXPECT_NEAR(gates[t * 2 + j], gate, 1e-12) << t << " behind " << skip;
    }
  };
  // Number of choices that can be skipped: two of four experts are chosen, or two of the experts of the allowed groups.
  for (std::size_t skip = 0; skip <= (moe.group_limit == 1 ? 0 : 2); ++skip) {
    route(static_cast<std::int64_t>(skip));
    for (std::size_t t = 0; t < logits.size(); ++t) expect_route(t, skip);
  }
}
/// Returns the sum of the squares of the rows from `first` on of a router's matrix.
double squares_of_rows(const ModelStage& stage, const std::string& name, std::int64_t first) {
  double sum = 0;
  for (const ParameterUnit* unit : stage.model.units()) {
    for (const auto& parameter : unit->parameters()) {
      if (parameter->name != name) continue;
      const auto values = parameter->value.span<float>();
      const auto width = static_cast<std::int64_t>(values.size()) / parameter->shape[0];
      for (const float w : values.subspan(static_cast<std::size_t>(first * width))) sum += static_cast<double>(w) * w;
    }
  }
  return sum;
}

TEST(RouterPenalty, AppliesToTheRowsOfEachHalf) {
  for (const std::int64_t of_attention : {-1, 0, 3, 5}) {
    Config config = tiny_config();
    config.model.attention = AttentionKind::experts;
    config.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
    config.optim.router_penalty = 0.25;
    config.optim.router_penalty_from = 4;
    config.optim.router_penalty_from_attention = of_attention;
    resolve(config, 1);
    config.batch.micro = 2;
    const auto setup = make_setup(ProcessGroup::self(), {});
    ModelStage stage(config, *setup, DType::f32);
    stage.run(1);
    double expected = 0;
    for (const std::string layer : {"0", "1", "2"}) {
      const std::string block = "model/layers/" + layer + "/";
      expected += squares_of_rows(stage, block + "self_attn/gate/weight", of_attention < 0 ? 4 : of_attention);
      expected += squares_of_rows(stage, block + "mlp/gate/weight", 4);
    }
    double sum = 0;
    for (const Tensor& loss : stage.losses["router_penalty"]) sum += loss.data<float>()[0];
    EXPECT_GT(sum, 0);
    EXPECT_NEAR(sum / 2, 0.25 * expected, 1e-6 * expected) << "of_attention = " << of_attention;
  }
}

TEST(SkipTop, IsRefusedWhereNotEnoughExpertsAreLeft) {
  const auto refuses = [](std::int64_t skip, const std::string& words, const std::function<void(Config&)>& change) {
    Config config = tiny_config();  // 9 experts, top-3
    change(config);
    resolve(config, 1);
    EXPECT_THAT(error_of([&] { require_skippable(config, skip); }, ExitCode::usage), testing::HasSubstr(words));
  };
  const auto as_it_is = [](Config&) {};
  refuses(7, "--skip-top = 7 and moe.top_k = 3 are more than moe.experts = 9: skip 6 at most", as_it_is);
  refuses(-1, "--skip-top = -1: must be 0 (none) or more", as_it_is);
  refuses(10, "are more than moe.experts + moe.zero_experts + moe.copy_experts = 12: skip 9 at most",
          [](Config& c) { c.moe.zero_experts = 3; });
  refuses(4, "are more than the 6 experts of moe.group_limit = 2 groups: skip 3 at most",
          [](Config& c) { c.moe.group_limit = 2; });
  refuses(1, "moe.router = hash", [](Config& c) {
    c.moe.router = RouterKind::hash;
    c.moe.top_k = 1;
  });
  refuses(1, "moe.router = uniform, which does not rank", [](Config& c) { c.moe.router = RouterKind::uniform; });
  refuses(1, "no experts to choose from", [](Config& c) { c.moe = {}; });
  Config config = tiny_config();
  resolve(config, 1);
  EXPECT_NO_THROW(require_skippable(config, 6));
}

INSTANTIATE_TEST_SUITE_P(All, RouterAlone, testing::ValuesIn(lone_routers),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(All, RouterOfModel, testing::ValuesIn(routers),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lyceum
