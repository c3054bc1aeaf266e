#include "model/attention/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "core/copy.h"
#include "core/random.h"
#include "kernels/rope.h"
#include "support/model_stage.h"
#include "support/op_check.h"

namespace lyceum {
namespace {

/// A matrix as a list of rows.
using Rows = std::vector<std::vector<double>>;

/// Runs the attention of block 2 alone, in double, on two sequences. It has three experts with four query heads each
/// and two key heads.
struct LoneAttention {
  static constexpr std::int64_t hidden = 6, heads = 4, kv_heads = 2, dim = 4, seq_len = 5, tokens = 2 * seq_len;
  static constexpr std::int64_t layer = 2, experts = 3;
  Config config;
  std::unique_ptr<RunSetup> setup = make_setup(ProcessGroup::self(), {}, CpuStream(1));
  Stream stream = setup->stream;
  ParameterUnit untrained{"untrained", ParameterUnit::Group::replicated, 0, ParameterUnit::Role::buffer};
  std::optional<AttentionExperts> attention;
  Tensor rope = Tensor::empty(stream, DType::f64, {seq_len, dim});
  Tensor step = tensor_of(stream, {1}, std::vector<double>{7});
  Tensor words = i32_tensor(stream, {tokens}, {5, 1, 900, 5, 0, 77, 3, 2, 12, 8});

  explicit LoneAttention(RouterKind router, std::optional<Gates> gates = {}) {
    config.model.hidden = hidden;
    config.model.heads = heads;
    config.model.kv_heads = kv_heads;
    config.model.head_dim = dim;
    config.model.init_std = 0.7;
    config.model.rope_base = 100;
    config.model.attention = AttentionKind::experts;
    config.attention_experts.count = experts;
    config.attention_experts.top_k = router == RouterKind::hash ? 1 : 2;
    config.attention_experts.gates = gates;
    config.moe.router = router;
    config.moe.router_hidden = 4;
    if (router != RouterKind::hash) {
      config.balance = {.expert = 0.5, .mutual_information = 0.3};
      config.balance.device = 0.7;  // ignored: attention experts are not placed on devices
    }
    launch(stream, RopeTable<double>{.table = rope.matrix<double>(), .base = config.model.rope_base});
  }
  void add_parameters(ParameterUnit& unit) {
    attention.emplace(config, *attention_experts(config, layer), "a", setup->mesh,
                      AttentionExperts::Units{unit, unit, untrained});
    untrained.allocate(stream, DType::f64, true);
    untrained.initialize(stream, 4);
  }
  Sublayer::Result forward(Tape& tape, const Variable& x, std::vector<ChosenExperts>* chosen = nullptr) const {
    return attention->forward(tape,
                              {.batch = {.inputs = words,
                                         .targets = {},
                                         .sequences = tokens / seq_len,
                                         .seq_len = seq_len,
                                         .step = step,
                                         .chosen = chosen},
                               .layout = TokenLayout(tokens, seq_len),
                               .rope = rope,
                               .counts = false},
                              x);
  }
};

class RoutedAttention : public testing::TestWithParam<RouterKind> {};

TEST_P(RoutedAttention, HasTheGradientsOfFiniteDifferences) {
  const bool hash = GetParam() == RouterKind::hash;  // the gradient of detached gates is not the derivative
  const auto lone = std::make_shared<LoneAttention>(GetParam(), hash ? Gates::ones : Gates::renormalized);
  check_op({.name = "attention experts",
            .inputs = {{LoneAttention::tokens, LoneAttention::hidden}},
            .add_parameters = [lone](ParameterUnit& unit) { lone->add_parameters(unit); },
            .run = [lone](Tape& tape, const std::vector<Variable>& x, const ParameterUnit&) -> std::vector<Variable> {
              const auto [y, losses] = lone->forward(tape, x[0]);
              std::vector<Variable> results{y};
              for (const Loss& loss : losses) {
                if (loss.kind != LossKind::device_balance) results.push_back(loss.value);
              }
              return results;
            },
            .input_scale = 0.5});
}

INSTANTIATE_TEST_SUITE_P(Routers, RoutedAttention,
                         testing::Values(RouterKind::softmax, RouterKind::mlp, RouterKind::noisy, RouterKind::hash));

std::map<std::string, Rows> tensors_of(const ParameterUnit& unit) {
  std::map<std::string, Rows> tensors;
  for (const auto& parameter : unit.parameters()) {
    for (const ParameterSlice& slice : parameter->slices) {
      Rows& rows = tensors[slice.name];
      for (std::int64_t r = 0; r < slice.extent[0]; ++r) {
        const double* row = parameter->value.data<double>() + slice.first + r * slice.extent[1];
        rows.emplace_back(row, row + slice.extent[1]);
      }
    }
  }
  return tensors;
}

std::vector<double> product(const Rows& weight, std::span<const double> x) {
  std::vector<double> y;
  for (const std::vector<double>& row : weight) y.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
  return y;
}

/// Returns head `head` of a row, rotated by position `at`.
std::vector<double> turned(const std::vector<double>& row, std::int64_t head, std::int64_t at) {
  constexpr std::int64_t dim = LoneAttention::dim, half = dim / 2;
  std::vector<double> y(dim);
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(at) * std::pow(100, -2.0 * static_cast<double>(i) / dim);
    const double low = row[static_cast<std::size_t>(head * dim + i)];
    const double high = row[static_cast<std::size_t>(head * dim + half + i)];
    y[static_cast<std::size_t>(i)] = low * std::cos(angle) - high * std::sin(angle);
    y[static_cast<std::size_t>(i + half)] = high * std::cos(angle) + low * std::sin(angle);
  }
  return y;
}

/// Returns O · attention(Q · x, K, V) of one expert for the token at position t of a sequence.
std::vector<double> naive_answer(std::map<std::string, Rows>& w, int expert, const Rows& sequence, std::int64_t t) {
  const std::string at = "a/experts/" + std::to_string(expert);
  const std::vector<double> q = product(w.at(at + "/q_proj/weight"), sequence[static_cast<std::size_t>(t)]);
  std::vector<double> attended;
  for (std::int64_t h = 0; h < LoneAttention::heads; ++h) {
    const std::int64_t key_head = h * LoneAttention::kv_heads / LoneAttention::heads;
    const std::vector<double> query = turned(q, h, t);
    std::vector<double> weights, sum(LoneAttention::dim, 0.0);
    double total = 0;
    for (std::int64_t i = 0; i <= t; ++i) {
      const std::vector<double> key =
          turned(product(w.at("a/k_proj/weight"), sequence[static_cast<std::size_t>(i)]), key_head, i);
      const double score = std::inner_product(query.begin(), query.end(), key.begin(), 0.0) / 2;  // √dim
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    for (std::int64_t i = 0; i <= t; ++i) {
      const std::vector<double> value = product(w.at("a/v_proj/weight"), sequence[static_cast<std::size_t>(i)]);
      for (std::size_t c = 0; c < sum.size(); ++c) {
        sum[c] += weights[static_cast<std::size_t>(i)] / total *
                  value[static_cast<std::size_t>(key_head * LoneAttention::dim) + c];
      }
    }
    attended.insert(attended.end(), sum.begin(), sum.end());
  }
  return product(w.at(at + "/o_proj/weight"), attended);
}

TEST(AttentionExperts, AreTheFormula) {
  LoneAttention lone(RouterKind::softmax);
  ParameterUnit unit("unit", ParameterUnit::Group::dense, 0);
  lone.add_parameters(unit);
  unit.allocate(lone.stream, DType::f64, true);
  unit.initialize(lone.stream, 3);
  std::vector<double> values(LoneAttention::tokens * LoneAttention::hidden);
  const Philox random(1, "x");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
  Tape tape(lone.stream);
  std::vector<ChosenExperts> chosen;
  const Tensor x = tensor_of(lone.stream, {LoneAttention::tokens, LoneAttention::hidden}, values);
  const Matrix<double> y = lone.forward(tape, tape.leaf(x), &chosen).y.value.matrix<double>();

  std::map<std::string, Rows> w = tensors_of(unit);
  for (std::int64_t t = 0; t < LoneAttention::tokens; ++t) {
    Rows sequence;
    for (std::int64_t i = t / LoneAttention::seq_len * LoneAttention::seq_len; i <= t; ++i) {
      const double* row = x.matrix<double>().row(i);
      sequence.emplace_back(row, row + LoneAttention::hidden);
    }
    const std::vector<double> logits = product(w.at("a/gate/weight"), sequence.back());
    std::vector<int> order{0, 1, 2};
    std::ranges::sort(
        order, [&](int a, int b) { return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)]; });
    const auto score = [&](int e) { return std::exp(logits[static_cast<std::size_t>(e)]); };
    std::vector<double> expected(LoneAttention::hidden, 0.0);
    for (const int e : {order[0], order[1]}) {
      const std::vector<double> answer = naive_answer(w, e, sequence, std::ssize(sequence) - 1);
      const double gate = score(e) / (score(order[0]) + score(order[1]));
      for (std::size_t c = 0; c < expected.size(); ++c) expected[c] += gate * answer[c];
    }
    for (std::int64_t c = 0; c < LoneAttention::hidden; ++c) {
      EXPECT_NEAR(y.row(t)[c], expected[static_cast<std::size_t>(c)], 1e-12) << "token " << t;
    }
    EXPECT_EQ(chosen.at(0).index.matrix<std::int32_t>().row(t)[0], order[0]);
  }
}

TEST(AttentionExperts, HaveTheTensorsOfTheirNames) {
  LoneAttention lone(RouterKind::softmax);
  ParameterUnit unit("unit", ParameterUnit::Group::dense, 0);
  lone.add_parameters(unit);
  std::map<std::string, Shape> found;
  for (const auto& parameter : unit.parameters()) {
    for (const ParameterSlice& slice : parameter->slices) found.emplace(slice.name, slice.shape);
  }
  std::map<std::string, Shape> expected{
      {"a/gate/weight", {3, 6}}, {"a/k_proj/weight", {8, 6}}, {"a/v_proj/weight", {8, 6}}};
  for (const char* e : {"0", "1", "2"}) {
    expected.emplace(std::string("a/experts/") + e + "/q_proj/weight", Shape{16, 6});
    expected.emplace(std::string("a/experts/") + e + "/o_proj/weight", Shape{6, 16});
  }
  EXPECT_EQ(found, expected);
}

/// The two routers of a block draw different noise, and settings of FFN experts do not affect attention.
TEST(AttentionExperts, IgnoreSettingsOfFfnExperts) {
  Config config = tiny_config();
  config.model.attention = AttentionKind::experts;
  config.attention_experts = {.count = 5, .top_k = 2, .gates = {}};
  config.moe.top_k_start = 1;
  config.moe.capacity_factor = 0.5;
  config.moe.group_limit = 2;
  resolve(config, 1);
  const Mixture mixture = mixture_of(config, {0, Site::attention});
  EXPECT_EQ(mixture.k, 2);
  EXPECT_EQ(mixture.capacity_factor, 0);
  EXPECT_EQ(mixture.group_limit, 0);
  EXPECT_EQ(mixture.gates, Gates::detached);
  EXPECT_EQ(mixture_of(config, {1, Site::ffn}).group_limit, 2);
}

}  // namespace
}  // namespace lyceum
