#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns everything that makes this configuration, or one of its stages, impossible on `world` ranks in any build.
/// Texts about a stage after the first begin with "stage 2: ". Each text names the keys and their values, and a remedy
/// if one is known. Reads no files. The configuration may be resolved or not. This changes only the remedies: those for
/// other numbers of ranks treat a derived batch.micro like one that was set. `first_stage`: stages before it are not
/// checked. Throws a failed Error if `world` is less than 1.
std::vector<std::string> contradictions(const Config& config, int world, int first_stage);
inline std::vector<std::string> contradictions(const Config& config, int world) {
  return contradictions(config, world, 1);
}
/// Returns contradictions(), and an entry if this build does not support the device.
std::vector<std::string> problems(const Config& config, int world, int first_stage);
inline std::vector<std::string> problems(const Config& config, int world) { return problems(config, world, 1); }

/// Replaces 0 and "auto" by derived values: kv_heads, head_dim, ffn_hidden, batch.micro of every stage,
/// balance.device_groups, moe.gates, attention_experts.gates and device. If a quotient has a remainder, the 0 stays,
/// and problems() reports it. A second call changes nothing.
void resolve(Config& config, int world);

/// Largest number of mistakes that one message lists. It states how many others there are.
constexpr std::size_t most_listed = 20;

/// Throws one usage Error that lists up to most_listed problems; does nothing if there are none.
void require_none(std::span<const std::string> problems);

}  // namespace lyceum
