#pragma once

#include "io/config/config.h"
#include "io/data/token_data.h"
#include "model/staged_model.h"
#include "train/run_setup.h"

namespace lyceum {

struct Evaluation {
  double loss = 0;                     // mean cross-entropy, nats per token
  double standard_error = 0;           // of the loss, by how much sequences differ; 0 of a single one
  std::int64_t samples = 0;            // sequences read
  std::int64_t tokens = 0;             // predicted
  std::vector<RoutingSums> routing{};  // of these tokens, every mixture
};

/// Collective: mean cross-entropy over `batches` global batches of the loader's samples, spread evenly over all of them
/// (0: all of them), each sample once, the same number on every mesh up to rounding. Clears what the model counted of
/// its routing.
Evaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t batches);

}  // namespace lyceum
