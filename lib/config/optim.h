#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/feature.h"

namespace lyceum {

/// The rule that updates matrices of blocks; AdamW updates all other weights, see optim/weight_rule.h.
enum class UpdateRuleName { adamw, muon };
constexpr auto names_of(UpdateRuleName) { return std::array{"adamw", "muon"}; }

/// The type of the states that an update keeps for each weight: AdamW's moments and Muon's momentum.
enum class MomentType { f32, bf16 };
constexpr auto names_of(MomentType) { return std::array{"f32", "bf16"}; }

/// The schedule of the learning rate after the warm-up, see learning_rate() in train/step/schedule.h.
enum class LearningRateSchedule { step, cosine, wsd, constant };
constexpr auto names_of(LearningRateSchedule) { return std::array{"step", "cosine", "wsd", "constant"}; }

/// [optim]: the update of the weights, and the learning rate of each step.
struct OptimConfig {
  UpdateRuleName rule = UpdateRuleName::adamw;
  double lr = 1e-3, min_lr = 0;  // the largest, and the final one of cosine and wsd
  LearningRateSchedule schedule = LearningRateSchedule::step;
  std::int64_t schedule_steps = 0;  // length of the schedule in steps; 0: the checkpoint's, else run.steps
  std::int64_t warmup_steps = 0;
  double warmup_from = 0;        // learning rate of the first step of the warm-up; 0: lr / warmup_steps
  std::int64_t decay_steps = 0;  // number of decay steps at the end of wsd; 0: a tenth of the schedule
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip_norm = 1.0;
  double skip_above = 0;           // standard deviations above the mean, see train/step/recent_steps.h; 0: none skipped
  std::int64_t skip_window = 128;  // steps over which the mean is taken
  double momentum = 0.95;          // of Muon
  MomentType moments = MomentType::f32;             // bf16: with stochastic rounding
  double qk_clip = 0;                               // largest attention logit, see QkClipFactors; 0: any
  double ema = 0;                                   // decay of the moving average of the weights; 0: there is none
  std::vector<std::string> adamw_only = {};         // with rule = muon: patterns of further tensors that AdamW updates
  std::vector<std::string> train_only = {};         // patterns of names, see TensorPattern; empty: all
  std::int64_t lora_rank = 0;                       // rank r of the adapters B·A [Hu et al. 2021]; 0: there are none
  double lora_alpha = 8;                            // α: a matrix W becomes W + (α/r)·B·A
  std::vector<std::string> lora_targets = {};       // patterns of the matrices that have adapters
  double router_penalty = 0;                        // λ of λ‖A‖² for rows A of routers' matrices
  std::int64_t router_penalty_from = 0;             // first expert whose row is penalised
  std::int64_t router_penalty_from_attention = -1;  // first row in routers of attention; −1: router_penalty_from
};

/// Returns the factor of B·A in an adapted matrix, α/r. optim.lora_rank must not be 0.
double adapter_scale(const OptimConfig& optim);
/// Resets the keys of adapters, optim.lora_*.
void remove_adapters(OptimConfig& optim);

void declare_keys(ConfigKeys& keys, OptimConfig& optim);
void check_optim(Findings& findings, const Config& config);
void simplify_optim(OptimConfig& optim);

}  // namespace lyceum
