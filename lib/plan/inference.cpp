#include <algorithm>
#include <span>

#include "plan/rank_load.h"

namespace lyceum {

namespace {

/// At most what a pass through `blocks` needs at a time: an operation's inputs last until their block is done.
double pass_activations(const Config& config, const Place& place, const Range& blocks, Reading reading) {
  const double row = row_activations(config, place);
  double most = 0;
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    most = std::max(most, block_activations(config, place, layer).kept);
  }
  // The head of generated text sees one row.
  if (blocks.end() == config.model.layers && reading == Reading::evaluate) {
    const ActivationNeed head = head_activations(config, place);
    most = std::max(most, head.kept + head.forward);
  }
  return most + 2 * row + token_bytes(config);
}

RankPlan plan_reading_rank(const Config& config, const Place& place, std::span<const Range> blocks, Reading reading) {
  RankPlan plan;
  RankMemory& memory = plan.memory;
  const double element = number(element_bytes(config)), tokens = number(config.batch.seq_len);
  const double keys = number(config.model.kv_heads / place.size(Axis::tensor) * config.model.head_dim);
  for (int stage = place.index.pipeline; stage < std::ssize(blocks); stage += config.parallel.pipeline) {
    const Range& own = blocks[static_cast<std::size_t>(stage)];
    plan.stages.push_back(own);
    for (const PlannedUnit& unit : planned_units(config, place, own)) {
      memory.weights += number(unit.size * value_bytes(config, unit));
    }
    memory.activations = std::max(memory.activations, pass_activations(config, place, own, reading));
    memory.buffers += stage_buffers(config, own);
    if (reading == Reading::generate) memory.buffers += 2 * tokens * keys * number(own.count) * element;
  }
  const int waiting = evaluated_at_once(config.parallel.pipeline) - 1;
  memory.activations += waiting * row_activations(config, place);
  return plan;
}

}  // namespace

MeshPlan plan_inference(const Config& config, int world, Reading reading) {
  const std::vector<Range> blocks = stage_blocks(config, config.parallel.pipeline * config.parallel.virtual_stages);
  Config one_pass = config;
  one_pass.model.recompute = "none";
  if (reading == Reading::generate) one_pass.batch.micro = 1;
  MeshPlan plan{.config = config, .world = world, .ranks = {}, .costs = {}, .timeline = {}, .time = {}};
  for (int row = 0; row < config.parallel.pipeline; ++row) {
    std::vector<RankPlan> ranks;
    for (const int rank : unlike_ranks(config, world, row)) {
      const Place place = Place::of(config.parallel, world, rank);
      ranks.push_back(plan_reading_rank(one_pass, place, blocks, reading));
      ranks.back().rank = rank;
    }
    plan.ranks.push_back(*std::ranges::max_element(ranks, {}, [](const RankPlan& one) { return one.memory.total(); }));
  }
  return plan;
}

}  // namespace lyceum
