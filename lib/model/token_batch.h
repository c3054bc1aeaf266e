#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"
#include "model/routing/mixture.h"
#include "parallel/tensor/token_layout.h"

namespace lyceum {

/// The choices of one router for this rank's run of the tokens.
struct ChosenExperts {
  MixtureId id;
  Tensor index, gates;  // as Router::Choices: i32, and the accumulator's type, [tokens, k]
};

/// Input and output of one half of a block, before the residual is added: [rows, hidden], in the layout between
/// matrices.
struct SublayerValues {
  MixtureId id;
  TokenLayout layout;
  Tensor x, y;
};
using SublayerObserver = std::function<void(const SublayerValues&)>;

/// The tokens of one pass through the model, and everything else but weights that it depends on. Tensors are in the
/// memory of the device that computes. All ranks of a tensor group have the same batch.
struct TokenBatch {
  /// i32 [sequences · seq_len] each; undefined in stages that do not read tokens. A target may be no_target.
  Tensor inputs, targets;
  std::int64_t sequences, seq_len;
  /// i32 [sequences · seq_len]: see FirstKeys. Undefined: a sequence is one document.
  Tensor first_keys = {};
  /// Index of inputs[0] in the step's global batch, among the tokens that an evaluation reads, or in a generated text.
  std::int64_t first_token = 0;
  /// f64 [1]: training steps before this one. Undefined outside of training. In device memory, so that a recorded step
  /// reads it anew.
  Tensor step = {};
  /// f64 [1]: experts of an FFN that a token chooses. Undefined: as many as the mixture says.
  Tensor choices = {};
  /// Accumulator type [sequences · seq_len]: takes the cross-entropy of each token in the last stage, if defined.
  Tensor token_losses = {};
  std::vector<ChosenExperts>* chosen = nullptr;  // takes the choices of all routers, if not null
  const SublayerObserver* observer = nullptr;    // is called with the values of each half of each block, if not null

  std::int64_t tokens() const { return sequences * seq_len; }
  bool training() const { return step.defined(); }
};

}  // namespace lyceum
