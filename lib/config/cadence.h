#pragma once

#include <cstdint>
#include <string>

#include "config/feature.h"

namespace lyceum {

/// [eval]: validation during training, and at its end.
struct EvalConfig {
  std::int64_t every = 0;    // steps between validations; 0: only at the end
  std::int64_t batches = 8;  // global batches per validation; 0: all data
};

/// [checkpoint]: when checkpoints are written, and which one a run resumes from.
struct CheckpointConfig {
  /// A checkpoint is written after `every` steps, and also when `minutes` of training have passed since the last one.
  /// 0: the condition does not apply.
  std::int64_t every = 0;
  double minutes = 10;
  std::int64_t keep = 2;        // number of complete checkpoints to keep, the newest; 0: all
  std::string resume = "auto";  // auto, none or a path, see choose_checkpoint()
  bool at_start = false;        // also save a checkpoint at step 0
  bool background = false;      // write while training continues, from a copy in host memory
};

/// [routing]: the log of experts' loads.
struct RoutingConfig {
  std::int64_t every = 10;        // steps between records; 0: none
  std::int64_t dead_after = 100;  // consecutive steps without a token after which an expert counts as dead; 0: never
};

void declare_keys(ConfigKeys& keys, EvalConfig& eval);
void declare_keys(ConfigKeys& keys, CheckpointConfig& checkpoint);
void declare_keys(ConfigKeys& keys, RoutingConfig& routing);
void check_eval(Findings& findings, const Config& config);

}  // namespace lyceum
