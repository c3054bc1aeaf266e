#include <algorithm>
#include <span>

#include "plan/nccl_memory.h"
#include "plan/process_memory.h"
#include "plan/rank_load.h"

namespace lyceum {

namespace {

/// Returns the parts of a stage in forward order.
std::vector<const ModelPart*> parts_of_stage(const Config& config, const MeshRank& mesh_rank, const Range& blocks,
                                             ModelParts& parts) {
  std::vector<const ModelPart*> all;
  if (blocks.first == 0) all.push_back(&parts.input(config, mesh_rank));
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    all.push_back(&parts.block(config, mesh_rank, layer));
  }
  if (blocks.end() == config.model.layers) all.push_back(&parts.output(config, mesh_rank));
  return all;
}

RankPlan plan_reading_rank(const Config& config, const MeshRank& mesh_rank, std::span<const Range> blocks,
                           Reading reading, ModelParts& parts) {
  RankPlan plan;
  RankMemory& memory = plan.memory;
  for (int stage = mesh_rank.index.pipeline; stage < std::ssize(blocks); stage += config.parallel.pipeline) {
    const Range& own = blocks[static_cast<std::size_t>(stage)];
    plan.stages.push_back(own);
    // Maximum of the parts, since the inputs of an operation are freed at the end of its part at the latest.
    double pass = 0;
    const std::vector<const ModelPart*> stage_parts = parts_of_stage(config, mesh_rank, own, parts);
    for (const ModelPart* part : stage_parts) {
      plan.passes += part->traffic.forward;
      for (const PlannedUnit& unit : part->units) {
        if (!unit.twin || own.first > 0) memory.weights += number(unit.size * value_bytes(config, unit));
      }
      const bool head = own.end() == config.model.layers && part == stage_parts.back();
      // In generation the head reads only one row.
      if (!head || reading == Reading::evaluate)
        pass = std::max(pass, part->activations.saved + part->activations.forward);
      memory.buffers += part->buffers;
    }
    pass += 2 * boundary_bytes(config, mesh_rank) + token_bytes(config);
    if (reading == Reading::evaluate) pass += document_bytes(config);
    memory.activations = std::max(memory.activations, pass);
    memory.buffers += rope_bytes(config);
    if (reading == Reading::generate) memory.buffers += cache_bytes(config, mesh_rank, own);
  }
  const int waiting = micro_batches_in_flight(config.parallel.pipeline) - 1;
  memory.activations += waiting * boundary_bytes(config, mesh_rank);
  return plan;
}

}  // namespace

MeshPlan plan_inference(const Config& config, int world, Reading reading) {
  Config one_pass = config;
  one_pass.mtp = {};
  const std::vector<Range> blocks = stage_blocks(one_pass, config.parallel.pipeline * config.parallel.virtual_stages);
  one_pass.model.recompute = Recompute::none;
  if (reading == Reading::generate) one_pass.batch.micro = 1;
  MeshPlan plan{
      .config = config, .world = world, .reading = reading, .ranks = {}, .costs = {}, .timeline = {}, .time = {}};
  ModelParts parts;
  for (int row = 0; row < config.parallel.pipeline; ++row) {
    std::vector<RankPlan> ranks;
    for (const int rank : candidate_worst_ranks(config, world, row)) {
      const MeshRank mesh_rank = MeshRank::of(config.parallel, world, rank);
      ranks.push_back(plan_reading_rank(one_pass, mesh_rank, blocks, reading, parts));
      ranks.back().rank = rank;
      RankMemory& memory = ranks.back().memory;
      if (config.parallel.nccl_channels > 0 && sends_by_nccl(config, false)) {
        const std::vector<RunGroup> groups = groups_of_rank(config, world, ranks.back(), true);
        memory.nccl = nccl_bytes(
            nccl_communicators(config, mesh_rank, ranks.back(), groups, config.parallel.nccl_channels, true));
      }
      memory.process = process_bytes(config, world, memory, true);
    }
    plan.ranks.push_back(
        *std::ranges::max_element(ranks, {}, [](const RankPlan& one) { return one.memory.resident(); }));
  }
  return plan;
}

}  // namespace lyceum
