#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace lyceum {

/// Returns everything that makes this configuration impossible on `world` ranks, whatever the build; each text names
/// the keys, their values and what to set. Files are not read. The same before and after `resolve`, but for advice: a
/// derived batch.micro then counts as a given one, which other numbers of ranks may not suit.
std::vector<std::string> contradictions(const Config& config, int world);
/// Returns all of these, and a device that this build does not have.
std::vector<std::string> problems(const Config& config, int world);

/// Replaces 0 and "auto" by the values that they stand for: kv_heads, head_dim, ffn_hidden, batch.micro,
/// balance.device_groups, moe.gates, attention_experts.gates, device. A quotient with a remainder stays 0, and
/// `problems` reports it. Does nothing the second time.
void resolve(Config& config, int world);

/// Most mistakes that one message lists in full; of more it gives the number.
constexpr std::size_t most_told = 20;

/// Throws one usage Error that lists all problems, at most most_told in words; does nothing if there are none.
void require_none(std::span<const std::string> problems);

}  // namespace lyceum
