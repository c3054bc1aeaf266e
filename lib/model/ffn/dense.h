#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/expert_bank.h"
#include "config/config.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"

namespace lyceum {

/// The names of an FFN's matrices and biases, without the prefix of the half, the expert or the shared experts.
inline constexpr const char *gate_proj = "gate_proj/weight", *up_proj = "up_proj/weight",
                            *down_proj = "down_proj/weight", *gate_bias = "gate_proj/bias", *up_bias = "up_proj/bias",
                            *down_bias = "down_proj/bias";

/// The shape of an FFN: `hidden` inputs and outputs, `width` inner units. Its tensors count as `part`; their names
/// begin with `prefix`.
struct FfnShape {
  std::int64_t hidden, width;
  TensorPart part;
  std::string prefix = {};
};
/// Returns the tensors of an FFN: the matrices gate_proj (SwiGLUs only, stacked with up_proj as "gate_up") and up_proj,
/// [width, hidden], and down_proj [hidden, width]; with model.ffn_bias also gate_proj/bias (stacked with up_proj/bias)
/// and up_proj/bias [width], and down_proj/bias [hidden]. The width is divided among ranks, by rows or columns
/// (SublayerTensor::cut). So is the bias of down_proj: each rank adds its slice to its part of the sum over ranks.
std::vector<SublayerTensor> ffn_tensors(const ModelConfig& model, const FfnShape& shape);
/// Returns the parameters of the FFN whose tensor names begin with `prefix`, which ends in a slash unless it is empty.
/// Throws an Error if there is no such FFN.
ExpertBank::Expert ffn_parameters(const SublayerParameters& parameters, const std::string& prefix = "");

/// Returns the shape of the FFN that every token of a layer passes: the dense FFN, or the shared experts as one FFN.
/// Its tensor names have no prefix.
FfnShape dense_ffn_shape(const Config& config, std::int64_t layer);
/// Returns the declaration of an FFN without routed experts: the dense FFN, or the shared experts of a layer that has
/// no routed ones.
SublayerSpec dense_ffn_spec(const Config& config, std::int64_t layer);

/// A dense FFN, computed as an expert bank with one expert that has all rows.
class FeedForward : public Sublayer {
 public:
  /// The parameters of `matrices` must outlive this.
  FeedForward(const ActivationFunction& activation, const ExpertBank::Expert& matrices);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;
  Parameter* output_matrix() const override { return expert_->front().down; }

 private:
  ActivationFunction activation_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> expert_;
};

}  // namespace lyceum
