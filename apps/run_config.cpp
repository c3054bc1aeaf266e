#include "apps/run_config.h"

#include <iostream>

#include "io/config_check.h"

namespace lyceum {

std::optional<LoadedConfig> configure(const MpiSession& session, const Arguments& arguments, const char* help) {
  LoadedConfig loaded = load_config(arguments);
  const bool talks = session.rank() == 0;
  if (loaded.help) {
    if (talks) std::cout << help;
    return {};
  }
  if (loaded.list_keys) {
    if (talks) std::cout << list_keys();
    return {};
  }
  require_none(problems(loaded.config, session.size()));
  resolve(loaded.config, session.size());
  if (loaded.print_config) {
    if (talks) std::cout << print_config(loaded);
    return {};
  }
  return loaded;
}

CheckpointReader open_checkpoint(const std::string& path) {
  require_usage(!path.empty(), "--checkpoint is missing: name a checkpoint, or the directory that holds them");
  return CheckpointReader(resolve_checkpoint(path));
}

Config checkpoint_config(const CheckpointReader& reader, const Arguments& changes, int world) {
  Config config = parse_config(reader.header().config, reader.directory().string() + " (its configuration)");
  const ParallelConfig one;
  config.parallel = one;  // any mesh reads any checkpoint
  config.run.device = "auto";
  config.batch.micro = 0;
  config = load_config(changes, config).config;
  require_none(problems(config, world));
  resolve(config, world);
  return config;
}

}  // namespace lyceum
