#include "convert/hugging_face/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "config/check.h"
#include "convert/hugging_face/model_folder.h"
#include "kernels/rope_scaling.h"
#include "support/errors.h"

namespace lyceum::hugging_face {
namespace {

using testing::HasSubstr;

const std::filesystem::path saved_models = std::filesystem::path(LYCEUM_SOURCE_DIR) / "tests/end_to_end/hf";

/// Returns the config.json of a fixture, without its rotary positions.
Json fixture(const std::string& type) {
  Json json = read_object(saved_models / type / config_name);
  json.erase("rope_parameters");
  return json;
}

Config imported(const std::string& type, const Json& json) {
  Config config = config_of(*find_architecture(type), json);
  resolve(config, 1);
  return config;
}

/// Returns the positions of a llama model with this rope_parameters. Its max_position_embeddings is 32.
PositionsConfig positions_of(const Json& parameters) {
  Json json = fixture("llama");
  json["rope_parameters"] = parameters;
  return imported("llama", json).model.positions;
}

std::string refusal_of(const std::string& type, const Json& json) {
  return error_of([&] { config_of(*find_architecture(type), json); }, ExitCode::bad_input);
}

std::string refused(const Json& parameters) {
  Json json = fixture("llama");
  json["rope_parameters"] = parameters;
  return refusal_of("llama", json);
}

Json with_keys(Json json, const Json& change) {
  json.update(change);
  return json;
}

const Json linear{{"rope_type", "linear"}, {"factor", 2.5}};
const Json llama3{{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 16}};
const Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};

// The frequencies and attention factors that transformers computes in f32, written by
// benchmarks/transformers_positions.py. The exponents, the powers and the reciprocals are rounded to f32 there, each by
// 2⁻²⁴ or more.
TEST(RotaryPositions, FrequenciesAreThoseOfTransformers) {
  const Json cases = read_object(saved_models / "positions.json")["cases"];
  EXPECT_GE(cases.size(), 20u);
  for (const Json& each : cases) {
    const std::string type = each["model_type"];
    const Config config = imported(type, with_keys(fixture(type), each["config"]));
    const std::int64_t dim = rotary_dim(config.model.positions, config.model.head_dim);
    const RopeScaling scaling = rope_scaling(config.model, dim);
    EXPECT_NEAR(scaling.attention_factor, each["attention_factor"].get<double>(), 1e-12) << each["config"];
    const auto theirs = each["frequencies"].get<std::vector<double>>();
    ASSERT_EQ(std::ssize(theirs), rotary_columns(config.model) / 2) << each["config"];
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const double ours = rope_frequency(config.model.rope_base, dim, scaling, static_cast<std::int64_t>(i));
      EXPECT_TRUE(std::abs(ours - theirs[i]) <= 1e-6 * theirs[i]) << each["config"] << ", pair " << i << ": " << ours;
    }
  }
}

TEST(RotaryPositions, BothSpellingsGiveTheSame) {
  for (const Json& scaling : {linear, llama3, yarn}) {
    Json inside = fixture("llama"), beside = inside, older = inside, twice = inside;
    inside["rope_parameters"] = with_keys(scaling, {{"rope_theta", 700.0}});
    beside["rope_parameters"] = scaling;
    older["rope_scaling"] = with_keys(scaling, {{"type", scaling["rope_type"]}});
    older["rope_scaling"].erase("rope_type");
    twice["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5.0}};
    twice["rope_scaling"] = scaling;
    for (Json* json : {&beside, &older, &twice}) (*json)["rope_theta"] = 700.0;
    const Architecture& llama = *find_architecture("llama");
    const Json expected = json_of(llama, imported("llama", inside));
    EXPECT_EQ(expected["rope_parameters"]["rope_theta"], 700.0);
    for (const Json& json : {beside, older, twice}) EXPECT_EQ(json_of(llama, imported("llama", json)), expected);
    EXPECT_EQ(json_of(llama, imported("llama", expected)), expected) << "written for both versions";
  }
}

TEST(RotaryPositions, EveryValueIsWrittenAgain) {
  const Json all = with_keys(yarn, {{"beta_fast", 20.0},
                                    {"beta_slow", 2.0},
                                    {"truncate", false},
                                    {"attention_factor", 1.25},
                                    {"mscale", 0.7},
                                    {"mscale_all_dim", 0.8}});
  Json json = fixture("glm4_moe");
  json["rope_parameters"] = with_keys(all, {{"rope_theta", 900.0}, {"partial_rotary_factor", 0.75}});
  const Json again = json_of(*find_architecture("glm4_moe"), imported("glm4_moe", json));
  EXPECT_EQ(nlohmann::json(again["rope_parameters"]), nlohmann::json(json["rope_parameters"]));
  EXPECT_EQ(nlohmann::json(again["rope_scaling"]), nlohmann::json(all));
  EXPECT_EQ(again["partial_rotary_factor"], 0.75);
  EXPECT_EQ(again["rope_theta"], 900.0);
  json["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_FALSE(json_of(*find_architecture("glm4_moe"), imported("glm4_moe", json)).contains("rope_scaling"));
}

// Classes whose code comes with a model, such as DeepseekForCausalLM, accept no other keys.
TEST(RotaryPositions, LinearScalingIsWrittenAsTheOldestVersionsReadIt) {
  Json json = fixture("deepseek");
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  EXPECT_EQ(json_of(*find_architecture("deepseek"), imported("deepseek", json))["rope_scaling"],
            (Json{{"type", "linear"}, {"factor", 2.5}}));
}

TEST(RotaryPositions, AbsentKeysMeanWhatTransformersTakesForThem) {
  EXPECT_EQ(positions_of({}).scaling, RopeScalingKind::none);
  EXPECT_EQ(positions_of(nullptr).scaling, RopeScalingKind::none);
  EXPECT_EQ(positions_of({{"rope_type", "default"}, {"type", "yarn"}}).scaling, RopeScalingKind::none);
  const PositionsConfig short_yarn = positions_of({{"type", "yarn"}, {"factor", 4}});
  EXPECT_EQ(short_yarn.original_length, 32) << "max_position_embeddings";
  EXPECT_EQ(short_yarn.beta_fast, 32);
  EXPECT_EQ(short_yarn.beta_slow, 1);
  EXPECT_TRUE(short_yarn.truncate);
  EXPECT_EQ(positions_of(with_keys(yarn, {{"factor", nullptr}})).factor, 2) << "32 / 16";
  EXPECT_EQ(positions_of(with_keys(yarn, {{"beta_fast", nullptr}, {"beta_slow", 0}})).beta_fast, 32);
  EXPECT_FALSE(positions_of(with_keys(yarn, {{"truncate", nullptr}})).truncate);
  EXPECT_EQ(positions_of(with_keys(yarn, {{"mscale", nullptr}, {"other", nullptr}})).mscale, 0);
  const Json outside =
      with_keys(fixture("llama"), {{"rope_parameters", yarn}, {"original_max_position_embeddings", 8}});
  EXPECT_EQ(imported("llama", outside).model.positions.original_length, 8);
  EXPECT_EQ(imported("glm4_moe", fixture("glm4_moe")).model.positions.rotary_fraction, 0.5);
  EXPECT_EQ(imported("dots1", fixture("dots1")).model.positions.rotary_fraction, 1);
}

TEST(RotaryPositions, OthersAreRefusedByName) {
  for (const char* type : {"dynamic", "longrope", "proportional", "su"}) {
    EXPECT_THAT(refused({{"rope_type", type}, {"factor", 2}}),
                HasSubstr(std::string("rope_parameters has rope_type = \"") + type + "\": Lyceum supports default"));
  }
  EXPECT_THAT(refused({{"type", nullptr}}), HasSubstr("rope_parameters has type = null"));
  EXPECT_THAT(refused({{"rope_type", "linear"}}), HasSubstr("rope_parameters has no factor"));
  EXPECT_THAT(refused({{"rope_type", "yarn"}}), HasSubstr("rope_parameters has no factor"));
  EXPECT_THAT(refused(with_keys(linear, {{"factor", nullptr}})), HasSubstr("rope_parameters has no factor"));
  EXPECT_THAT(refused(with_keys(linear, {{"factor", "2"}})), HasSubstr("factor: "));
  EXPECT_THAT(refused({{"rope_type", "llama3"}, {"factor", 8}}), HasSubstr("has no low_freq_factor"));
  EXPECT_THAT(refused(with_keys(linear, {{"low_freq_factor", 1}})),
              HasSubstr("rope_parameters has low_freq_factor = 1, which is not a key of the type linear"));
  EXPECT_THAT(refused({{"rope_type", "default"}, {"factor", 8}}), HasSubstr("factor = 8"));
  EXPECT_THAT(refused({{"full_attention", {{"rope_type", "default"}}}}), HasSubstr("has full_attention = "));
  EXPECT_THAT(refused(with_keys(yarn, {{"attention_factor", 0}})), HasSubstr("attention_factor = 0: must be above 0"));
  EXPECT_THAT(refused(with_keys(yarn, {{"attention_factor", -1}})), HasSubstr("attention_factor = -1"));
  EXPECT_THAT(refused(with_keys(yarn, {{"truncate", 1}})), HasSubstr("truncate: "));
  EXPECT_THAT(refused(with_keys(yarn, {{"original_max_position_embeddings", nullptr}})),
              HasSubstr("original_max_position_embeddings is null"));
  EXPECT_THAT(refused(with_keys(yarn, {{"original_max_position_embeddings", 0}})),
              HasSubstr("original_max_position_embeddings = 0: must be above 0"));
  EXPECT_THAT(refused(with_keys(linear, {{"partial_rotary_factor", 0.5}})),
              HasSubstr("partial_rotary_factor = 0.5: this class rotates whole heads"));
  EXPECT_THAT(refused(1), HasSubstr("rope_parameters = 1 is not an object"));
  EXPECT_THAT(
      refusal_of("llama", with_keys(fixture("llama"), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}})),
      HasSubstr("rope_scaling has type = \"dynamic\""));
}

// transformers warns about these values and computes with them.
TEST(RotaryPositions, ValuesThatMakeNoSenseArePossibleInNoModel) {
  const auto problem = [](const Json& parameters) {
    Json json = fixture("llama");
    json["rope_parameters"] = parameters;
    const std::vector<std::string> found = problems(config_of(*find_architecture("llama"), json), 1);
    return found.size() == 1 ? found.front() : std::to_string(found.size()) + " problems";
  };
  EXPECT_THAT(problem(with_keys(linear, {{"factor", 0.5}})),
              HasSubstr("model.rope_factor = 0.5: must be in [1, 1000000]"));
  EXPECT_THAT(problem(with_keys(llama3, {{"high_freq_factor", 1}})),
              HasSubstr("is not below model.rope_high_freq_factor"));
  EXPECT_THAT(problem(with_keys(yarn, {{"beta_slow", 40}})), HasSubstr("model.rope_beta_slow = 40 is more than"));
}

}  // namespace
}  // namespace lyceum::hugging_face
