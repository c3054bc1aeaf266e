#pragma once

#include <optional>

#include "config/attention_experts.h"
#include "config/balance.h"
#include "config/cadence.h"
#include "config/data.h"
#include "config/model.h"
#include "config/moe.h"
#include "config/mtp.h"
#include "config/optim.h"
#include "config/parallel.h"
#include "config/run.h"
#include "config/sub_dimensions.h"
#include "config/training_stages.h"

namespace lyceum {

/// The configuration of a training run. Key `section.key` of an INI file or the command line is the member of that
/// name; it describes the first stage of the run. Defaults exist only in the structs of the sections. config/binding.h
/// reads values.
struct Config {
  RunConfig run;
  DataConfig data;
  BatchConfig batch;
  ModelConfig model;
  MoeConfig moe;
  AttentionExpertsConfig attention_experts;
  SubDimensionsConfig sub_dimensions;
  MtpConfig mtp;
  BalanceConfig balance;
  OptimConfig optim;
  ParallelConfig parallel;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  RoutingConfig routing;
  TrainingStages training_stages;  // the stages after the first, keys stage.2.from_step, …
  // Facts about the other stages, for the configuration of a single one. Not keys: config_of_stage() sets them.
  /// For a later stage: the batch of stage 1. Its costs divide the blocks among pipeline stages, since the division
  /// cannot change during a run.
  std::optional<BatchConfig> division_batch;
  std::int64_t longest_seq_len = 0;  // of all stages of the run; 0: there are no others
};

}  // namespace lyceum
