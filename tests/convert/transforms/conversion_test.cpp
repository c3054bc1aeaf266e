#include "convert/transforms/conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include "config/check.h"
#include "convert/transforms/balanced_clusters.h"
#include "convert/transforms/unit_groups.h"
#include "core/random.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/files/whole_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"
#include "train/run/run_state.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string penalty_note = "To keep the new rows of routers small, also: optim.router_penalty = 0.25, ";

/// Returns the configuration of a dense model with two layers, whose FFNs are twelve units wide.
Config dense() {
  Config config;
  config.model = {.layers = 2, .hidden = 8, .heads = 2, .ffn_hidden = 12, .vocab = 16, .init_std = 0.5};
  return config;
}

/// Returns a configuration like dense() with four experts in the second layer.
Config sparse_model() {
  Config config = dense();
  config.model.first_dense_layers = 1;
  config.moe.experts = 4;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 6;
  return config;
}

/// Replaces values of a tensor.
using Change = std::function<void(const std::string& name, std::vector<float>& values)>;

/// A checkpoint whose values identify their origin: the values of each tensor begin at a different whole number and
/// ascend.
class Source {
 public:
  explicit Source(const Config& config, const Change& change = {}) : config_(config) {
    resolve(config_, 1);
    std::vector<CheckpointSlice> slices;
    for (const ModelTensor& tensor : model_tensors(config_)) {
      std::vector<float>& values = values_[tensor.name];
      values.resize(static_cast<std::size_t>(tensor.shape.size()));
      std::iota(values.begin(), values.end(), 1000.f * static_cast<float>(values_.size()));
      if (change) change(tensor.name, values);
      slices.push_back({tensor.name, tensor.shape, Box::whole(tensor.shape), values.data()});
    }
    const CheckpointHeader header{
        .run_uuid = "source", .step = 7, .mesh = "any", .config = to_ini(config_), .trainer_state = RunState().text()};
    write_checkpoint(ProcessGroup::self(), root(), header, slices);
    reader_.emplace(directory());
  }

  const CheckpointReader& reader() const { return *reader_; }
  const Config& config() const { return config_; }
  fs::path root() const { return folder_.path() / "checkpoints"; }
  fs::path directory() const { return root() / checkpoint_name(7); }
  fs::path target() const { return folder_.path() / "made"; }
  float at(const std::string& name, std::int64_t index) const {
    return values_.at(name).at(static_cast<std::size_t>(index));
  }

  /// Returns the result of `lyceum convert` with these keys.
  Conversion made(const ConversionRequest& request, std::vector<std::string> keys = {}) const {
    keys.push_back("--run.dir=" + target().string());
    LoadedConfig wanted = read_config(keys, {.config = config_});
    return convert(request, reader(), config_, wanted);
  }

 private:
  TemporaryDirectory folder_;
  Config config_;
  std::map<std::string, std::vector<float>> values_;
  std::optional<CheckpointReader> reader_;
};

std::vector<float> values_of(const Conversion& conversion, const Source& source, const std::string& name) {
  const auto recipe = std::ranges::find(conversion.recipes, name, [](const Recipe& each) { return each.tensor.name; });
  if (recipe == conversion.recipes.end()) throw std::runtime_error("no tensor " + name);
  std::vector<float> values(static_cast<std::size_t>(recipe->tensor.shape.size()));
  make_tensor(*recipe, source.reader(), conversion.config.run.seed, values);
  return values;
}

std::string expert(int layer, int number) {
  return "model/layers/" + std::to_string(layer) + "/mlp/experts/" + std::to_string(number) + "/";
}

TEST(Conversion, UpcyclingCopiesSlicesOfTheFfn) {
  const Source source(dense());
  const ConversionRequest request{.transform = "upcycle", .slices = 3};
  const Conversion made = source.made(request, {"--moe.experts=2", "--moe.top_k=1", "--model.first_dense_layers=1"});
  EXPECT_EQ(made.resolved.moe.experts, 6);
  EXPECT_EQ(made.resolved.moe.top_k, 3);
  EXPECT_EQ(made.resolved.moe.expert_hidden, 4);
  EXPECT_EQ(gates_of(made.resolved.moe), Gates::renormalized);
  const std::string ffn = "model/layers/1/mlp/", slice = expert(1, 4);  // second slice of the second copy: units 4 to 7
  const std::vector<float> up = values_of(made, source, slice + "up_proj/weight");
  const std::vector<float> down = values_of(made, source, slice + "down_proj/weight");
  ASSERT_EQ(up.size(), 4u * 8);
  for (std::int64_t unit = 0; unit < 4; ++unit) {
    for (std::int64_t h = 0; h < 8; ++h) {
      EXPECT_EQ(up[static_cast<std::size_t>(unit * 8 + h)], source.at(ffn + "up_proj/weight", (4 + unit) * 8 + h));
      EXPECT_EQ(down[static_cast<std::size_t>(h * 4 + unit)],
                3 * source.at(ffn + "down_proj/weight", h * 12 + 4 + unit));
    }
  }
  const std::vector<float> router = values_of(made, source, ffn + "gate/weight");
  ASSERT_EQ(router.size(), 6u * 8);
  EXPECT_TRUE(std::equal(router.begin(), router.begin() + 8, router.begin() + 16)) << "slices of the first copy";
  EXPECT_FALSE(std::equal(router.begin(), router.begin() + 8, router.begin() + 24)) << "of two copies";
  EXPECT_EQ(values_of(made, source, "model/layers/0/mlp/up_proj/weight")[9],
            source.at("model/layers/0/mlp/up_proj/weight", 9));
  EXPECT_EQ(unread_weights(source.reader(), made.recipes).size(), 0u);
}

/// moe.routed_scale multiplies the outputs of experts, so the matrix and the bias of the output are divided by it.
TEST(Conversion, ScaledGatesDoNotChangeWhatExpertsOfAnFfnComputeTogether) {
  const std::string ffn = "model/layers/1/mlp/";
  Config config = dense();
  config.model.ffn_bias = true;
  const Source biased(config), plain(dense());
  const auto expect_scaled = [&](const Source& source, const Conversion& made, const char* name, float scale) {
    const std::vector<float> values = values_of(made, source, expert(1, 0) + name);
    EXPECT_EQ(values.front(), scale * source.at(ffn + name, 0)) << name;
  };
  const Conversion copied = biased.made({.transform = "upcycle"}, {"--moe.experts=2", "--moe.routed_scale=4"});
  for (const char* name : {"gate_proj/weight", "up_proj/weight", "gate_proj/bias", "up_proj/bias"}) {
    expect_scaled(biased, copied, name, 1);
  }
  for (const char* name : {"down_proj/weight", "down_proj/bias"}) expect_scaled(biased, copied, name, 0.25f);
  const ConversionRequest slices{.transform = "upcycle", .slices = 2};
  expect_scaled(plain, plain.made(slices, {"--moe.experts=2", "--moe.routed_scale=0.5"}), "down_proj/weight", 4);
  // The first column of the first expert is that of the unit whose row is the first one of up_proj.
  const Conversion divided = plain.made({.transform = "modulize", .experts = 3}, {"--moe.routed_scale=4"});
  const float up = values_of(divided, plain, expert(1, 0) + "up_proj/weight").front();
  const auto unit = static_cast<std::int64_t>(up - plain.at(ffn + "up_proj/weight", 0)) / 8;
  EXPECT_EQ(values_of(divided, plain, expert(1, 0) + "down_proj/weight").front(),
            plain.at(ffn + "down_proj/weight", unit) / 4);
}

TEST(Conversion, InsertedExpertsStandBehindTheOthers) {
  Config config = sparse_model();
  config.moe.router = RouterKind::noisy;
  config.moe.gates = Gates::renormalized;
  const Source source(config);
  const Conversion made = source.made({.transform = "insert", .experts = 2});
  EXPECT_EQ(made.resolved.moe.experts, 6);
  const std::string gate = "model/layers/1/mlp/gate/";
  const std::vector<float> router = values_of(made, source, gate + "weight"),
                           old = values_of(made, source, expert(1, 3) + "up_proj/weight");
  const std::vector<float> fresh = values_of(made, source, expert(1, 4) + "up_proj/weight");
  EXPECT_EQ(router[31], source.at(gate + "weight", 31));
  // Initial values depend on the element's index in the whole tensor.
  std::vector<float> drawn(6 * 8);
  fill_normal(drawn, 0.5, Philox(config.run.seed, gate + "weight"), 0);
  EXPECT_TRUE(std::equal(router.begin() + 32, router.end(), drawn.begin() + 32));
  EXPECT_THAT(values_of(made, source, gate + "noise_scale"),
              ElementsAre(source.at(gate + "noise_scale", 0), source.at(gate + "noise_scale", 1),
                          source.at(gate + "noise_scale", 2), source.at(gate + "noise_scale", 3), 1, 1));
  EXPECT_EQ(old[5], source.at(expert(1, 3) + "up_proj/weight", 5));
  EXPECT_LT(std::abs(fresh[5]), 5);
}

std::map<std::int64_t, std::vector<std::int64_t>> tokens_of(std::vector<std::int64_t> counts) {
  return {{1, std::move(counts)}};
}

/// The blocks of modules have experts like the last block.
TEST(Conversion, ModulesAreKept) {
  Config config = sparse_model();
  config.mtp.depth = 2;
  const Source source(config);
  const std::string module = "model/mtp/1/", ffn = module + "mlp/";
  const Conversion same = source.made({.transform = "reset"});
  EXPECT_EQ(values_of(same, source, module + "proj/weight")[17], source.at(module + "proj/weight", 17));
  EXPECT_EQ(unread_weights(source.reader(), same.recipes).size(), 0u);
  const Conversion without = source.made({.transform = "reset"}, {"--mtp.depth=0"});
  EXPECT_THAT(unread_weights(source.reader(), without.recipes), testing::Each(testing::StartsWith("model/mtp/")));

  const Conversion inserted = source.made({.transform = "insert", .experts = 2});
  EXPECT_EQ(values_of(inserted, source, ffn + "experts/3/up_proj/weight")[4],
            source.at(ffn + "experts/3/up_proj/weight", 4));
  EXPECT_EQ(values_of(inserted, source, ffn + "experts/5/up_proj/weight").size(), 6u * 8);
  const std::vector<float> router = values_of(inserted, source, ffn + "gate/weight");
  ASSERT_EQ(router.size(), 6u * 8);
  EXPECT_EQ(router[31], source.at(ffn + "gate/weight", 31));
  EXPECT_THAT(inserted.notes, testing::Contains(AllOf(HasSubstr("model/layers/*/mlp/gate/weight[4:]"),
                                                      HasSubstr("model/mtp/*/mlp/experts/5/*"),
                                                      HasSubstr("model/mtp/*/mlp/gate/weight[4:]"))));
  EXPECT_THAT(inserted.notes, testing::Contains(penalty_note + "optim.router_penalty_from = 4"));
  EXPECT_EQ(unread_weights(source.reader(), inserted.recipes).size(), 0u);
}

TEST(Conversion, OtherGroupsOfExpertsAreNoted) {
  Config config = sparse_model();
  config.moe.group_limit = 1;
  config.balance.device_groups = 2;
  const Source source(config);
  const auto groups = testing::Contains(HasSubstr("moe.group_limit = 1: the groups"));
  const ConversionRequest insert{.transform = "insert", .experts = 2};
  EXPECT_THAT(source.made(insert).notes, groups);
  EXPECT_THAT(source.made(insert, {"--moe.group_limit=0"}).notes, testing::Not(groups));
}

/// Returns a configuration with three attention experts, of which a token chooses two, and experts in the second layer.
Config attention_model() {
  Config config = sparse_model();
  config.model.attention = AttentionKind::experts;
  config.moe.router = RouterKind::mlp;
  config.moe.router_hidden = 5;
  config.attention_experts = {.count = 3, .top_k = 2, .gates = {}};
  return config;
}

std::string attention_expert(int layer, int number) {
  return "model/layers/" + std::to_string(layer) + "/self_attn/experts/" + std::to_string(number) + "/";
}

TEST(Conversion, AttentionExpertsAreInsertedBehindTheOthers) {
  const Source source(attention_model());
  const ConversionRequest insert{.transform = "insert", .experts = 2, .site = Site::attention, .layers = Range{0, 1}};
  const Conversion made = source.made(insert);
  EXPECT_EQ(made.resolved.attention_experts.count, 5);
  EXPECT_THAT(made.resolved.attention_experts.count_of_layers, ElementsAre(5, 3));
  EXPECT_EQ(made.resolved.moe.experts, 4);
  const std::string gate = "model/layers/0/self_attn/gate/weight", old = attention_expert(0, 2) + "q_proj/weight";
  const std::vector<float> router = values_of(made, source, gate);
  ASSERT_EQ(router.size(), 5u * 5);
  EXPECT_EQ(router[14], source.at(gate, 14));
  std::vector<float> drawn(5 * 5);
  fill_normal(drawn, 0.5, Philox(source.config().run.seed, gate), 0);
  EXPECT_TRUE(std::equal(router.begin() + 15, router.end(), drawn.begin() + 15));
  EXPECT_EQ(values_of(made, source, old)[7], source.at(old, 7));
  EXPECT_LT(std::abs(values_of(made, source, attention_expert(0, 4) + "o_proj/weight")[7]), 5);
  EXPECT_EQ(values_of(made, source, "model/layers/0/self_attn/k_proj/weight")[3],
            source.at("model/layers/0/self_attn/k_proj/weight", 3));
  EXPECT_THAT(made.notes, testing::Contains(AllOf(HasSubstr("model/layers/0/self_attn/experts/4/*"),
                                                  HasSubstr("model/layers/0/self_attn/gate/weight[3:]"))));
  const std::string both = "optim.router_penalty_from = 4, optim.router_penalty_from_attention = 3";
  EXPECT_THAT(made.notes, testing::Contains(penalty_note + both));
  EXPECT_EQ(unread_weights(source.reader(), made.recipes).size(), 0u);
  const Conversion everywhere = source.made({.transform = "insert", .experts = 1, .site = Site::attention});
  EXPECT_EQ(everywhere.resolved.attention_experts.count, 4);
  EXPECT_TRUE(everywhere.resolved.attention_experts.count_of_layers.empty());
  EXPECT_THAT(everywhere.notes, testing::Contains(HasSubstr("model/layers/*/self_attn/experts/3/*")));
  const Conversion ffns = source.made({.transform = "insert", .experts = 2});
  EXPECT_THAT(ffns.notes, testing::Contains(penalty_note + both)) << "4 old experts of FFNs, 3 of attention";
  EXPECT_THAT(contradictions(ffns.config, 1), testing::IsEmpty());
}

TEST(Conversion, InsertStatesThatNoPenaltySuitsLayersOfDifferentSizes) {
  Config config = attention_model();
  config.attention_experts.count_of_layers = {3, 4};
  config.attention_experts.count = 4;
  const Source source(config);
  const auto notes = [&](std::optional<Range> layers) {
    return source.made({.transform = "insert", .experts = 1, .site = Site::attention, .layers = layers}).notes;
  };
  const auto no_keys = testing::Contains(HasSubstr("optim.router_penalty would also apply to old rows"));
  EXPECT_THAT(notes({}), no_keys);
  EXPECT_THAT(notes(Range{0, 1}), no_keys);
  EXPECT_THAT(notes(Range{1, 1}), testing::Contains(HasSubstr("optim.router_penalty_from_attention = 4")));
}

TEST(Conversion, PrunedAttentionExpertsMoveUpWithTheirRowsOfTheRouter) {
  const Source source(attention_model());
  const auto count = [] { return ExpertTokens{{0, {9, 1, 8}}, {1, {7, 7, 7}}}; };
  const ConversionRequest prune{.transform = "prune", .site = Site::attention, .count = count, .threshold = 0.5};
  const Conversion made = source.made(prune);
  EXPECT_THAT(made.resolved.attention_experts.count_of_layers, ElementsAre(2, 3));
  EXPECT_THAT(made.notes, testing::IsSupersetOf({"layer 0 attention: 1 of 3 experts removed: 1",
                                                 "layer 1 attention: 0 of 3 experts removed"}));
  const std::string gate = "model/layers/0/self_attn/gate/weight";
  const std::vector<float> router = values_of(made, source, gate);
  ASSERT_EQ(router.size(), 2u * 5);
  EXPECT_EQ(router[4], source.at(gate, 4));
  EXPECT_EQ(router[5], source.at(gate, 10));
  EXPECT_EQ(values_of(made, source, attention_expert(0, 1) + "o_proj/weight")[9],
            source.at(attention_expert(0, 2) + "o_proj/weight", 9));
  EXPECT_THAT(unread_weights(source.reader(), made.recipes),
              ElementsAre(attention_expert(0, 1) + "o_proj/weight", attention_expert(0, 1) + "q_proj/weight"));
  const Source without(sparse_model());
  EXPECT_THAT(error_of([&] { without.made(prune); }, ExitCode::usage), HasSubstr("no routed experts in its attention"));
  EXPECT_THAT(error_of([&] { source.made(prune, {"--attention_experts.count=2"}); }, ExitCode::usage),
              HasSubstr("attention_experts.count cannot be set: prune determines it"));
}

TEST(Conversion, UpcyclingMakesExpertsOfModulesToo) {
  Config config = dense();
  config.mtp.depth = 1;
  const Source source(config);
  const Conversion made = source.made({.transform = "upcycle"}, {"--moe.experts=3", "--moe.top_k=1"});
  const std::string ffn = "model/mtp/0/mlp/";
  EXPECT_EQ(values_of(made, source, ffn + "experts/2/down_proj/weight")[11], source.at(ffn + "down_proj/weight", 11));
  EXPECT_EQ(unread_weights(source.reader(), made.recipes).size(), 0u);
}

TEST(Conversion, ModulesThatCannotBeChangedMayBeLeftOut) {
  Config config = sparse_model();
  config.mtp.depth = 1;
  const Source source(config);
  const auto count = [] { return ExpertTokens{{1, {5, 0, 9, 1}}}; };
  const ConversionRequest prune{.transform = "prune", .count = count, .threshold = 0.2};
  EXPECT_THAT(error_of([&] { source.made(prune); }, ExitCode::usage),
              AllOf(HasSubstr("mtp.depth = 1: prune cannot change the modules"), HasSubstr("--mtp.depth=0")));
  const Conversion pruned = source.made(prune, {"--mtp.depth=0"});
  EXPECT_EQ(pruned.resolved.moe.experts, 2);
  Config whole = dense();
  whole.mtp.depth = 1;
  const Source ffns(whole);
  const ConversionRequest modulize{.transform = "modulize", .experts = 3};
  EXPECT_THAT(error_of([&] { ffns.made(modulize); }, ExitCode::usage), HasSubstr("modulize cannot change the modules"));
  EXPECT_EQ(ffns.made(modulize, {"--mtp.depth=0"}).resolved.moe.experts, 3);
}

TEST(Conversion, PruningKeepsTheMostUsed) {
  Config config = sparse_model();
  resolve(config, 1);
  const auto kept = [&](std::vector<std::int64_t> counts, const PruneRule& rule) {
    return origins_after_pruning(config, Site::ffn, tokens_of(std::move(counts)), rule).at(1);
  };
  EXPECT_THAT(kept({5, 100, 49, 50}, {.threshold = 0.5}), ElementsAre(1, 3));
  EXPECT_THAT(kept({0, 3, 0, 0}, {.threshold = 1e-9}), ElementsAre(1));
  EXPECT_THAT(kept({0, 3, 0, 0}, {.threshold = 1e-9, .keep = 3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(kept({7, 7, 7, 7}, {.threshold = 1}), ElementsAre(0, 1, 2, 3));
  config.model.layers = 3;
  const ExpertOrigins of_model = origins_after_pruning(
      config, Site::ffn, {{1, {90, 80, 20, 10}}, {2, {400, 50, 250, 150}}}, {.threshold = 0.2, .over_model = true});
  EXPECT_THAT(of_model.at(1), ElementsAre(0, 1));
  EXPECT_THAT(of_model.at(2), ElementsAre(0, 2, 3));
  set_experts(config, Site::ffn, of_model);
  EXPECT_THAT(config.moe.experts_of_layers, ElementsAre(2, 3));
  EXPECT_EQ(config.moe.experts, 3);
  set_experts(config, Site::ffn, {{1, {0, 1}}, {2, {1, 3}}});
  EXPECT_EQ(config.moe.experts, 2);
  EXPECT_TRUE(config.moe.experts_of_layers.empty());
}

TEST(Conversion, PrunedExpertsMoveUpWithTheirRowsOfTheRouter) {
  const Source source(sparse_model());
  Config target = source.config();
  const ExpertOrigins origins{{1, {1, 3}}};
  set_experts(target, Site::ffn, origins);
  Conversion made{.config = target, .resolved = target, .recipes = {}, .notes = {}};
  made.recipes = recipes_of(target, source.reader(), rearranged_experts(target, Site::ffn, origins));
  const std::vector<float> router = values_of(made, source, "model/layers/1/mlp/gate/weight");
  EXPECT_EQ(router[0], source.at("model/layers/1/mlp/gate/weight", 8));
  EXPECT_EQ(router[15], source.at("model/layers/1/mlp/gate/weight", 31));
  EXPECT_EQ(values_of(made, source, expert(1, 1) + "down_proj/weight")[3],
            source.at(expert(1, 3) + "down_proj/weight", 3));
  EXPECT_THAT(unread_weights(source.reader(), made.recipes),
              ElementsAre(expert(1, 0) + "down_proj/weight", expert(1, 0) + "gate_proj/weight",
                          expert(1, 0) + "up_proj/weight", expert(1, 2) + "down_proj/weight",
                          expert(1, 2) + "gate_proj/weight", expert(1, 2) + "up_proj/weight"));
}

TEST(Conversion, ModulizingGivesEveryUnitToOneExpert) {
  const Source source(dense());
  const Conversion made = source.made({.transform = "modulize", .experts = 3});
  EXPECT_EQ(made.resolved.moe.top_k, 3);
  EXPECT_EQ(made.resolved.moe.router, RouterKind::random);
  EXPECT_EQ(gates_of(made.resolved.moe), Gates::ones);
  for (const int layer : {0, 1}) {
    const std::string ffn = "model/layers/" + std::to_string(layer) + "/mlp/";
    std::vector<float> first_of_units;  // element 0 of each row
    for (int e = 0; e < 3; ++e) {
      const std::vector<float> up = values_of(made, source, expert(layer, e) + "up_proj/weight");
      const std::vector<float> down = values_of(made, source, expert(layer, e) + "down_proj/weight");
      ASSERT_EQ(up.size(), 4u * 8);
      for (std::size_t unit = 0; unit < 4; ++unit) {
        first_of_units.push_back(up[unit * 8]);
        const auto number = static_cast<std::int64_t>(up[unit * 8] - source.at(ffn + "up_proj/weight", 0)) / 8;
        EXPECT_EQ(down[unit], source.at(ffn + "down_proj/weight", number)) << "the unit's column";
      }
    }
    std::ranges::sort(first_of_units);
    for (std::int64_t unit = 0; unit < 12; ++unit) {
      EXPECT_EQ(first_of_units[static_cast<std::size_t>(unit)], source.at(ffn + "up_proj/weight", unit * 8));
    }
  }
}

// Half of the tokens activate the units with an even number, the other half those with an odd number, through their
// gates. The matrix up_proj differs from unit to unit, so the groups cannot be found from the weights.
TEST(Conversion, CoactivationGroupsUnitsByTheTokensThatTheyAnswer) {
  Config config = dense();
  config.batch.seq_len = 10;
  const auto change = [](const std::string& name, std::vector<float>& values) {
    const Philox random(1, name);
    const bool gate = name.ends_with("mlp/gate_proj/weight"), up = name.ends_with("mlp/up_proj/weight");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t row = i / 8, col = i % 8;
      float& value = values[i];
      if (name == "model/embed_tokens/weight") {
        value = col == row % 2;  // the embedding of each token has one of two directions
      } else if (name.ends_with("layernorm/weight")) {
        value = 1;
      } else if (gate) {
        value = col > 1 ? 0 : col == row % 2 ? 2 : -2;
      } else {
        value = up ? (random.uniform(row) < 0.5 ? 1 : -1) * static_cast<float>(1 + col % 2) : 0;
      }
    }
  };
  const Source source(config, change);
  const std::string prefix = (source.root() / "tokens").string();
  MegatronWriter writer(prefix, 16);
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < 101; ++i) tokens.push_back(static_cast<std::int32_t>(Philox(2, "t").below(16, i)));
  writer.add_document(tokens);
  writer.finish();
  for (const std::int64_t sequences : {0, 3}) {
    const FfnInputs inputs(source.reader(), source.config(), prefix, sequences);
    ASSERT_EQ(inputs.of(1).rows, sequences > 0 ? 30 : 100);
    FfnParts groups = group_units_by_coactivation(source.reader(), inputs, 1, 2);
    std::ranges::sort(groups);
    EXPECT_THAT(groups, ElementsAre(ElementsAre(0, 2, 4, 6, 8, 10), ElementsAre(1, 3, 5, 7, 9, 11)));
  }
}

TEST(Conversion, WhatCannotBeIsToldBeforeAnythingIsWritten) {
  const Source from_dense(dense()), from_sparse(sparse_model());
  const auto refused = [](const Source& source, const ConversionRequest& request, std::vector<std::string> keys = {}) {
    return error_of([&] { source.made(request, std::move(keys)); }, ExitCode::usage);
  };
  EXPECT_THAT(refused(from_dense, {.transform = "upcycle"}), HasSubstr("--moe.experts"));
  EXPECT_THAT(refused(from_dense, {.transform = "upcycle", .slices = 5}, {"--moe.experts=2"}),
              HasSubstr("--slices = 5 does not divide the FFNs' width of 12"));
  EXPECT_THAT(refused(from_sparse, {.transform = "upcycle"}, {"--moe.experts=2"}), HasSubstr("is for dense models"));
  EXPECT_THAT(refused(from_dense, {.transform = "modulize", .experts = 5}),
              HasSubstr("--experts = 5: give the number of experts to split each FFN into, a divisor of its width 12"));
  EXPECT_THAT(refused(from_dense, {.transform = "insert", .experts = 1}), HasSubstr("no routed experts"));
  EXPECT_THAT(refused(from_sparse, {.transform = "insert"}), HasSubstr("--experts = 0"));
  EXPECT_THAT(refused(from_sparse, {.transform = "insert", .experts = 1, .layers = Range{0, 2}}),
              HasSubstr("layer 0 has no routed experts"));
  EXPECT_THAT(refused(from_sparse, {.transform = "insert", .experts = 1, .layers = Range{1, 2}}),
              HasSubstr("--layers names layer 2: the model has 2 layers, counted from 0"));
  EXPECT_THAT(refused(from_sparse, {.transform = "prune"}), HasSubstr("give either --routing"));
  EXPECT_THAT(refused(from_sparse, {.transform = "insert", .experts = 1}, {"--moe.experts=9"}),
              HasSubstr("moe.experts cannot be set: insert determines it"));
  EXPECT_THAT(refused(from_dense, {.transform = "upcycle"}, {"--moe.experts=2", "--moe.zero_experts=1"}),
              HasSubstr("upcycle creates only experts with weights"));
  Config biased = dense();
  biased.model.ffn_bias = true;
  const Source from_biased(biased);
  for (const ConversionRequest& request : {ConversionRequest{.transform = "upcycle", .slices = 2},
                                           ConversionRequest{.transform = "modulize", .experts = 2}}) {
    std::vector<std::string> keys;
    if (request.transform == "upcycle") keys = {"--moe.experts=2"};
    EXPECT_THAT(refused(from_biased, request, keys),
                HasSubstr("model.ffn_bias = true: " + request.transform + " cannot divide FFNs with biases"));
  }
  EXPECT_THAT(refused(from_sparse, {.transform = "reset"}, {"--model.vocab=32"}),
              AllOf(HasSubstr("model/embed_tokens/weight would be [32, 8]"), HasSubstr("do not change the keys")));
  EXPECT_THAT(refused(from_dense, {.transform = "reset"}, {"--moe.experts=2", "--moe.expert_hidden=12"}),
              HasSubstr("has no model/layers/0/mlp/"));
  EXPECT_THAT(refused(from_sparse, {.transform = "insert", .experts = 1}, {"--moe.top_k=6"}),
              HasSubstr("moe.top_k = 6 is more than moe.experts = 5"));
  EXPECT_FALSE(fs::exists(from_dense.target()) || fs::exists(from_sparse.target()));
}

TEST(Conversion, RoutingLogsOfOtherModelsAreRefused) {
  Config config = sparse_model();
  resolve(config, 1);
  const auto log = [](MixtureId id, std::int64_t experts) {
    RoutingHistory::Layer layer{.id = id,
                                .top_k = 2,
                                .experts = experts,
                                .expert_sizes = {},
                                .expert_rank = {},
                                .counts = {},
                                .mean_probability = {}};
    layer.counts.assign(static_cast<std::size_t>(2 * 2 * experts), 3);
    layer.counts[1] = 5;
    return layer;
  };
  const auto tokens = [&](std::vector<RoutingHistory::Layer> layers) {
    // The checkpoint has a module of multi-token prediction, which is left out.
    return tokens_of_experts(config, Site::ffn, config.model.layers + 1, {.steps = {1, 2}, .layers = std::move(layers)},
                             "log");
  };
  EXPECT_THAT(tokens({log({1, Site::ffn}, 4)}).at(1), ElementsAre(12, 14, 12, 12));
  EXPECT_EQ(tokens({log({1, Site::ffn}, 4), log({2, Site::ffn}, 4)}).size(), 1u);
  expect_bad_input([&] { tokens({log({1, Site::ffn}, 4), log({3, Site::ffn}, 4)}); }, "has experts in layer 3");
  expect_bad_input(
      [&] {
        tokens({log({1, Site::ffn}, 5)});
      },
      "log: has 5 experts in layer 1, the checkpoint's model has 4");
  expect_bad_input([&] { tokens({log({0, Site::ffn}, 4)}); }, "log: has no layer 1");
  expect_bad_input([&] { tokens({log({1, Site::ffn}, 4), log({0, Site::ffn}, 4)}); }, "has experts in layer 0");
}

TEST(Conversion, ARunIsWrittenWholeOrNotAtAll) {
  const Source source(sparse_model());
  const Conversion made = source.made({.transform = "reset"}, {"--run.steps=5", "--optim.lr=0.5", "--batch.micro=0"});
  write_run(made, source.reader(), ProcessGroup::self(), "a test");
  const CheckpointReader reader(resolve_checkpoint(source.target()));
  EXPECT_EQ(reader.problem(), "");
  EXPECT_FALSE(reader.has_optimizer_state());
  EXPECT_EQ(reader.header().step, 0);
  EXPECT_NE(reader.header().run_uuid, source.reader().header().run_uuid);
  EXPECT_EQ(reader.tensors().size(), source.reader().tensors().size());
  const std::string file = (source.target() / "config.ini").string();
  EXPECT_EQ(load_config(std::vector<std::string>{"--config=" + file}).config.optim.lr, 0.5);
  EXPECT_THAT(read_whole_file(file), HasSubstr("\nmicro = 0  # derived here: ")) << "as a file of train";
  EXPECT_THAT(error_of([&] { require_no_run(source.target()); }, ExitCode::usage), HasSubstr("contains checkpoints"));
  fs::remove_all(source.target() / "checkpoints");
  EXPECT_THAT(error_of([&] { require_no_run(source.target()); }, ExitCode::usage),
              HasSubstr("config.ini already exists"));

  fs::remove_all(source.target());
  std::fstream(source.directory() / "rank-00000.h5", std::ios::in | std::ios::out).seekp(3000).put('x');
  const CheckpointReader damaged(source.directory());
  expect_bad_input([&] { write_run(made, damaged, ProcessGroup::self(), "a test"); }, "damaged: its SHA-256");
  EXPECT_FALSE(fs::exists(source.target() / "config.ini") || fs::exists(source.target() / "checkpoints"));
}

// Rows near three points that are far apart, so there is one best grouping.
TEST(BalancedClusters, FindGroupsOfOneSize) {
  constexpr std::int64_t rows = 30, cols = 5, clusters = 3;
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<std::uint64_t>(r * cols + c);
      values.push_back(static_cast<float>(10 * ((r * 7) % clusters == c) + Philox(3, "rows").normal(at)));
    }
  }
  const auto groups = balanced_clusters(CpuStream(1), {values.data(), rows, cols}, clusters);
  for (const auto& group : groups) {
    ASSERT_EQ(group.size(), 10u);
    for (const std::int64_t row : group) EXPECT_EQ((row * 7) % clusters, (group.front() * 7) % clusters);
  }
}

// Seven rows are near one point and one row is near another; the groups must still have four rows each.
TEST(BalancedClusters, SplitWhatIsTooLarge) {
  std::vector<float> values{0, 0, 0, 0, 0, 0, 0, 9};
  const auto groups = balanced_clusters(CpuStream(1), {values.data(), 8, 1}, 2);
  EXPECT_EQ(groups[0].size(), 4u);
  EXPECT_EQ(groups[1].size(), 4u);
  std::vector<std::int64_t> all = groups[0];
  all.insert(all.end(), groups[1].begin(), groups[1].end());
  std::ranges::sort(all);
  EXPECT_EQ(all, numbers_from(0, 8));
  EXPECT_EQ(groups, balanced_clusters(CpuStream(2), {values.data(), 8, 1}, 2));
}

}  // namespace
}  // namespace lyceum
