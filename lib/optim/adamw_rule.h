#pragma once

#include <memory>

#include "optim/update_rule.h"

namespace lyceum {

/// Makes AdamW [Loshchilov and Hutter 2019] for all weights; kernels/adamw.h has the formula.
std::unique_ptr<UpdateRule> make_adamw_rule(const UpdateRuleInput& input);

}  // namespace lyceum
