#include "model/ffn/dense.h"

namespace lyceum {

std::vector<SublayerTensor> ffn_tensors(const ModelConfig& model, const FfnShape& shape) {
  const bool gated = inputs_of(model.ffn) == 2;
  constexpr std::int64_t align = 8;  // 16 bytes in bf16, the alignment that tensor cores and their copies need
  const std::string stack = gated ? shape.prefix + "gate_up" : "";
  const Shape in{shape.width, shape.hidden}, out{shape.hidden, shape.width};
  std::vector<SublayerTensor> matrices;
  if (gated) matrices.push_back({shape.prefix + gate_proj, in, model.init_std, shape.part, Cut::rows, stack, align});
  matrices.push_back({shape.prefix + up_proj, in, model.init_std, shape.part, Cut::rows, stack, align});
  matrices.push_back({shape.prefix + down_proj, out, model.init_std, shape.part, Cut::columns, "", align});
  if (!model.ffn_bias) return matrices;
  // Padded like the rows of the matrices
  const std::string biases = gated ? shape.prefix + "gate_up_bias" : "";
  if (gated) matrices.push_back({shape.prefix + gate_bias, {shape.width}, 0.0, shape.part, Cut::rows, biases, align});
  matrices.push_back({shape.prefix + up_bias, {shape.width}, 0.0, shape.part, Cut::rows, biases, align});
  matrices.push_back({shape.prefix + down_bias, {shape.hidden}, 0.0, shape.part, Cut::rows});
  return matrices;
}

ExpertBank::Expert ffn_parameters(const SublayerParameters& parameters, const std::string& prefix) {
  ExpertBank::Expert expert{.in = &parameters.at(prefix + up_proj),
                            .down = &parameters.at(prefix + down_proj),
                            .in_bias = parameters.find(prefix + up_bias),
                            .down_bias = parameters.find(prefix + down_bias)};
  if (expert.down_bias) expert.down_columns = elements_of(*expert.down_bias);
  return expert;
}

FfnShape dense_ffn_shape(const Config& config, std::int64_t layer) {
  return {.hidden = config.model.hidden,
          .width = dense_width(config, layer),
          .part = is_sparse(config, layer) ? TensorPart::shared : TensorPart::ffn};
}

SublayerSpec dense_ffn_spec(const Config& config, std::int64_t layer) {
  return {.id = {layer, Site::ffn},
          .tensors = ffn_tensors(config.model, dense_ffn_shape(config, layer)),
          .make = [](const Config& of, const SublayerSpec& spec,
                     const SublayerContext& context) -> std::unique_ptr<Sublayer> {
            const SublayerParameters parameters(spec.tensors, spec.prefix(), context.mesh, context.units);
            return std::make_unique<FeedForward>(activation_of(of.model), ffn_parameters(parameters));
          }};
}

FeedForward::FeedForward(const ActivationFunction& activation, const ExpertBank::Expert& matrices)
    : activation_(activation), expert_(std::make_shared<const std::vector<ExpertBank::Expert>>(1, matrices)) {}

Sublayer::Result FeedForward::forward(Tape& tape, const Pass& pass, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const auto rows = std::make_shared<SegmentTable>(SegmentTable::whole(tape.stream(), layout.tokens()));
  const Variable all = layout.to_matrix(tape, x), y = tape.apply(ExpertBank{activation_, expert_, rows}, all);
  layout.release_matrix(tape, all, x);
  return {layout.from_matrix(tape, y)};
}

}  // namespace lyceum
