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

/// Accumulates statistics of the inputs and outputs of all halves of blocks during an evaluation. Pass observer() to
/// evaluate(), then call values(). Activations are added up as they arrive and are not kept.
class FlowCollector {
 public:
  /// `config`: the resolved configuration of the model. Both references must outlive the collector.
  FlowCollector(const RunSetup& setup, const Config& config);
  FlowCollector(const FlowCollector&) = delete;
  FlowCollector& operator=(const FlowCollector&) = delete;

  /// Returns the observer for EvaluationWatch. It refers to this collector.
  const SublayerObserver& observer() const { return observer_; }
  /// Collective over the world. Returns the means over all tokens of the evaluation, equal on all ranks: per layer, the
  /// input and output of attention, then those of the FFN. Call once, after `evaluation`: the sums over ranks replace
  /// those of this rank.
  std::vector<ActivationFlow::Values> values(const Evaluation& evaluation);

 private:
  void add(const SublayerValues& half);
  /// Returns the sums of one half's input or output: an element of sums_ [layers, halves, input and output].
  ActivationSums& sums_of(const MixtureId& id, bool output);

  const RunSetup& setup_;
  const Config& config_;
  SublayerObserver observer_;
  std::vector<ActivationSums> sums_;
};

}  // namespace lyceum
