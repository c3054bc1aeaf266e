#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "autograd/parameter.h"
#include "config/config.h"
#include "kernels/head_scaling.h"
#include "model/sublayer_spec.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Numbers and widths of attention heads, and the way in which queries weigh keys.
struct AttentionHeads {
  std::int64_t heads, kv_heads;
  std::int64_t head_dim;   // width of a head of queries or keys
  std::int64_t value_dim;  // width of a head of values or results
  AttentionWeights weights;
  std::int64_t rotary_columns = 0;  // first columns of a head of queries or keys that rotary positions rotate; 0: none
  RopeLayout rope_layout = RopeLayout::half;
  std::int64_t window;  // tokens that a query sees at most, see AttentionShape; 0: all

  /// Elements per token of queries, keys, values and results.
  std::int64_t queries() const { return heads * head_dim; }
  std::int64_t keys() const { return kv_heads * head_dim; }
  std::int64_t values() const { return kv_heads * value_dim; }
  std::int64_t results() const { return heads * value_dim; }
};
/// Returns the heads of block `layer` on all ranks. For attention experts, these are the heads of one expert.
AttentionHeads heads_of(const ModelConfig& config, std::int64_t layer);
/// Returns this rank's share of the heads. Throws a usage Error if they cannot be divided among the ranks of `tensor`.
AttentionHeads share_of(const AttentionHeads& heads, const ProcessGroup& tensor);

/// The rows of a projection that QK-clip scales with the factor of one key head, see HeadScaling.
struct HeadRows {
  std::int64_t rows;
  std::int64_t split;  // the first rows, which QK-clip multiplies by √γ
  HeadScaling::Rest rest = HeadScaling::Rest::unchanged;
};
/// Declares that QK-clip scales the rows of parameter.slices[slice], a weight or a bias, by appending to
/// Parameter::heads. The rows are those of this rank's key heads in order, head.rows rows each. `first_head`: index of
/// the first of these heads in QkClipFactors::factors, which is the number of the block times the number of key heads
/// of a rank.
void scale_heads(Parameter& parameter, std::size_t slice, std::int64_t first_head, const HeadRows& head);
/// Calls scale_heads() for the query and key rows of a projection or bias that stacks q, k and v. `own`: the heads of
/// this rank.
void scale_query_and_key_heads(Parameter& qkv, std::int64_t layer, const AttentionHeads& own);

/// Returns the costs of attention with these heads.
AttentionCosts costs_of(const AttentionHeads& heads);

/// Returns the declaration of a projection [rows, hidden] whose rows belong to heads and are divided among tensor
/// ranks. `stack`: see SublayerTensor::stack.
SublayerTensor projection_of(const ModelConfig& config, std::string name, std::int64_t rows, std::string stack = "");
/// Returns the declaration of the output projection [hidden, heads.results()], whose columns are divided among tensor
/// ranks.
SublayerTensor output_of(const ModelConfig& config, const AttentionHeads& heads);

}  // namespace lyceum
