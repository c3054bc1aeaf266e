#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "config/binding.h"
#include "config/check.h"
#include "convert/hugging_face/convert.h"
#include "convert/hugging_face/hosting.h"
#include "convert/hugging_face/model_folder.h"
#include "io/checkpoint/checkpoint.h"
#include "model/model_tensors.h"
#include "support/temporary_directory.h"
#include "train/run/run_state.h"

// Tiny models, and checkpoints of them that tests export.

namespace lyceum::hugging_face {

inline Config dense() {
  Config config;
  config.model = {.layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .ffn_hidden = 12, .vocab = 16, .init_std = 0.5};
  config.batch.seq_len = 64;
  return config;
}

inline Config sparse_model() {
  Config config = dense();
  config.moe.experts = 4;
  config.moe.top_k = 2;
  config.moe.expert_hidden = 6;
  return config;
}

inline Config resolved(Config config) {
  resolve(config, 1);
  return config;
}

inline const Architecture& named(const char* type) { return *find_architecture(type); }

/// Gives a sparse model the properties that all models of gpt_oss have.
inline void make_gpt_oss(Config& config) {
  ModelConfig& model = config.model;
  model.ffn = Activation::clamped_swiglu;
  model.sinks = model.qkv_bias = model.o_bias = model.ffn_bias = true;
  config.moe.router_bias = true;
  config.moe.gates = Gates::renormalized;
}

/// A checkpoint whose tensors have whole numbers as values.
class Checkpoint {
 public:
  /// `odd` replaces one value of lm_head/weight.
  explicit Checkpoint(const Config& config, std::optional<float> odd = {}) : config_(resolved(config)) {
    std::vector<CheckpointSlice> slices;
    for (const ModelTensor& tensor : model_tensors(config_)) {
      std::vector<float>& values = values_[tensor.name];
      values.resize(static_cast<std::size_t>(tensor.shape.size()));
      std::iota(values.begin(), values.end(), 1.f);
      if (odd && tensor.name == "lm_head/weight") values[3] = *odd;
      slices.push_back({tensor.name, tensor.shape, Box::whole(tensor.shape), values.data()});
    }
    const CheckpointHeader header{
        .run_uuid = "source", .mesh = "any", .config = to_ini(config_), .trainer_state = RunState().text()};
    write_checkpoint(ProcessGroup::self(), folder_.path(), header, slices);
    reader_.emplace(folder_.path() / checkpoint_name(0));
  }

  const Config& config() const { return config_; }
  std::filesystem::path target() const { return folder_.path() / "model"; }
  void exports(const Hosting& hosting, const Export& options = {}) const {
    Export made = options;
    made.folder = target();
    export_model(hosting, host_recipes(hosting, *reader_), *reader_, ProcessGroup::self(), made);
  }
  std::vector<float> exported(const std::string& name) const {
    const ModelFolder model(target());
    const ModelFolder::Tensor& tensor = model.tensors().at(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.entry->shape.size()));
    tensor.read(values);
    return values;
  }
  /// Expects that an import has exactly the same tensors and configuration.
  void expect_import_gives_it_back() const {
    const ModelFolder model(target());
    const NewRun run = import_run(model, {.config = model.config()});
    EXPECT_EQ(run.tensors.size(), values_.size());
    for (const NewRun::Weights& tensor : run.tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.size()));
      tensor.make(values);
      EXPECT_EQ(values, values_.at(tensor.name)) << tensor.name;
    }
  }

 private:
  TemporaryDirectory folder_;
  Config config_;
  std::map<std::string, std::vector<float>> values_;
  std::optional<CheckpointReader> reader_;
};

}  // namespace lyceum::hugging_face
