#pragma once

#include "config/attention_experts.h"
#include "config/balance.h"
#include "config/cadence.h"
#include "config/data.h"
#include "config/model.h"
#include "config/moe.h"
#include "config/optim.h"
#include "config/parallel.h"
#include "config/run.h"
#include "config/sub_dimensions.h"

namespace lyceum {

/// The configuration of a run: `section.key` of an INI file or of the command line is the member of the same name.
/// Defaults are in the structs of the sections and nowhere else. See config/binding.h for how values arrive.
struct Config {
  RunConfig run;
  DataConfig data;
  BatchConfig batch;
  ModelConfig model;
  MoeConfig moe;
  AttentionExpertsConfig attention_experts;
  SubDimensionsConfig sub_dimensions;
  BalanceConfig balance;
  OptimConfig optim;
  ParallelConfig parallel;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  RoutingConfig routing;
};

}  // namespace lyceum
