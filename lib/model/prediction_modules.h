#pragma once

#include <cstdint>
#include <string>

#include "autograd/parameter.h"
#include "config/config.h"
#include "core/tensor.h"

namespace lyceum {

/// The tensors of a module of multi-token prediction that do not belong to its block. Tensor ranks hold copies of them.
///
/// Module k of D, counted from 1, predicts token t_{i+k+1} at position i [DeepSeek-V3, section 2.2]:
///   1. h'_k = M_k · [RMSNorm(h_{k−1}); RMSNorm(Emb(t_{i+k}))] with the weights `hidden_norm`, `embedding_norm` and
///      M_k = `projection`. h_0 is the result of the model's final norm.
///   2. h_k = RMSNorm(Block_k(h'_k)) with the weight `final_norm`. The block is of the kind of the model's last one.
///   3. The loss is the cross-entropy of the model's head on h_k. Embedding and head are those of the model.
struct PredictionModule {
  struct Tensor {
    std::string name;  // in a checkpoint, block_prefix() of the module's block and a slash precede it
    Shape shape;
    Initial initial = {};
  };
  Tensor hidden_norm, embedding_norm, final_norm;  // [hidden]
  Tensor projection;                               // [hidden, 2 · hidden]

  /// Returns the number of elements of all tensors.
  std::int64_t elements() const;
};
PredictionModule prediction_module(const ModelConfig& model);

/// Returns the factor of each module's cross-entropy in the loss: mtp.weight / mtp.depth.
double module_weight(const MtpConfig& mtp);

}  // namespace lyceum
