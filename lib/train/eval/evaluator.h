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

/// The loss and the routing of a model on some sequences. Equal on all ranks.
struct Evaluation {
  double loss = 0;                     // mean cross-entropy, nats per target that counts
  double standard_error = 0;           // standard error of the loss, from the spread over sequences; 0 for one sequence
  std::int64_t samples = 0;            // sequences read
  std::int64_t tokens = 0;             // targets that count in the loss
  std::int64_t positions = 0;          // samples · seq_len
  std::vector<RoutingSums> routing{};  // one per mixture of the model, over all positions
};

/// Returns the number of sequences that evaluate() reads from `loader`: `batches` global batches, but at most all of
/// the loader's sequences; 0 batches mean all.
std::int64_t evaluated_samples(const Config& config, const TokenLoader& loader, std::int64_t batches);

/// Optional receivers of data about each evaluated token. Each token is passed to them once. Either pointer is set on
/// all ranks or on none, and its target must outlive the call of evaluate().
struct EvaluationWatch {
  TokenCollector* collector = nullptr;         // receives the loss and the choices of each token
  const SublayerObserver* observer = nullptr;  // is called with the input and output of each half; see Pass
};

/// Collective over the world. Evaluates `batches` global batches of samples, spread evenly over those of the loader (0:
/// all samples). Each sample is read once, so the result is the same on every mesh up to rounding. Clears the routing
/// counts of the model before and after. Throws a bad_input Error if none of the targets counts in the loss.
Evaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader,
                    std::int64_t batches, const EvaluationWatch& watch = {});

/// Collective over the world. Runs one global batch of samples, so that later calls find memory and kernels ready. The
/// loss is not used: all targets may be masked.
void warm_up(StagedModel& model, const RunSetup& setup, const Config& config, const TokenLoader& loader);

/// The results of evaluating several sources, one after another.
struct SourcesEvaluation {
  Evaluation whole;                 // over the tokens of all sources
  std::vector<Evaluation> sources;  // one per loader, in the order of the loaders
};
/// Collective over the world. Evaluates `batches` global batches of each loader (0: all its samples).
SourcesEvaluation evaluate(StagedModel& model, const RunSetup& setup, const Config& config,
                           std::span<const TokenLoader> loaders, std::int64_t batches,
                           const EvaluationWatch& watch = {});

}  // namespace lyceum
