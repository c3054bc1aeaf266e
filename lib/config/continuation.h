#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "config/binding.h"
#include "config/config.h"
#include "config/feature.h"

namespace lyceum {

/// Returns the role of a key; `operation` if there is no such key.
KeyRole role_of(std::string_view key);

/// Returns a normal form of a configuration: keys without effect have their defaults, and equivalent notations are
/// replaced by one of them. So two configurations that train equally compare equal. `config` must be resolved.
Config effective(Config config);

/// A key whose difference has an effect.
struct Change : Difference {
  KeyRole role;
};
/// Returns the keys whose difference has an effect and whose role is not `operation`, in the order of the
/// configuration. Both configurations must be resolved. model.dropout is not included if both learn rates.
/// optim.schedule_steps is never included, because its 0 means the length in the checkpoint. The roles are those of
/// role_of(), except for
/// - model.dropout_kind: `tuning` unless it is `concrete` in one of the two, which has tensors for the rates;
/// - balance.device_groups: `reported` if groups_follow_mesh();
/// - parallel.placement: `reported` if it determines the groups of a balance loss, `identity` with moe.group_limit.
/// Stages after the first are not compared.
std::vector<Change> changes(const Config& before, const Config& now);

/// Returns the differences between two runs in their first `step` steps that changes(), applied to the stages of step
/// `step`, does not return. If the stages begin at different steps, these are the first steps of stages. Otherwise they
/// are the first step of the present learning-rate schedule, and the keys of earlier stages whose difference has an
/// effect: "stage.2.batch.global", or "batch.global" for stage 1. Both configurations must be resolved.
std::vector<Difference> changed_past(const Config& before, const Config& now, std::int64_t step);

}  // namespace lyceum
