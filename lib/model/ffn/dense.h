#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/expert_bank.h"
#include "config/config.h"
#include "model/sublayer.h"
#include "model/sublayer_spec.h"

namespace lyceum {

/// Names of an FFN's matrices.
inline constexpr const char *gate_proj = "gate_proj/weight", *up_proj = "up_proj/weight",
                            *down_proj = "down_proj/weight";

/// An FFN of `width` on rows of `hidden`. Its tensors count as `part`; their names begin with `prefix`.
struct FfnShape {
  std::int64_t hidden, width;
  TensorPart part;
  std::string prefix = {};
};
/// The matrices of an FFN: gate_proj (of SwiGLU, stacked with the next as "gate_up") and up_proj [width, hidden],
/// down_proj [hidden, width]. Ranks share out the width, which is the axis of Cut.
std::vector<SublayerTensor> ffn_matrices(const ModelConfig& model, const FfnShape& shape);
/// The parameters of those that `parameters` has under `prefix`.
ExpertBank::Expert ffn_parameters(const SublayerParameters& parameters, const std::string& prefix = "");

/// The FFN that every token of a layer passes: the dense one, or shared experts if there are no routed ones.
FfnShape dense_ffn_shape(const Config& config, std::int64_t layer);
SublayerSpec dense_ffn_spec(const Config& config, std::int64_t layer);

/// A dense FFN: a bank of one expert on all rows.
class FeedForward : public Sublayer {
 public:
  FeedForward(Activation activation, const ExpertBank::Expert& matrices);
  Result forward(Tape& tape, const Pass& pass, const Variable& x) const override;

 private:
  Activation activation_;
  std::shared_ptr<const std::vector<ExpertBank::Expert>> expert_;
};

}  // namespace lyceum
