#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "config/binding.h"
#include "config/check.h"
#include "convert/hugging_face/convert.h"
#include "io/checkpoint/unit_tensors.h"
#include "io/data/tokens/token_formats.h"
#include "model/sublayer_spec.h"
#include "support/errors.h"
#include "support/temporary_directory.h"
#include "support/tiny_run.h"
#include "train/eval/evaluator.h"

// Changes of config.json, from tests/end_to_end/hf/keys.json, which benchmarks/transformers_keys.py writes. Each change
// must either be rejected or give the loss that transformers computed.
namespace lyceum::hugging_face {
namespace {

namespace fs = std::filesystem;

const fs::path models = fs::path(LYCEUM_SOURCE_DIR) / "tests/end_to_end/hf";
constexpr std::int64_t seq_len = 32;

Json changed(Json json, const Json& change) {
  for (const auto& [key, value] : change.items()) {
    if (value == "(absent)") {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  return json;
}

/// Returns all keys, including those of nested objects.
std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  const Json flat = json.flatten();
  for (const auto& [key, value] : flat.items()) {
    for (std::size_t begin = 1, end = 0; begin <= key.size(); begin = end + 1) {
      end = std::min(key.find('/', begin), key.size());
      keys.push_back(key.substr(begin, end - begin));
    }
  }
  return keys;
}

/// Returns the mean loss of an imported model on the fixtures' tokens.
double loss_of(NewRun run) {
  const TemporaryDirectory folder;
  run.config.run.dir = folder.path().string();
  write_run(run, ProcessGroup::self(), "test");
  const CheckpointReader reader(resolve_checkpoint(folder.path()));
  Config config = run.config;
  config.batch = {.global = 2, .micro = 2, .seq_len = seq_len};
  resolve(config, 1);
  const auto setup = make_setup(ProcessGroup::self(), {});
  StagedModel model(config, setup->stream, setup->mesh, DType::f32, false);
  load_weights(reader, setup->stream, model.units());
  const auto file = open_tokens((models / "valid").string());
  const SampleOrder order(SampleOrder::Kind::sequential, 1, 0, 2);
  return evaluate(model, *setup, config, TokenLoader(file, order, seq_len), 0).loss;
}

class Keys : public testing::TestWithParam<std::string> {
 protected:
  Keys() : json_(read_object(models / "keys.json")["models"][GetParam()]) {
    for (const auto& entry : fs::directory_iterator(models / GetParam())) {
      fs::create_symlink(entry.path(), folder_.path() / entry.path().filename());
    }
    config_ = read_object(folder_.path() / config_name);
    fs::remove(folder_.path() / config_name);
  }

  NewRun import(const Json& change) {
    std::ofstream(folder_.path() / config_name) << changed(config_, change);
    const ModelFolder model(folder_.path());
    NewRun run = import_run(model, {.config = model.config()});
    for (NewRun::Weights& tensor : run.tensors) {  // copied, since the tensors outlive the reader of the folder
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
      tensor.make(values);
      tensor.make = [values](std::span<float> to) { std::ranges::copy(values, to.begin()); };
    }
    return run;
  }
  /// Models that differ only in batch.seq_len have the same loss.
  double loss(NewRun run) {
    run.config.batch.seq_len = seq_len;
    const std::string key = to_ini(run.config);
    if (!losses_.contains(key)) losses_[key] = loss_of(std::move(run));
    return losses_[key];
  }

  Json json_, config_;

 private:
  TemporaryDirectory folder_;
  std::map<std::string, double> losses_;
};

TEST_P(Keys, AreReadAsTransformersReadsThemOrRefused) {
  std::size_t other_losses = 0;
  const double base = json_["loss"];
  for (const Json& each : json_["cases"]) {
    const Json& change = each["change"];
    if (each.contains("refused")) {
      const std::string problem = error_of([&] { import(change); }, ExitCode::bad_input);
      bool named = problem.find("tensor") != std::string::npos || problem.find("weight") != std::string::npos ||
                   problem.find("bias") != std::string::npos ||
                   problem.find("model that it describes") != std::string::npos;
      for (const Json& json : {change, config_}) {
        for (const std::string& key : keys_of(json)) named = named || problem.find(key) != std::string::npos;
      }
      EXPECT_TRUE(named) << change << ": " << problem;
      EXPECT_EQ(problem.find('\n'), std::string::npos) << problem;
      continue;
    }
    const double theirs = each["loss"];
    try {
      EXPECT_TRUE(std::abs(loss(import(change)) - theirs) <= 5e-6) << change << ": " << theirs;
    } catch (const Error& error) {
      ADD_FAILURE() << change << ": " << error.what();
    }
    other_losses += std::abs(theirs - base) > 1e-4;
  }
  EXPECT_GE(other_losses, 3u) << "changes that are read and change the loss";
}

// Every renamed part must occur in a tensor that a half of a block declares; otherwise it would have no effect.
TEST(Architectures, RenamePartsOfDeclaredNames) {
  Config config = tiny_config();
  config.moe.router = RouterKind::sigmoid;
  resolve(config, 1);
  std::string declared;
  for (const SublayerTensor& tensor : ffn_spec(config, 1).tensors) {
    declared += "/mlp/" + (tensor.choices.count > 0 ? expert_tensor_name(0, tensor.name) : tensor.name) + "\n";
  }
  std::ranges::replace(declared, '/', '.');
  for (const Architecture& architecture : architectures()) {
    for (const Rename& rename : architecture.renames) {
      EXPECT_NE(declared.find(rename.ours), std::string::npos) << architecture.type << ": " << rename.ours;
    }
  }
}

TEST_P(Keys, AllHaveACase) {
  std::set<std::string> tried;
  for (const Json& each : json_["cases"]) {
    for (const auto& [key, value] : each["change"].items()) tried.insert(key);
  }
  for (const Field& field : find_architecture(GetParam())->fields) {
    for (const std::string_view key : field.keys) EXPECT_TRUE(tried.contains(std::string(key))) << key;
  }
  for (const auto& [key, value] : config_.items()) EXPECT_TRUE(tried.contains(key)) << key;
}

/// Returns all types but kimi_k2, which transformers lacks: it is another name of deepseek_v3.
std::vector<std::string> types() {
  std::vector<std::string> names;
  for (const Architecture& each : architectures()) {
    if (each.type != "kimi_k2") names.emplace_back(each.type);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Keys, testing::ValuesIn(types()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lyceum::hugging_face
