#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "config/check.h"
#include "convert/hugging_face/convert.h"
#include "convert/hugging_face/stacked_experts.h"
#include "core/error.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/text/table.h"
#include "model/model_tensors.h"
#include "model/routing/mixture.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

/// Throws if config.json describes more layers or experts than the files can have, before all tensors of the model are
/// listed.
void require_tensors_for(const Config& config, const ModelFolder& model) {
  if (model.architecture().stacked_experts) require_stacked_experts(model, config.moe.experts);
  const std::int64_t sparse = std::max<std::int64_t>(config.model.layers - config.model.first_dense_layers, 0),
                     there = std::ssize(model.tensors());
  const std::int64_t tensors = model.architecture().stacked_experts ? 1 : config.moe.experts;
  require_input(config.model.layers <= there && (sparse == 0 || tensors <= there / sparse),
                "{} describes {} of {}, but the files have only {}", (model.path() / config_name).string(),
                count_text(config.model.layers, "layer"), count_text(config.moe.experts, "expert"),
                count_text(there, "tensor"));
}

constexpr const char *embedding_name = "model.embed_tokens.weight", *head_name = "lm_head.weight";

std::vector<float> values_of(const ModelFolder::Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.entry->shape.size()));
  tensor.read(values);
  return values;
}

/// Throws unless the head equals the embedding, although config.json ties them. Otherwise the import would lose the
/// head: transformers 5 does not tie two tensors that differ, transformers 4 drops the head.
void require_same_head(const ModelFolder& model, const ModelFolder::Tensor& head) {
  const ModelFolder::Tensor& embedding = model.tensors().at(embedding_name);
  require_input(head.entry->shape == embedding.entry->shape && values_of(head) == values_of(embedding),
                "{}: {} differs from {}, but {} has tie_word_embeddings = true: set it to false to use both, or "
                "remove {}",
                head.file->path(), head_name, embedding_name, config_name, head_name);
}

/// True if the tensor belongs to a layer after the last one of the model: one that predicts further tokens.
bool is_of_later_layer(const std::string& name, std::int64_t layers) {
  constexpr std::string_view prefix = "model.layers.";
  std::int64_t layer = 0;
  if (!name.starts_with(prefix)) return false;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' && layer >= layers;
}

/// Throws unless every tensor of the files was read, or can be left out because it equals the embedding.
void require_all_read(const ModelFolder& model, const Config& config, const std::set<std::string>& read) {
  for (const auto& [name, tensor] : model.tensors()) {
    if (read.contains(name) || name.ends_with(".rotary_emb.inv_freq")) continue;
    if (config.model.tie_embeddings && name == head_name) {
      require_same_head(model, tensor);
      continue;
    }
    require_input(!model.architecture().prediction_layers || !is_of_later_layer(name, config.model.layers),
                  "{}: {} belongs to a layer for multi-token prediction, which Lyceum does not support: save the model "
                  "without such layers",
                  tensor.file->path(), name);
    fail(ExitCode::bad_input, "{}: Lyceum's models have no tensor {}", tensor.file->path(), name);
  }
}

/// Returns the tensor of this name. Throws a bad_input Error if there is none, or if it has another shape or type.
ModelFolder::Tensor plain_source(const ModelFolder& model, const std::string& name, const Shape& shape) {
  const auto found = model.tensors().find(name);
  require_input(found != model.tensors().end(), "{} has no tensor {}, which its {} describes", model.path().string(),
                name, config_name);
  const ModelFolder::Tensor& theirs = found->second;
  require_input(theirs.entry->shape == shape, "{}: {} has the shape {}, but the configuration requires {}",
                theirs.file->path(), name, theirs.entry->shape, shape);
  require_input(theirs.entry->type != safetensors::Type::u8, "{}: {} has the type U8, must be F32, BF16 or F16",
                theirs.file->path(), name);
  return theirs;
}

}  // namespace

NewRun import_run(const ModelFolder& model, LoadedConfig wanted) {
  require_none(wanted.mistakes);
  require_none(problems(wanted.config, 1));
  NewRun run{.config = wanted.config, .resolved = std::move(wanted.config), .tensors = {}};
  resolve(run.resolved, 1);
  require_tensors_for(run.resolved, model);
  std::set<std::string> read;
  for (const ModelTensor& tensor : model_tensors(run.resolved)) {
    if (const auto part = stacked_part(model.architecture(), run.resolved.moe.experts, tensor)) {
      const StackedSource theirs = stacked_source(model, *part);
      read.insert(theirs.names.begin(), theirs.names.end());
      run.tensors.push_back({tensor.name, tensor.shape, theirs.make});
      continue;
    }
    const std::string name = name_in_transformers(model.architecture(), tensor.name);
    const ModelFolder::Tensor theirs = plain_source(model, name, tensor.shape);
    read.insert(name);
    run.tensors.push_back({tensor.name, tensor.shape, [theirs](std::span<float> values) { theirs.read(values); }});
  }
  require_all_read(model, run.resolved, read);
  return run;
}

fs::path find_tokenizer_file(const ModelFolder& model, std::vector<std::string>& notes) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const fs::path file = model.path() / name;
    if (!has_file(file)) continue;
    try {
      const Tokenizer readable(file);
      return file;
    } catch (const Error& problem) {
      notes.push_back(fmt::format("tokenizer  skipped: {}", problem.what()));
    }
  }
  notes.emplace_back("tokenizer  none found: data.tokenizer is not set");
  return {};
}

}  // namespace lyceum::hugging_face
