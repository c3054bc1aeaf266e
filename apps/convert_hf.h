#pragma once

#include <string>

#include "apps/commands.h"
#include "apps/convert_text.h"
#include "config/binding.h"

/// The commands `lyceum convert import-hf` and `export-hf`, which convert models of Hugging Face's library transformers
/// to runs of Lyceum and back.
namespace lyceum {

constexpr const char *import_hf = "import-hf", *export_hf = "export-hf";

/// The paths of a conversion. With `dry_run` nothing is written.
struct FromTo {
  std::string source, out;
  bool dry_run;
};

/// The options of export-hf. `architecture`: the model type of transformers, such as "mixtral"; if empty, the smallest
/// one that can represent the model. `dtype`: F32 or BF16. `shard_size`: limit of a file's size.
struct ExportOptions {
  std::string architecture, dtype = "F32", shard_size = "5GB";
};

/// Implement `lyceum convert import-hf` and `export-hf`; return the exit code. `arguments`: the arguments that belong
/// to the configuration. `given`: the configuration from these arguments alone. `print_once`: prints on one rank.
int import_model(const MpiSession& session, const FromTo& from_to, const Arguments& arguments,
                 const LoadedConfig& given, const PrintOnce& print_once);
int export_checkpoint(const MpiSession& session, const FromTo& from_to, const ExportOptions& options,
                      const LoadedConfig& given, const PrintOnce& print_once);

}  // namespace lyceum
