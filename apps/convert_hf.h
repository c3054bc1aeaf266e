#pragma once

#include <string>

#include "apps/commands.h"
#include "apps/convert_text.h"
#include "config/binding.h"

/// The commands `lyceum convert import-hf` and `export-hf`, which convert models of Hugging Face's library transformers
/// to runs of Lyceum and back.
namespace lyceum {

constexpr const char *import_hf = "import-hf", *export_hf = "export-hf";

/// The paths of a conversion. import-hf reads a folder of transformers and writes the folder of a new run; export-hf
/// reads a checkpoint or a run's folder and writes a folder of transformers. With `dry_run` nothing is written. `ema`:
/// export-hf reads the moving average of the weights.
struct FromTo {
  std::string source, out;
  bool dry_run, ema = false;
};

/// The options of export-hf. `architecture`: the model type of transformers, such as "mixtral"; if empty, the smallest
/// one that can represent the model. `dtype`: F32 or BF16. `shard_size`: limit of a file's size.
struct ExportOptions {
  std::string architecture, dtype = "F32", shard_size = "5GB";
};

/// Implement `lyceum convert import-hf` and `export-hf`. Collective over the session. Return the exit code.
/// `arguments`: the arguments that belong to the configuration. `given`: the configuration from these arguments alone;
/// for export-hf it must set no key. `print_once`: prints on one rank. Throw usage
/// Errors as require_no_run() and require_no_model() do, and bad_input Errors if the source cannot be read.
int import_model(const MpiSession& session, const FromTo& from_to, const Arguments& arguments,
                 const LoadedConfig& given, const PrintOnce& print_once);
int export_checkpoint(const MpiSession& session, const FromTo& from_to, const ExportOptions& options,
                      const LoadedConfig& given, const PrintOnce& print_once);

}  // namespace lyceum
