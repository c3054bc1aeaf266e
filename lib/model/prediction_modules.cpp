#include "model/prediction_modules.h"

#include <memory>
#include <utility>

#include "autograd/joined_norms.h"
#include "autograd/linear.h"
#include "kernels/shift_tokens.h"
#include "model/sublayer_tensor.h"
#include "model/transformer.h"

namespace lyceum {

PredictionModule prediction_module(const ModelConfig& model) {
  const Shape width{model.hidden};
  return {.hidden_norm = {"hnorm/weight", width},
          .embedding_norm = {"enorm/weight", width},
          .final_norm = {"norm/weight", width},
          .projection = {"proj/weight", {model.hidden, 2 * model.hidden}, model.init_std}};
}

std::int64_t PredictionModule::elements() const {
  return hidden_norm.shape.size() + embedding_norm.shape.size() + final_norm.shape.size() + projection.shape.size();
}

double module_weight(const MtpConfig& mtp) { return mtp.weight / static_cast<double>(mtp.depth); }

void Transformer::add_modules(std::span<const ExpertLoad> measured) {
  const PredictionModule tensors = prediction_module(config_.model);
  for (std::int64_t k = 0; k < config_.mtp.depth; ++k) {
    const std::int64_t layer = config_.model.layers + k;
    const BlockUnits units = add_block_units(layer, output_layer());
    const auto add = [&](const PredictionModule::Tensor& tensor) {
      const bool decays = tensor.shape.rank() > 1;
      return &units.replicated.add(whole_parameter(block_prefix(config_.model, layer) + "/" + tensor.name, tensor.shape,
                                                   tensor.initial, decays));
    };
    modules_.push_back({.hidden_norm = add(tensors.hidden_norm),
                        .embedding_norm = add(tensors.embedding_norm),
                        .projection = add(tensors.projection),
                        .final_norm = add(tensors.final_norm),
                        .block = make_block(layer, units, measured)});
  }
}

namespace {

/// Returns the inputs and targets of a module that predicts `shift` tokens further than the model.
TokenBatch shifted(const Stream& stream, const TokenBatch& batch, std::int64_t shift) {
  TokenBatch result = batch;
  result.inputs = Tensor::empty(stream, DType::i32, batch.inputs.shape());
  result.targets = Tensor::empty(stream, DType::i32, batch.targets.shape());
  result.layer_sums = nullptr;  // modules are not measured
  const Tensor& starts = batch.first_keys.defined() ? batch.first_keys : batch.span_starts;
  launch(stream,
         ShiftTokens{.inputs = batch.inputs.span<const std::int32_t>(),
                     .targets = batch.targets.span<const std::int32_t>(),
                     .starts = starts.defined() ? starts.span<const std::int32_t>() : std::span<const std::int32_t>(),
                     .seq_len = batch.seq_len,
                     .shift = shift,
                     .shifted_inputs = result.inputs.span<std::int32_t>(),
                     .shifted_targets = result.targets.span<std::int32_t>()});
  return result;
}

}  // namespace

Variable Transformer::join_embeddings(Tape& tape, const Pass& pass, const Module& module, const Variable& x) const {
  const TokenLayout& layout = pass.layout;
  const double eps = config_.model.norm_eps;
  // The projection is not divided among tensor ranks: each multiplies its own range of the tokens.
  const Variable hidden = layout.to_own_tokens(tape, x);
  const Variable embedded = layout.to_own_tokens(tape, embed(tape, layout, pass.batch.inputs));
  const JoinedNorms norms{{module.hidden_norm, eps}, {module.embedding_norm, eps}};
  const Variable joined = tape.apply(norms, hidden, embedded);
  const Variable projected = tape.apply(Linear{module.projection}, joined);
  tape.release(joined, norms, hidden, embedded);
  return layout.from_own_tokens(tape, projected);
}

void Transformer::run_modules(Tape& tape, const Pass& pass, Variable x, Losses& losses) const {
  for (std::size_t k = 0; k < modules_.size(); ++k) {
    const Module& module = modules_[k];
    Pass own = pass;
    own.batch = shifted(tape.stream(), pass.batch, static_cast<std::int64_t>(k) + 1);
    const auto run = [this, &module, own](Tape& inner, const Variable& input) {
      return run_block(inner, own, module.block, join_embeddings(inner, own, module, input));
    };
    const Variable y = run_recomputable(tape, module.block.layer, run, x, losses);
    x = tape.apply(norm(own.layout, module.final_norm), y);
    const Variable loss = run_head(tape, own.layout, x, own.batch, {})[0];
    losses.layers.push_back({module.block.layer, {LossKind::mtp, loss}});
  }
}

}  // namespace lyceum
