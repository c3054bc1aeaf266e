#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "model/layer_sums.h"
#include "model/routing/mixture.h"
#include "model/routing/running_loads.h"
#include "model/routing/step_replicas.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

/// The choices of one router for this rank's range of the tokens.
struct ChosenExperts {
  MixtureId id;
  /// index: i32 [tokens, k]; gates: [tokens, k] in the accumulator's type; see Router::Choices.
  Tensor index, gates;
};

/// Input and output of one half of a block, before the residual is added. x and y: [rows, hidden], in the layout
/// between matrices.
struct SublayerValues {
  MixtureId id;
  TokenLayout layout;
  Tensor x, y;
};
using SublayerObserver = std::function<void(const SublayerValues&)>;

/// The tokens of one pass through the model, and everything else that the pass depends on except weights. Tensors are
/// in the memory of the device that computes. All ranks of a tensor group have the same batch.
struct TokenBatch {
  /// i32 [sequences · seq_len] each; undefined in stages that do not read tokens. A target may be no_target.
  Tensor inputs, targets;
  std::int64_t sequences, seq_len;
  /// i32 [sequences · seq_len]: the first position that each token attends to, see FirstKeys. Undefined if every
  /// sequence is one document.
  Tensor first_keys = {};
  /// i32 [sequences · seq_len]: the first position of the document, or of the part of one, that each token belongs to,
  /// for modules of multi-token prediction. Undefined if first_keys is defined, which has the same positions, and if
  /// the tokens of every sequence are consecutive.
  Tensor span_starts = {};
  /// Index of inputs[0] in the step's global batch, among the tokens that an evaluation reads, or in a generated text.
  std::int64_t first_token = 0;
  /// f64 [1]: number of training steps before this one. Undefined outside of training. It is in device memory, so that
  /// a step that was recorded as a graph reads the current number.
  Tensor step = {};
  /// f64 [1]: number of FFN experts that a token chooses in this step, at most Mixture::k. If undefined, it is
  /// Mixture::k.
  Tensor choices = {};
  /// Index of this pass among those of its step, and the sums of loads of these passes, which outlive the batch; null
  /// unless balance.scope = global.
  std::int64_t pass = 0;
  const RunningLoads* running_loads = nullptr;
  StepReplicas* replicas = nullptr;       // replicas of experts that the passes use; null: no replicas
  const LayerSums* layer_sums = nullptr;  // if not null, the pass adds its measurements to these
  Tensor attention_logits = {};           // if defined, attention raises these, see AttentionLogits::largest()
  /// Accumulator type [sequences · seq_len]; if defined, the last stage writes the cross-entropy of each token to it.
  Tensor token_losses = {};
  std::vector<ChosenExperts>* chosen = nullptr;  // if not null, each router appends its choices
  const SublayerObserver* observer = nullptr;    // if not null, called with the values of each half of each block

  std::int64_t tokens() const { return sequences * seq_len; }
  /// True for a batch of a training step.
  bool training() const { return step.defined(); }
};

}  // namespace lyceum
