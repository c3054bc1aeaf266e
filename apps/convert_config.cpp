#include "apps/convert_config.h"

#include <utility>

#include "apps/run_config.h"
#include "core/error.h"

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
  require_usage(!given.origin.contains("run.dir"), "run.dir cannot be set here: --out names the folder");
  LoadedConfig wanted = read_config(arguments, std::move(base));
  wanted.origin = given.origin;
  take_stage(wanted, step, given);    // if a file has stages
  wanted.config.longest_seq_len = 0;  // the new run does not have the other stages
  wanted.config.run.dir = out;
  return wanted;
}

}  // namespace lyceum
