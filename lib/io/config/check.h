#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/config/config.h"

namespace lyceum {

/// The fewest ranks that a mesh of these groups has; any number that suits it is a multiple.
std::int64_t fewest_ranks(const ParallelConfig& parallel);

/// Hosts over which tokens go to their experts in two steps: those that the ranks of an expert group fill, with more
/// than one expert rank on each; 1 where there are none, or parallel.dispatch says straight.
int expert_hosts(const ParallelConfig& parallel);

/// Everything that makes this configuration impossible on `world` ranks, whatever the build; each names the keys, their
/// values and what to set. Files are not looked at. The same before and after `resolve`, but for advice: a derived
/// batch.micro then counts as a given one, which other numbers of ranks may not suit.
std::vector<std::string> contradictions(const Config& config, int world);
/// All of these, and a device that this build does not have.
std::vector<std::string> problems(const Config& config, int world);

/// Puts concrete values where 0 or "auto" stands for a derived one: kv_heads, head_dim, ffn_hidden, batch.micro,
/// balance.device_groups, moe.gates, attention_experts.gates, device. What does not divide stays 0: `problems` reports
/// it. Does nothing the second time.
void resolve(Config& config, int world);

/// Mistakes that one message lists in full; of more it says how many there are.
constexpr std::size_t most_told = 20;

/// Throws one usage Error that lists all of them, at most most_told in words; does nothing when there are none.
void require_none(std::span<const std::string> problems);

}  // namespace lyceum
