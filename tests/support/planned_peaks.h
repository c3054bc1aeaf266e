#pragma once

#include <string>

#include "core/allocator.h"
#include "plan/mesh_plan.h"
#include "support/trajectory.h"

namespace lyceum {

/// Returns a configuration in which the kinds of memory have realistic proportions and padding does not dominate.
/// `hidden` must be a multiple of 32.
inline Config sizable_config(std::int64_t layers, std::int64_t hidden, std::int64_t experts) {
  Config config = tiny_config();
  config.model = {.layers = layers,
                  .hidden = hidden,
                  .heads = hidden / 16,
                  .kv_heads = hidden / 32,
                  .head_dim = 16,
                  .ffn_hidden = hidden * 5 / 2,
                  .vocab = hidden * 25 / 4,
                  .init_std = 0.02,
                  .first_dense_layers = 1};
  config.moe = {};
  config.moe.experts = config.moe.top_k = experts;  // balanced routing, as plans assume
  config.moe.shared_experts = 1;
  config.moe.expert_hidden = hidden;
  return config;
}

/// Compares the peaks of a training run with its plan. `kept`: bytes of buffers that existed before the first step.
inline void expect_planned(const RankMemory& planned, const MemoryUse& use, double kept, const std::string& what) {
  const auto peak = [&](MemoryKind kind) { return static_cast<double>(use.peak[static_cast<std::size_t>(kind)]); };
  EXPECT_EQ(planned.weights, peak(MemoryKind::weights)) << what;
  EXPECT_EQ(planned.gradients, peak(MemoryKind::gradients)) << what;
  EXPECT_EQ(planned.optimizer, peak(MemoryKind::optimizer)) << what;
  // Buffers that exist before a step. Scratch memory of kernels, including cuBLASLt's, is additional.
  EXPECT_EQ(planned.buffers, kept) << what;
  expect_close(planned.activations, peak(MemoryKind::activations), 0.1, what + ": activations");
  // Scratch memory of kernels is in no plan. It may or may not be allocated when the total reaches its peak.
  const double most = static_cast<double>(use.total_peak), scratch = peak(MemoryKind::buffers) - planned.buffers;
  EXPECT_GE(planned.total(), 0.9 * (most - scratch)) << what;
  // A plan adds the peaks of all kinds, which need not coincide. Also, a transfer that ends early frees its memory
  // early: with ZeRO 3, peaks of the same run differ by 0.7 %.
  EXPECT_LE(planned.total(), 1.12 * most) << what;
}

}  // namespace lyceum
