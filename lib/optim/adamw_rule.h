#pragma once

#include "optim/update_rule.h"

namespace lyceum {

/// AdamW [Loshchilov and Hutter 2019]; kernels/adamw.h has the formula. States: exp_avg and exp_avg_sq, the moments.
extern const UpdateRuleKind adamw_rule;

}  // namespace lyceum
