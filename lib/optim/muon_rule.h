#pragma once

#include <memory>

#include "optim/update_rule.h"

namespace lyceum {

/// Makes Muon [Jordan 2024; Liu et al. 2025] for the matrices of blocks, and AdamW for all other weights, see
/// RuleAssignment. Collective over the ranks of a pipeline stage, as is UpdateRule::launch(), which
///   1. updates the momentum of this rank's shares, and puts U in the place of their gradients (kernels/muon.h),
///   2. sends the parts of each matrix to the rank that owns it, orthogonalises the matrices and sends the results back
///      (MuonExchange), for one group of units after the other,
///   3. updates all weights.
std::unique_ptr<UpdateRule> make_muon_rule(const UpdateRuleInput& input);

}  // namespace lyceum
