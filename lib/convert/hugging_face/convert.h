#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/binding.h"
#include "convert/hugging_face/hosting.h"
#include "convert/hugging_face/model_folder.h"
#include "convert/transforms/conversion.h"
#include "parallel/comm/process_group.h"

namespace lyceum::hugging_face {

/// The run that a model in transformers' layout becomes. `wanted`: model.config() with what the user changes of it. Its
/// tokenizer, where there is one, is to be copied to data.tokenizer. Throws bad_input Errors that name what Lyceum has
/// no place for, usage Errors for a configuration that cannot be. The model must live as long as the run.
NewRun import_run(const ModelFolder& model, LoadedConfig wanted);

/// The folder's file that data.tokenizer can name; empty: there is none. What is to be said of it goes to `notes`.
std::filesystem::path tokenizer_of(const ModelFolder& model, std::vector<std::string>& notes);

struct Export {
  std::filesystem::path folder = {};
  DataConfig data = {};  // of the checkpoint: what ends a text
  safetensors::Type type = safetensors::Type::f32;
  std::int64_t shard_bytes = 5'000'000'000;  // of a file, unless it has a single tensor
};

/// Collective. Writes a folder that transformers loads: config.json, safetensors, the checkpoint's tokenizer, and
/// exported_side_files(). Ranks share the files; a process holds a tensor at a time. The folder appears when all
/// of it is on the disk. Returns lines for whoever asked.
std::vector<std::string> export_model(const Hosting& hosting, const std::vector<Recipe>& recipes,
                                      const CheckpointReader& source, const ProcessGroup& world, const Export& made);

/// Throws a usage Error where a folder is there that export_model() would replace.
void require_no_model(const std::filesystem::path& folder);

}  // namespace lyceum::hugging_face
