#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Heads of queries, and of the keys and values that they share; how a query weighs these.
struct AttentionHeads {
  std::int64_t heads, kv_heads;
  std::int64_t head_dim;   // of queries and keys
  std::int64_t value_dim;  // of values and results; so far attention's kernels require head_dim
  AttentionWeights weights;

  /// Elements of a token.
  std::int64_t queries() const { return heads * head_dim; }
  std::int64_t keys() const { return kv_heads * head_dim; }
  std::int64_t values() const { return kv_heads * value_dim; }
  std::int64_t results() const { return heads * value_dim; }
};
AttentionHeads heads_of(const ModelConfig& config);
/// Returns this rank's share. Throws a usage Error if the heads do not divide.
AttentionHeads share_of(const AttentionHeads& heads, const ProcessGroup& tensor);

AttentionCosts costs_of(const AttentionHeads& heads);

/// A matrix [rows, hidden] whose rows are those of heads.
SublayerTensor projection_of(const ModelConfig& config, std::string name, std::int64_t rows, std::string stack = "");
/// The matrix [hidden, heads.results()] from results to hidden.
SublayerTensor output_of(const ModelConfig& config, const AttentionHeads& heads);

}  // namespace lyceum
