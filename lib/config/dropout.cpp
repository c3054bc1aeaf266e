#include "config/dropout.h"

#include <string_view>

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "kernels/dropout.h"

namespace lyceum {

void declare_dropout_keys(ConfigKeys& keys, DropoutConfig& dropout) {
  using enum KeyRole;
  const KeySection key(keys, tuning);
  key("model.dropout", &dropout.rate, {.low = 0, .high = 1, .high_open = true},
      "probability with which elements of embeddings and of the results of attention and FFN are dropped in training",
      {.other_names = {"hidden_dropout", "resid_pdrop", "embd_pdrop", "dropout_rate"}});
  key("model.dropout_kind", &dropout.kind,
      "plain: drop single elements; concrete: with rates that are learnt; block: drop runs of tokens (DropBlock)",
      {.role = identity});
  key("model.dropout_block", &dropout.block, {.low = 1, .high = most_dropped_tokens},
      "with model.dropout_kind = block: consecutive tokens of a column that are dropped together");
  key("model.dropout_weight_regularizer", &dropout.weight_regularizer, loss_weight,
      "with model.dropout_kind = concrete: weight of the squared weights before a site, divided by 1 - rate");
  key("model.dropout_regularizer", &dropout.regularizer, loss_weight,
      "with model.dropout_kind = concrete: weight of the negative entropy of a rate, times model.hidden");
}

void check_dropout(Findings& findings, const Config& config) {
  const DropoutConfig& dropout = config.model.dropout;
  if (!(dropout.rate > 0)) return;
  findings.unless(
      dropout.kind != DropoutKind::block || dropout.block <= config.batch.seq_len || config.batch.seq_len <= 0,
      "model.dropout_block = {} is more than batch.seq_len = {}: set it lower", dropout.block, config.batch.seq_len);
  // The regulariser needs one matrix before each site.
  const bool concrete = dropout.kind == DropoutKind::concrete;
  constexpr std::string_view instead = ": set model.dropout_kind = plain or block";
  findings.unless(!concrete || config.model.attention != AttentionKind::experts,
                  "model.dropout_kind = concrete with model.attention = moa, which has no single output matrix{}",
                  instead);
  findings.unless(!concrete || choices_of(config.moe) <= 0,
                  "model.dropout_kind = concrete with moe.experts, which have no single output matrix{}", instead);
  findings.unless(!concrete || (config.sub_dimensions.attention <= 0 && config.sub_dimensions.ffn <= 0),
                  "model.dropout_kind = concrete with sub_dimensions, of which a token uses only some{}", instead);
  findings.unless(!concrete || config.optim.lora_rank == 0,
                  "model.dropout_kind = concrete with optim.lora_rank = {}: adapters freeze the rates{}",
                  config.optim.lora_rank, instead);
}

void simplify_dropout(DropoutConfig& dropout) {
  if (dropout.rate == 0) dropout = {};
  const DropoutConfig defaults;
  if (dropout.kind != DropoutKind::block) dropout.block = defaults.block;
  if (dropout.kind != DropoutKind::concrete) {
    dropout.weight_regularizer = defaults.weight_regularizer;
    dropout.regularizer = defaults.regularizer;
  }
}

}  // namespace lyceum
