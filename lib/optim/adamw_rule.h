#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "kernels/adamw.h"
#include "optim/update_rule.h"

namespace lyceum {

/// AdamW's state tensors as they are called in checkpoints: optimizer/exp_avg/NAME, optimizer/exp_avg_sq/NAME.
inline constexpr std::array<std::string_view, AdamW::states> adamw_states{"exp_avg", "exp_avg_sq"};

/// Makes the rule for these shares, whose memory (and the span itself) must outlive it. `watched`: keep digests, see
/// UpdateRule::check_digests().
std::unique_ptr<UpdateRule> make_adamw(const OptimConfig& config, const Stream& stream,
                                       std::span<const UpdatedShare> shares, bool watched);

}  // namespace lyceum
