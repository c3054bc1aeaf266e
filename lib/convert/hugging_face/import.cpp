#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "config/check.h"
#include "convert/hugging_face/convert.h"
#include "convert/hugging_face/listed_tokens.h"
#include "convert/hugging_face/modules.h"
#include "convert/hugging_face/side_files.h"
#include "convert/hugging_face/stacked_experts.h"
#include "core/error.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/files/git_lfs.h"
#include "io/text/table.h"
#include "model/model_tensors.h"
#include "model/routing/mixture.h"

namespace lyceum::hugging_face {

namespace fs = std::filesystem;

namespace {

/// Throws if config.json describes more layers or experts than the files can have, before all tensors of the model are
/// listed.
void require_tensors_for(const Config& config, const ModelFolder& model) {
  const std::int64_t sparse = std::max<std::int64_t>(config.model.layers - config.model.first_dense_layers, 0),
                     there = std::ssize(model.tensors());
  const std::int64_t tensors = model.architecture().stacked_experts ? 1 : config.moe.experts;
  require_input(all_blocks(config) <= there && (sparse == 0 || tensors <= there / sparse),
                "{} describes {} of {}, but the files have only {}", (model.path() / config_name).string(),
                count_text(config.model.layers, "layer"), count_text(config.moe.experts, "expert"),
                count_text(there, "tensor"));
  if (model.architecture().stacked_experts) require_stacked_experts(model, config);
}

constexpr const char *embedding_name = "model.embed_tokens.weight", *head_name = "lm_head.weight";

std::vector<float> values_of(const ModelFolder::Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.entry->shape.size()));
  tensor.read(values);
  return values;
}

/// Throws unless a tensor equals `other`, which is imported in its place. `remedy`: how to import the model
/// nevertheless.
void require_copy(const ModelFolder& model, const std::string& name, const std::string& other,
                  const std::string& remedy) {
  const ModelFolder::Tensor &copy = model.tensors().at(name), &original = model.tensors().at(other);
  require_input(copy.entry->shape == original.entry->shape && values_of(copy) == values_of(original),
                "{}: {} differs from {}, {}", copy.file->path(), name, other, remedy);
}

/// Returns the names of the tensors that must equal another one, with its name and the remedy if they do not.
std::map<std::string, std::pair<std::string, std::string>> copies_of(const Config& config) {
  std::map<std::string, std::pair<std::string, std::string>> copies;
  // Otherwise the import would lose the head: transformers 5 does not tie two tensors that differ, transformers 4 drops
  // the head.
  if (config.model.tie_embeddings) {
    copies[head_name] = {embedding_name,
                         fmt::format("but {} has tie_word_embeddings = true: set it to false to use both, or remove {}",
                                     config_name, head_name)};
  }
  for (const auto& [name, head] : module_copies(config)) {
    copies[name] = {head && !config.model.tie_embeddings ? head_name : embedding_name,
                    "which a module of multi-token prediction shares in Lyceum: import the model without modules, with "
                    "--mtp.depth=0"};
  }
  return copies;
}

/// Throws unless every tensor of the files was read, or can be left out: because it equals another one, or because it
/// belongs to a module that `config` does not have.
void require_all_read(const ModelFolder& model, const Config& config, const std::set<std::string>& read) {
  const std::map<std::string, std::pair<std::string, std::string>> copies = copies_of(config);
  for (const auto& [name, tensor] : model.tensors()) {
    if (read.contains(name) || name.ends_with(".rotary_emb.inv_freq")) continue;
    if (const auto copy = copies.find(name); copy != copies.end()) {
      require_copy(model, name, copy->second.first, copy->second.second);
      continue;
    }
    const auto has = [&](std::int64_t depth) { return is_of_module(config.model, depth, name); };
    if (has(model.config().mtp.depth) && !has(config.mtp.depth)) continue;
    fail(ExitCode::bad_input, "{}: Lyceum's models have no tensor {}", tensor.file->path(), name);
  }
}

/// Returns the tensor of this name. Throws a bad_input Error if there is none, with `remedy` at its end, or if it has
/// another shape or type.
ModelFolder::Tensor plain_source(const ModelFolder& model, const std::string& name, const Shape& shape,
                                 std::string_view remedy) {
  const auto found = model.tensors().find(name);
  require_input(found != model.tensors().end(), "{} has no tensor {}, which its {} describes{}", model.path().string(),
                name, config_name, remedy);
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
    if (is_adapter(tensor.name)) continue;  // training adds them
    if (const auto part = stacked_part(model.architecture(), run.resolved.moe.experts, tensor)) {
      const StackedSource theirs = stacked_source(model, *part);
      read.insert(theirs.names.begin(), theirs.names.end());
      run.tensors.push_back({tensor.name, tensor.shape, theirs.make});
      continue;
    }
    const std::string name = name_in_transformers(model.architecture(), run.resolved.model, tensor.name);
    const bool of_module = is_of_module(run.resolved.model, run.resolved.mtp.depth, name);
    const ModelFolder::Tensor theirs =
        plain_source(model, name, tensor.shape,
                     of_module ? ": --mtp.depth=0 imports the model without modules of multi-token prediction" : "");
    read.insert(name);
    const std::int64_t exchanged = is_module_projection(tensor.name) ? run.resolved.model.hidden : 0;
    run.tensors.push_back({tensor.name, tensor.shape, [theirs, exchanged](std::span<float> values) {
                             theirs.read(values);
                             if (exchanged > 0) exchange_halves(values, exchanged);
                           }});
  }
  require_all_read(model, run.resolved, read);
  return run;
}

fs::path find_tokenizer_file(const ModelFolder& model, std::vector<std::string>& notes) {
  const Json side_files = side_files_of(model.path());
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const fs::path file = model.path() / name;
    if (!has_file(file)) continue;
    try {
      const Tokenizer tokenizer(file);
      require_listed_tokens(file, tokenizer, side_files);
      if (const std::int64_t own = model.config().model.vocab; tokenizer.vocab() > own) {
        notes.push_back(fmt::format("tokenizer  has {} tokens, the model only {}: texts must not contain the others",
                                    tokenizer.vocab(), own));
      }
      return file;
    } catch (const Error& problem) {
      if (std::string_view(problem.what()).find(lfs_pointer_advice) != std::string_view::npos) throw;
      notes.push_back(fmt::format("tokenizer  skipped: {}", problem.what()));
    }
  }
  notes.emplace_back("tokenizer  none found: data.tokenizer is not set");
  return {};
}

}  // namespace lyceum::hugging_face
