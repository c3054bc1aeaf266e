#include "model/dropout.h"

#include <cmath>

#include "autograd/dropout.h"
#include "autograd/sum_of_squares.h"
#include "model/transformer.h"

namespace lyceum {

namespace {

SublayerTensor rate_tensor(const ModelConfig& model, const char* name) {
  const double rate = model.dropout.rate;
  return {name, {1}, Initial::all(std::log(rate) - std::log1p(-rate)), TensorPart::norms};
}

}  // namespace

BlockRates block_rates(const ModelConfig& model) {
  return {rate_tensor(model, "attention_dropout/logit"), rate_tensor(model, "ffn_dropout/logit")};
}

SublayerTensor embedding_rate(const ModelConfig& model) { return rate_tensor(model, "model/embed_dropout/logit"); }

Variable Transformer::drop(Tape& tape, const Pass& pass, const DropoutSite& site, const Variable& x,
                           std::vector<Loss>& losses) const {
  const ModelConfig& model = config_.model;
  const DropoutConfig& dropout = model.dropout;
  if (!(dropout.rate > 0) || !pass.training()) return x;
  const std::int64_t first_row = config_.parallel.sequence ? pass.layout.own().first : 0;
  const DropoutSource source{.seed = config_.run.seed,
                             .site = site.index,
                             .first = pass.batch.first_token + first_row,
                             .step = pass.batch.step,
                             .block = dropout.kind == DropoutKind::block ? dropout.block : 1,
                             .seq_len = pass.batch.seq_len};
  if (!site.rate) return tape.apply(Dropout{source, dropout.rate}, x);
  const auto sequences = static_cast<double>(pass.layout.sequences());
  const Variable squares = tape.apply(SumOfSquares{.weight = site.weight});
  const RegulariseDropout loss{.logit = site.rate,
                               .norm_factor = sequences * dropout.weight_regularizer,
                               .entropy_factor = sequences * dropout.regularizer * static_cast<double>(model.hidden),
                               .graded = pass.layout.rank() == 0};
  const Variable as_matrix{squares.value.view(0, {1, 1}), squares.id};
  losses.push_back({LossKind::dropout, tape.apply(loss, pass.layout.sum_over_ranks(tape, as_matrix))});
  return tape.apply(ConcreteDropout{source, site.rate, pass.layout.graded()}, x);
}

}  // namespace lyceum
