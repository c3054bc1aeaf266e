#pragma once

#include <span>
#include <vector>

#include "config/config.h"
#include "io/data/loader/token_loader.h"
#include "model/staged_model.h"
#include "model/sublayer.h"
#include "train/eval/token_collector.h"
#include "train/setup/run_setup.h"

namespace lyceum {

struct Evaluation {
  double loss = 0;                     // mean cross-entropy, nats per token that counts
  double standard_error = 0;           // of the loss, by how much sequences differ; 0 of a single one
  std::int64_t samples = 0;            // sequences read
  std::int64_t tokens = 0;             // predicted, those that count
  std::int64_t positions = 0;          // of the sequences
  std::vector<RoutingSums> routing{};  // of all positions, every mixture
};

/// Sequences that evaluate() reads for so many batches.
std::int64_t evaluated_samples(const Config& config, const TokenLoader& loader, std::int64_t batches);

/// Who else looks at the tokens that are evaluated, each once.
struct EvaluationWatch {
  TokenCollector* collector = nullptr;         // on all ranks or none
  const SublayerObserver* observer = nullptr;  // likewise; see Pass
};

/// Collective: mean cross-entropy over `batches` global batches of the loader's samples, spread evenly over all of them
/// (0: all of them), each sample once, the same number on every mesh up to rounding. Clears what the model counted of
/// its routing.
Evaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t batches, const EvaluationWatch& watch = {});

/// What evaluations of several sources, one after another, have found.
struct SourcesEvaluation {
  Evaluation whole;                 // over the tokens of all
  std::vector<Evaluation> sources;  // as they were given
};
/// Collective. `batches` of each loader's samples.
SourcesEvaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config,
                           std::span<const TokenLoader> loaders, std::int64_t batches,
                           const EvaluationWatch& watch = {});

}  // namespace lyceum
