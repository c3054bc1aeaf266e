#include "apps/convert_config.h"

#include <fmt/format.h>

#include <utility>

#include "apps/run_config.h"
#include "config/training_stages.h"
#include "convert/transforms/conversion.h"
#include "core/error.h"
#include "train/setup/run_setup.h"

namespace lyceum {

LoadedConfig converted_config(LoadedConfig own, std::int64_t step, const std::string& out, const Arguments& arguments,
                              const LoadedConfig& given) {
  LoadedConfig base = without_mesh(std::move(own));
  base.config.run.dir = out;
  base.config.checkpoint.resume = CheckpointConfig{}.resume;
  base.config.optim.train_only = {};  // refers to tensors of the old model
  base.config.optim.router_penalty = 0;
  base.config.optim.router_penalty_from = 0;
  base.config.optim.router_penalty_from_attention = OptimConfig{}.router_penalty_from_attention;
  if (!(base.config.balance.device > 0) && base.config.moe.group_limit == 0) base.config.balance.device_groups = 0;
  require_of_new_run(given);
  for (const auto& [key, origin] : given.origin) {
    require_usage(!is_stage_key(key) || !origin.file.empty(),
                  "{} cannot be set here: a converted run has one stage; add others to {}/config.ini", key, out);
  }
  LoadedConfig wanted = read_config(arguments, std::move(base));
  wanted.origin = given.origin;
  take_stage(wanted, step, given);    // if a file has stages
  wanted.config.longest_seq_len = 0;  // the new run does not have the other stages
  wanted.config.run.dir = out;
  return wanted;
}

std::string left_out_stages(const LoadedConfig& given, std::int64_t step, const std::string& out) {
  if (given.config.training_stages.empty()) return {};
  return fmt::format(
      "stages     left out: the new run has the values of stage {}, which made step {}; add stages for its own steps "
      "to {}/config.ini\n",
      stage_of_step(given.config, step), step, out);
}

std::unique_ptr<RunLock> lock_new_run(const Config& config, const MpiSession& session) {
  std::unique_ptr<RunLock> lock = lock_run_directory(config, session);
  require_no_run(config.run.dir);  // another process may have written one since the first examination
  return lock;
}

void require_of_new_run(const LoadedConfig& given) {
  require_usage(!given.origin.contains("run.dir"), "run.dir cannot be set here: --out names the folder");
  const std::string& resume = given.config.checkpoint.resume;
  require_usage(resume == CheckpointConfig{}.resume,
                "checkpoint.resume = {} cannot be set here: the new run begins with the converted weights", resume);
}

}  // namespace lyceum
