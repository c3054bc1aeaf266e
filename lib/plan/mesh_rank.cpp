#include "plan/mesh_rank.h"

#include <algorithm>

#include "config/check.h"
#include "model/working_type.h"

namespace lyceum {

MeshShape mesh_shape(const ParallelConfig& parallel) {
  return {.pipeline = parallel.pipeline,
          .tensor = parallel.tensor,
          .expert = parallel.expert,
          .expert_tensor = parallel.expert_tensor,
          .expert_hosts = expert_hosts(parallel)};
}

MeshRank MeshRank::of(const ParallelConfig& parallel, int world, int rank) {
  const MeshShape shape = mesh_shape(parallel);
  return {.shape = shape, .world = world, .index = shape.index_of(rank, world)};
}

int MeshRank::size(Axis axis) const {
  switch (axis) {
    case Axis::world: return world;
    case Axis::data: return shape.data(world);
    case Axis::tensor: return shape.tensor;
    case Axis::pipeline: return shape.pipeline;
    case Axis::data_tensor: return stage_ranks();
    case Axis::expert: return shape.expert;
    case Axis::expert_tensor: return shape.expert_tensor;
    case Axis::expert_data: return shape.expert_data(world);
    case Axis::expert_copies: return shape.expert_data(world) * shape.expert_tensor;
    case Axis::expert_across: return shape.expert_hosts;
    case Axis::expert_within: return shape.expert_hosts > 1 ? shape.expert / shape.expert_hosts : 1;
    case Axis::pipeline_ends: return std::min(shape.pipeline, 2);
  }
  return 1;
}

int MeshRank::stride(Axis axis) const {
  switch (axis) {
    case Axis::data: return shape.tensor;
    case Axis::pipeline: return stage_ranks();
    case Axis::expert:
    case Axis::expert_within: return shape.expert_tensor;
    case Axis::expert_across: return shape.expert / shape.expert_hosts * shape.expert_tensor;
    case Axis::expert_data: return shape.expert * shape.expert_tensor;
    case Axis::pipeline_ends: return (shape.pipeline - 1) * stage_ranks();
    default: return 1;
  }
}

int MeshRank::tensor_index_of_expert_peer(int e) const {
  const int within = (index.expert_data * shape.expert + e) * shape.expert_tensor + index.expert_tensor;
  return within % shape.tensor;
}

std::int64_t tokens_of_tensor_rank(const Config& config, int tensor) {
  return part_of(config.batch.micro * config.batch.seq_len, tensor, config.parallel.tensor).count;
}

TokenShare token_share(const Config& config, const MeshRank& mesh_rank) {
  const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
  const std::int64_t own = tokens_of_tensor_rank(config, mesh_rank.index.tensor);
  return {
      .sequences = config.batch.micro, .tokens = tokens, .own = own, .rows = config.parallel.sequence ? own : tokens};
}

double boundary_bytes(const Config& config, const MeshRank& mesh_rank) {
  return number(token_share(config, mesh_rank).rows * config.model.hidden * element_bytes(config));
}

double token_bytes(const Config& config) {
  return 2 * number(config.batch.micro * config.batch.seq_len) * sizeof(std::int32_t);
}

double document_bytes(const Config& config) {
  return config.data.document_mask || needs_span_starts(config) ? token_bytes(config) / 2 : 0;
}

std::int64_t element_bytes(const Config& config) {
  return static_cast<std::int64_t>(size_of(working_type(config.run)));
}

std::int64_t micro_batches(const Config& config, int world) {
  return config.batch.global / (mesh_shape(config.parallel).data(world) * config.batch.micro);
}

}  // namespace lyceum
