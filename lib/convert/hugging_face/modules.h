#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "convert/hugging_face/fields.h"
#include "convert/transforms/recipe.h"

/// The modules of multi-token prediction in the layout of DeepSeek-V3 and GLM-4.5: module k is layer
/// num_hidden_layers + k, with enorm, hnorm, eh_proj and shared_head.norm beside the tensors of its block.
namespace lyceum::hugging_face {

/// num_nextn_predict_layers, the number of modules, which transformers also calls num_mtp_layers: mtp.depth.
Field prediction_modules();

/// Returns Lyceum's name of a tensor as if a module's tensors belonged to a layer of the model:
/// "model/mtp/0/proj/weight" of a model with 61 layers becomes "model/layers/61/eh_proj/weight". Other names are
/// returned unchanged.
std::string layer_name_of_module(const ModelConfig& model, const std::string& name);

/// True for the projection of a module. In transformers its first columns multiply the embedding, in Lyceum the hidden
/// state, so the halves of its columns are exchanged in both directions.
bool is_module_projection(const std::string& name);
/// Exchanges the halves of the columns of a module's projection. values: [hidden, 2 · hidden].
void exchange_halves(std::span<float> values, std::int64_t hidden);
/// Returns the columns of a module's projection with the halves exchanged.
Pick exchanged_halves(std::int64_t hidden);

/// Copies of the model's embedding and head that the files have for each module.
struct ModuleCopy {
  std::string name;  // in transformers
  bool head;         // a copy of the head; else of the embedding
};
std::vector<ModuleCopy> module_copies(const Config& config);
/// True for a tensor, by its name in transformers, of one of `depth` modules.
bool is_of_module(const ModelConfig& model, std::int64_t depth, const std::string& name);

}  // namespace lyceum::hugging_face
