#include "config/optim.h"

#include "config/config.h"
#include "config/findings.h"
#include "config/keys.h"
#include "config/router_penalty.h"

namespace lyceum {

void declare_keys(ConfigKeys& keys, OptimConfig& optim) {
  using enum KeyRole;
  const KeySection key(keys, tuning);
  const Domain rate{.low = 0, .high = 1e30};
  const Domain moment{.low = 0, .high = 1, .high_open = true};
  key("optim.rule", &optim.rule, "muon: orthogonalised updates of the matrices of blocks, AdamW for all other weights",
      {.other_names = {"optimizer"}});
  key("optim.lr", &optim.lr, rate, "largest learning rate", {.other_names = {"lr", "learning_rate", "max_lr"}});
  key("optim.min_lr", &optim.min_lr, rate, "final learning rate of cosine and wsd, lowest one of step");
  key("optim.schedule", &optim.schedule,
      "step: multiplied by 0.316 at 80 % and at 90 % of the steps; wsd: constant, then linear decay to min_lr",
      {.other_names = {"lr_scheduler", "lr_scheduler_type", "lr_decay_style"}});
  key("optim.schedule_steps", &optim.schedule_steps, {.low = 0},
      "length of the schedule in steps; 0: that of the resumed checkpoint, or else run.steps",
      {.role = operation, .other_names = {"lr_decay_iters"}});
  key("optim.warmup_steps", &optim.warmup_steps, {.low = 0}, "steps of linear warm-up",
      {.other_names = {"warmup", "warmup_iters", "lr_warmup_iters"}});
  key("optim.warmup_from", &optim.warmup_from, rate,
      "learning rate of the first step of the warm-up; 0: optim.lr / optim.warmup_steps",
      {.other_names = {"lr_warmup_init", "warmup_init_lr", "warmup_min_lr"}});
  key("optim.decay_steps", &optim.decay_steps, {.low = 0}, "last steps of wsd, in which it decays; 0: a tenth",
      {.other_names = {"lr_wsd_decay_iters"}});
  key("optim.beta1", &optim.beta1, moment, "decay of AdamW's first moment", {.other_names = {"adam_beta1"}});
  key("optim.beta2", &optim.beta2, moment, "decay of AdamW's second moment", {.other_names = {"adam_beta2"}});
  key("optim.eps", &optim.eps, {.low = 1e-30, .high = 1}, "added to the root of the second moment",
      {.other_names = {"adam_eps", "adam_epsilon"}});
  key("optim.momentum", &optim.momentum, moment, "decay of Muon's momentum", {.other_names = {"muon_momentum"}});
  key("optim.moments", &optim.moments,
      "type of AdamW's moments and of Muon's momentum; bf16: half the memory, rounded stochastically");
  key("optim.adamw_only", &optim.adamw_only, {.hint = "names with *, comma-separated"},
      "with rule = muon, matrices of blocks that AdamW updates all the same: model/layers/*/mlp/gate/weight");
  key("optim.weight_decay", &optim.weight_decay, {.low = 0, .high = 100},
      "weight decay of matrices; norm weights are not decayed", {.other_names = {"wd"}});
  key("optim.ema", &optim.ema, moment,
      "decay of a moving average of the weights, which checkpoints contain: 0.999; 0: no average",
      {.other_names = {"ema", "ema_decay"}});
  key("optim.clip_norm", &optim.clip_norm, {.low = 0, .high = 1e9}, "largest global gradient norm; 0: no clipping",
      {.other_names = {"clip_grad", "grad_clip", "max_grad_norm", "gradient_clipping"}});
  key("optim.skip_above", &optim.skip_above, {.low = 0, .high = 1e9},
      "steps whose loss or gradient norm is so many standard deviations above the recent mean are skipped; 0: none");
  key("optim.skip_window", &optim.skip_window, {.low = 2, .high = 1e6},
      "updates over which optim.skip_above takes mean and deviation; until there are so many, none is skipped");
  key("optim.qk_clip", &optim.qk_clip, {.low = 0, .high = 1e9},
      "largest attention logit; a head with a larger one gets smaller weights of queries and keys: 100; 0: any",
      {.other_names = {"qk_clip_threshold"}});
  key("optim.train_only", &optim.train_only, {.hint = "names with *, comma-separated"},
      "tensors to train, all others are frozen; model/layers/*/mlp/gate/weight[8:]: rows from 8 on; empty: train all",
      {.role = identity});
  key("optim.lora_rank", &optim.lora_rank, {.low = 0, .high = 65536},
      "rank r of adapters: only A and B of W + (lora_alpha / r)·B·A are trained; 0: no adapters",
      {.role = identity, .other_names = {"lora_r"}});
  key("optim.lora_alpha", &optim.lora_alpha, {.low = 0, .high = 1e6, .low_open = true},
      "scale of adapters, divided by their rank", {.role = identity, .other_names = {"lora_alpha"}});
  key("optim.lora_targets", &optim.lora_targets, {.hint = "names with *, comma-separated"},
      "matrices that have adapters: model/layers/*/self_attn/*_proj/weight; all other weights are frozen",
      {.role = identity, .other_names = {"target_modules"}});
  key("optim.router_penalty", &optim.router_penalty, loss_weight,
      "weight of a loss: the squared rows of the routers' matrices gate/weight", {.role = identity});
  key("optim.router_penalty_from", &optim.router_penalty_from, {.low = 0},
      "first expert whose row is penalised: the number of old experts if new ones were inserted", {.role = identity});
  key("optim.router_penalty_from_attention", &optim.router_penalty_from_attention, {.low = -1},
      "first penalised row in routers of attention; -1: optim.router_penalty_from", {.role = identity});
}

namespace {

/// Checks that adapters have matrices, and that nothing else is to be trained.
void check_adapters(Findings& findings, const OptimConfig& optim) {
  if (optim.lora_rank == 0) return;
  findings.unless(!optim.lora_targets.empty(),
                  "optim.lora_rank = {} without optim.lora_targets: name the matrices to adapt, for example "
                  "model/layers/*/self_attn/*_proj/weight",
                  optim.lora_rank);
  findings.unless(optim.train_only.empty(),
                  "optim.train_only with optim.lora_rank = {}: adapters freeze all weights of the model: unset one of "
                  "the two",
                  optim.lora_rank);
  findings.unless(optim.rule == UpdateRuleName::adamw,
                  "optim.rule = {} with optim.lora_rank = {}: AdamW updates adapters: set optim.rule = adamw",
                  name_of(optim.rule), optim.lora_rank);
}

/// Checks that scaling weights of queries and keys scales attention logits.
void check_qk_clip(Findings& findings, const Config& config) {
  const double limit = config.optim.qk_clip;
  const ModelConfig& model = config.model;
  if (!(limit > 0)) return;
  findings.unless(
      model.qk_norm == QkNormKind::none,
      "optim.qk_clip = {} has no effect with model.qk_norm = {}, which limits attention logits: set it to 0", limit,
      name_of(model.qk_norm));
  findings.unless(model.attention_weights == AttentionWeights::softmax,
                  "optim.qk_clip = {} with model.attention_weights = {}: it is for softmax, set it to 0", limit,
                  name_of(model.attention_weights));
  findings.unless(model.attention != AttentionKind::experts,
                  "optim.qk_clip = {} with model.attention = moa, whose experts share keys: set it to 0", limit);
  findings.unless(
      config.optim.lora_rank == 0,
      "optim.qk_clip = {} with optim.lora_rank = {}: adapters freeze queries and keys, set one of them to 0", limit,
      config.optim.lora_rank);
  findings.unless(config.optim.train_only.empty(),
                  "optim.qk_clip = {} with optim.train_only: it scales queries and keys together, set it to 0", limit);
}

}  // namespace

double adapter_scale(const OptimConfig& optim) { return optim.lora_alpha / static_cast<double>(optim.lora_rank); }

void remove_adapters(OptimConfig& optim) {
  optim.lora_rank = OptimConfig{}.lora_rank;
  optim.lora_alpha = OptimConfig{}.lora_alpha;
  optim.lora_targets.clear();
}

void check_optim(Findings& findings, const Config& config) {
  findings.unless(!(config.optim.min_lr > config.optim.lr), "optim.min_lr = {} is above optim.lr = {}",
                  config.optim.min_lr, config.optim.lr);
  findings.unless(config.optim.warmup_steps == 0 || !(config.optim.warmup_from > config.optim.lr),
                  "optim.warmup_from = {} is above optim.lr = {}", config.optim.warmup_from, config.optim.lr);
  check_router_penalty(findings, config);
  check_qk_clip(findings, config);
  check_adapters(findings, config.optim);
}

void simplify_optim(OptimConfig& optim) {
  if (optim.rule == UpdateRuleName::adamw) {
    optim.momentum = OptimConfig{}.momentum;
    optim.adamw_only.clear();
  }
  if (!(optim.skip_above > 0)) optim.skip_window = OptimConfig{}.skip_window;
  if (optim.lora_rank == 0) remove_adapters(optim);
  if (optim.schedule == LearningRateSchedule::constant) optim.min_lr = 0;
  if (optim.schedule != LearningRateSchedule::wsd) optim.decay_steps = 0;
  if (optim.warmup_steps == 0) optim.warmup_from = 0;
  if (optim.router_penalty_from_attention == optim.router_penalty_from) {
    optim.router_penalty_from_attention = OptimConfig{}.router_penalty_from_attention;
  }
}

}  // namespace lyceum
