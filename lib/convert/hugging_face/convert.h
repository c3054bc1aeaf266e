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

/// Returns the new run of an imported model. `wanted` is model.config() with the user's changes. The caller must set
/// the members `tokenizer`, `transformers` and `copied_as` of the result. Throws a bad_input Error that names a tensor
/// or property that Lyceum does not support, and a usage Error for an invalid configuration. `model` must outlive the
/// run.
NewRun import_run(const ModelFolder& model, LoadedConfig wanted);

/// Returns the path of the folder's tokenizer.json or tokenizer.model; empty if it has none that Lyceum can read, or
/// none with all of the model's tokens, see require_listed_tokens(). Adds lines for the user to `notes`.
std::filesystem::path find_tokenizer_file(const ModelFolder& model, std::vector<std::string>& notes);

/// The destination and the options of an export.
struct Export {
  std::filesystem::path folder = {};
  DataConfig data = {};  // of the checkpoint: determines the chat template and the tokens that end a text
  safetensors::Type type = safetensors::Type::f32;  // f32 or bf16
  std::int64_t shard_bytes = 5'000'000'000;         // largest size in bytes of a file with more than one tensor
};

/// Collective. Writes a folder that transformers can load: config.json, safetensors, the checkpoint's tokenizer, and
/// exported_side_files(). The files are shared out over the ranks; each rank has one tensor in memory at a time. The
/// folder appears under its name when all of it is on the disk; until then it is FOLDER.partial, which is removed if
/// the export fails. Throws a failed Error if a weight is not finite or exceeds the range of `type`. Returns lines for
/// the user. Call require_no_model() first.
std::vector<std::string> export_model(const Hosting& hosting, const std::vector<Recipe>& recipes,
                                      const CheckpointReader& source, const ProcessGroup& world, const Export& made);

/// Throws a usage Error if the folder exists and is not empty. export_model() would fail then, but only at its end.
void require_no_model(const std::filesystem::path& folder);

}  // namespace lyceum::hugging_face
