#include "convert/hugging_face/stacked_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "convert/hugging_face/exported_model.h"
#include "support/errors.h"

namespace lyceum::hugging_face {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

/// Two layers of four experts of `width` units with hidden width `hidden`.
Config gpt_oss(std::int64_t hidden, std::int64_t width) {
  Config config = sparse_model();
  config.model.hidden = hidden;
  config.model.head_dim = 4;
  config.moe.expert_hidden = width;
  make_gpt_oss(config);
  return config;
}

Hosting hosted(const Checkpoint& checkpoint) { return host(named("gpt_oss"), checkpoint.config()); }

TEST(StackedExperts, GatesAndUpsAlternateAndMatricesAreTransposed) {
  constexpr std::int64_t experts = 4, hidden = 8, width = 6;
  const Checkpoint checkpoint(gpt_oss(hidden, width));
  EXPECT_THAT(hosted(checkpoint).wrong, IsEmpty());
  checkpoint.exports(hosted(checkpoint), {.shard_bytes = 1000});
  const std::string prefix = "model.layers.1.mlp.experts.";
  // The values of each of Lyceum's tensors are 1, 2, 3 ….
  const std::vector<float> gate_up = checkpoint.exported(prefix + "gate_up_proj");
  const std::vector<float> down = checkpoint.exported(prefix + "down_proj");
  const std::vector<float> in_bias = checkpoint.exported(prefix + "gate_up_proj_bias");
  const std::vector<float> out_bias = checkpoint.exported(prefix + "down_proj_bias");
  ASSERT_EQ(std::ssize(gate_up), experts * hidden * 2 * width);
  ASSERT_EQ(std::ssize(down), experts * width * hidden);
  for (std::int64_t i = 0; i < std::ssize(gate_up); ++i) {
    const std::int64_t h = i / (2 * width) % hidden, unit = i % (2 * width) / 2;
    EXPECT_EQ(gate_up[static_cast<std::size_t>(i)], static_cast<float>(unit * hidden + h + 1)) << i;
  }
  for (std::int64_t i = 0; i < std::ssize(down); ++i) {
    const std::int64_t unit = i / hidden % width, h = i % hidden;
    EXPECT_EQ(down[static_cast<std::size_t>(i)], static_cast<float>(h * width + unit + 1)) << i;
  }
  for (std::int64_t i = 0; i < experts * 2 * width; ++i) {
    EXPECT_EQ(in_bias[static_cast<std::size_t>(i)], static_cast<float>(i % (2 * width) / 2 + 1)) << i;
  }
  for (std::int64_t i = 0; i < experts * hidden; ++i) {
    EXPECT_EQ(out_bias[static_cast<std::size_t>(i)], static_cast<float>(i % hidden + 1)) << i;
  }
  checkpoint.expect_import_gives_it_back();
}

/// A folder with a model in which each test changes files.
class GptOssFolder : public testing::Test {
 protected:
  struct Stored {
    std::string type;
    std::vector<std::int64_t> shape;
    std::vector<std::uint8_t> bytes;
  };
  static constexpr std::int64_t experts = 4, hidden = 64, width = 32;

  GptOssFolder() {
    checkpoint_.exports(hosted(checkpoint_));
    const ModelFolder model(folder_);
    for (const auto& [name, tensor] : model.tensors()) {
      std::vector<float> values(static_cast<std::size_t>(tensor.entry->shape.size()));
      tensor.read(values);
      const std::span<const std::int64_t> shape = tensor.entry->shape.extents();
      Stored& stored = stored_[name];
      stored = {"F32", {shape.begin(), shape.end()}, std::vector<std::uint8_t>(values.size() * sizeof(float))};
      std::memcpy(stored.bytes.data(), values.data(), stored.bytes.size());
    }
  }

  void write() const {
    nlohmann::json header;
    std::size_t at = 0;
    for (const auto& [name, stored] : stored_) {
      header[name] = {
          {"dtype", stored.type}, {"shape", stored.shape}, {"data_offsets", {at, at + stored.bytes.size()}}};
      at += stored.bytes.size();
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::ofstream file(folder_ / weights_name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << text;
    for (const auto& [name, stored] : stored_) {
      file.write(reinterpret_cast<const char*>(stored.bytes.data()), static_cast<std::streamsize>(stored.bytes.size()));
    }
  }
  /// Replaces a stacked matrix [experts, cols, rows] by blocks and scales whose bytes follow a pattern.
  void quantize(const std::string& name, std::int64_t rows, std::int64_t cols) {
    stored_.erase(name);
    Stored &blocks = stored_[name + "_blocks"], &scales = stored_[name + "_scales"];
    blocks = {"U8", {experts, rows, cols / 32, 16}, {}};
    scales = {"U8", {experts, rows, cols / 32}, {}};
    for (std::int64_t i = 0; i < experts * rows * cols / 2; ++i) {
      blocks.bytes.push_back(static_cast<std::uint8_t>(i * 37 + i / 16 * 5));
    }
    for (std::int64_t i = 0; i < experts * rows * cols / 32; ++i) {
      scales.bytes.push_back(static_cast<std::uint8_t>(120 + i % 9));
    }
  }
  /// Returns element (row, col) of an expert, decoded from the bits of an E2M1 number: sign, two exponent bits with
  /// bias 1, one mantissa bit; the exponent 0 has no leading one.
  double quantized(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t e, std::int64_t row,
                   std::int64_t col) const {
    const auto index = static_cast<std::size_t>((e * rows + row) * cols + col);
    const unsigned byte = stored_.at(name + "_blocks").bytes[index / 2], bits = index % 2 ? byte >> 4 : byte & 15;
    const int exponent = static_cast<int>(bits >> 1 & 3), mantissa = static_cast<int>(bits & 1);
    const double magnitude = exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa * 0.5, exponent - 1);
    const int scale = stored_.at(name + "_scales").bytes[index / 32];
    return std::ldexp(bits & 8 ? -magnitude : magnitude, scale - 127);
  }
  void set(const char* key, const Json& value) const {
    Json json = read_object(folder_ / config_name);
    json[key] = value;
    std::ofstream(folder_ / config_name) << json;
  }
  std::map<std::string, std::vector<float>> import() const {
    const ModelFolder model(folder_);
    std::map<std::string, std::vector<float>> read;
    for (const NewRun::Weights& tensor : import_run(model, {.config = model.config()}).tensors) {
      read[tensor.name].resize(static_cast<std::size_t>(tensor.shape.size()));
      tensor.make(read[tensor.name]);
    }
    return read;
  }
  void expect_refused(const char* why) const {
    write();
    expect_bad_input([&] { import(); }, why);
  }

  Checkpoint checkpoint_{gpt_oss(hidden, width)};
  fs::path folder_ = checkpoint_.target();
  std::map<std::string, Stored> stored_;
};

TEST_F(GptOssFolder, InMxfp4IsConverted) {
  for (const int layer : {0, 1}) {
    const std::string path = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    quantize(path + "gate_up_proj", 2 * width, hidden);
    if (layer == 0) quantize(path + "down_proj", hidden, width);  // the other one remains as it is
  }
  set("quantization_config", {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}});
  write();
  const auto read = import();
  const std::string theirs = "model.layers.0.mlp.experts.";
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::string ours = "model/layers/0/mlp/experts/" + std::to_string(e) + "/";
    for (std::int64_t unit = 0; unit < width; ++unit) {
      for (std::int64_t h = 0; h < hidden; ++h) {
        const auto in = static_cast<std::size_t>(unit * hidden + h), out = static_cast<std::size_t>(h * width + unit);
        const auto in_value = [&](std::int64_t row) {
          return quantized(theirs + "gate_up_proj", 2 * width, hidden, e, row, h);
        };
        ASSERT_EQ(read.at(ours + "gate_proj/weight")[in], in_value(2 * unit));
        ASSERT_EQ(read.at(ours + "up_proj/weight")[in], in_value(2 * unit + 1));
        ASSERT_EQ(read.at(ours + "down_proj/weight")[out], quantized(theirs + "down_proj", hidden, width, e, h, unit));
      }
    }
  }
  EXPECT_EQ(read.at("model/layers/1/mlp/experts/2/down_proj/weight")[7], 8);
}

TEST_F(GptOssFolder, ThatIsNotWholeIsRefused) {
  const std::string name = "model.layers.0.mlp.experts.down_proj";
  const auto whole = stored_;
  stored_[name].shape = {experts, hidden, width};
  expect_refused("down_proj has the shape [4, 64, 32], but the configuration requires [4, 32, 64]");
  stored_ = whole;
  stored_.erase(name);
  expect_refused("has no tensor model.layers.0.mlp.experts.down_proj, which its config.json describes");
  stored_ = whole;
  quantize(name, hidden, width);
  stored_[name + "_scales"].bytes[3] = 255;
  expect_refused("down_proj_scales is not finite: its scale 3 is 255");
  stored_ = whole;
  quantize(name, hidden, width);
  stored_.erase(name + "_scales");
  expect_refused("has no tensor model.layers.0.mlp.experts.down_proj_scales");
  stored_ = whole;
  stored_[name + "_bias"] = {"U8", {experts, hidden}, std::vector<std::uint8_t>(experts * hidden)};
  expect_refused("down_proj_bias has the type U8, must be F32, BF16 or F16");
  stored_ = whole;
  stored_["model.norm.weight"] = {"U8", {hidden}, std::vector<std::uint8_t>(hidden)};
  expect_refused("model.norm.weight has the type U8, must be F32, BF16 or F16");
  stored_ = whole;
  write();
  set("num_local_experts", 5);
  expect_refused("has the shape [4, 64], but config.json describes 5 experts with hidden_size = 64");
  set("num_local_experts", 4);
  set("quantization_config", {{"quant_method", "bitsandbytes"}});
  expect_refused("has quant_method = \"bitsandbytes\": Lyceum reads weights quantized with fp8 and, of gpt_oss, mxfp4");
}

TEST(StackedExperts, ConfigurationsOfTheClass) {
  Json json = json_of(named("gpt_oss"), hosted(Checkpoint(gpt_oss(8, 6))).config);
  for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta", "layer_types", "sliding_window",
                          "swiglu_alpha", "swiglu_limit", "head_dim", "attention_bias", "rms_norm_eps"}) {
    json.erase(key);
  }
  json["max_position_embeddings"] = 131072;
  json["initial_context_length"] = 4096;
  json["experts_per_token"] = 2;
  const Config config = config_of(named("gpt_oss"), json);
  EXPECT_EQ(config.model.rope_base, 150000);
  EXPECT_EQ(config.model.positions.scaling, RopeScalingKind::yarn);
  EXPECT_EQ(config.model.positions.factor, 32);
  EXPECT_EQ(config.model.positions.original_length, 4096);
  EXPECT_FALSE(config.model.positions.truncate);
  EXPECT_EQ(config.model.window, 128);
  EXPECT_EQ(config.model.window_layers, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_TRUE(config.model.qkv_bias && config.model.o_bias);
  EXPECT_EQ(config.model.swiglu_limit, 7);
  EXPECT_EQ(config.model.swiglu_alpha, 1.702);
}

}  // namespace
}  // namespace lyceum::hugging_face
