#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "io/routing/activation_flow.h"
#include "model/activation_sums.h"
#include "model/sublayer.h"
#include "train/eval/evaluator.h"
#include "train/setup/run_setup.h"

namespace lyceum {

/// Adds up what the halves of blocks read and give in an evaluation, as they give it: no activation is kept.
class FlowCollector {
 public:
  /// Of a model of that resolved configuration. Both must outlive it.
  FlowCollector(const RunSetup& setup, const Config& config);
  FlowCollector(const FlowCollector&) = delete;
  FlowCollector& operator=(const FlowCollector&) = delete;

  /// For EvaluationWatch.
  const SublayerObserver& observer() const { return observer_; }
  /// Collective over the world: the means over all tokens of the evaluation, the same on all ranks.
  std::vector<ActivationFlow::Values> values(const Evaluation& evaluation);

 private:
  void add(const SublayerValues& half);
  /// [layers, halves, input and output]
  ActivationSums& sums_of(const MixtureId& id, bool output);

  const RunSetup& setup_;
  const Config& config_;
  SublayerObserver observer_;
  std::vector<ActivationSums> sums_;
};

}  // namespace lyceum
