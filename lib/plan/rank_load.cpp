#include "plan/rank_load.h"

#include <algorithm>
#include <optional>

#include "model/counts.h"
#include "model/mixture.h"
#include "model/router.h"

namespace lyceum {

namespace {

/// Of FLOPs of a sequence, those of a tensor rank for a micro-batch.
double tensor_share(const Config& config, const Place& place) {
  return number(config.batch.micro) / place.size(Axis::tensor);
}

/// Tensor ranks share out a block, the ranks of a stage its routed experts.
StageFlops block_share(const Config& config, const Place& place, std::int64_t layer) {
  const double share = tensor_share(config, place);
  double own = block_flops(config, layer) * share;
  if (const std::optional<Mixture> experts = routed_experts(config, layer)) {
    const double routed = 2 * number(count_block(config, layer).routed.activated) * number(config.batch.seq_len);
    own += routed * (routed_share(config, *experts, place) - share);
  }
  return {.forward = own, .again = config.model.recompute == "full" ? own : recomputed_flops(config, layer) * share};
}

}  // namespace

const BlockKind& BlockKinds::of(const Config& config, const Place& place, std::int64_t layer) {
  std::optional<BlockKind>& kind = kinds_[is_sparse(config, layer) ? 1 : 0];
  if (!kind) {
    kind = {.traffic = block_traffic(config, place, layer),
            .activations = block_activations(config, place, layer),
            .flops = block_share(config, place, layer)};
  }
  return *kind;
}

namespace {

StageLoad stage_load(const Config& config, const Place& place, const Range& blocks, BlockKinds& kinds) {
  StageLoad load;
  for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
    const BlockKind& kind = kinds.of(config, place, layer);
    const ActivationNeed& need = kind.activations;
    load.traffic.forward += kind.traffic.forward;
    load.traffic.backward += kind.traffic.backward;
    load.kept.until_input_gradient += need.kept;
    load.kept.until_weight_gradient += need.kept_for_weights;
    load.backward = std::max(load.backward, need.backward);
    load.backward_input = std::max(load.backward_input + need.kept_for_weights - need.kept, need.backward);
    load.flops.forward += kind.flops.forward;
    load.flops.again += kind.flops.again;
  }
  const auto add = [&](const PassTraffic& traffic) {
    load.traffic.forward += traffic.forward;
    load.traffic.backward += traffic.backward;
  };
  if (blocks.first == 0) add(embedding_traffic(config, place));
  if (blocks.end() == config.model.layers) {
    add(head_traffic(config, place));
    load.head = head_activations(config, place);
    load.kept.until_input_gradient += load.head.kept;
    load.kept.until_weight_gradient += load.head.kept_for_weights;
    const double share = tensor_share(config, place), again = recomputed_head_flops(config) * share;
    load.flops.forward += head_flops(config) * share;
    load.flops.again += again;
    load.flops.early += again;
  }
  return load;
}

/// The layers that a rank's program uses, in its order.
std::vector<LayerUse> layer_uses(const PlanInput& input, int row) {
  const Config& config = input.config;
  const int output = static_cast<int>(config.model.layers) + 1;
  std::vector<LayerUse> uses;
  for (const Action& action : input.schedule.programs[static_cast<std::size_t>(row)]) {
    if (!action.computes() || action.kind == Action::Kind::backward_weight) continue;
    const Range& blocks = input.blocks[static_cast<std::size_t>(action.stage)];
    const bool backward = action.kind != Action::Kind::forward;
    std::vector<LayerUse> pass;
    if (blocks.first == 0) pass.push_back({0, backward});
    for (std::int64_t layer = blocks.first; layer < blocks.end(); ++layer) {
      pass.push_back({static_cast<int>(layer) + 1, backward});
    }
    if (blocks.end() == config.model.layers) {
      pass.push_back({output, backward});
      if (config.model.tie_embeddings && blocks.first == 0) pass.push_back({0, backward});
    }
    if (backward) std::reverse(pass.begin(), pass.end());
    uses.insert(uses.end(), pass.begin(), pass.end());
  }
  return uses;
}

/// The most that a rank's program keeps and works with at any time.
double peak_of_passes(const PlanInput& input, const Place& place, const RankLoad& rank) {
  double now = 0, most = 0;
  for (const Action& action : input.schedule.programs[static_cast<std::size_t>(place.index.pipeline)]) {
    const StageLoad& load = rank.loads[static_cast<std::size_t>(input.schedule.shape.chunk_of(action.stage))];
    const auto [kept, kept_for_weights] = load.kept;
    const ActivationNeed& head = load.head;
    if (action.kind == Action::Kind::forward) {
      now += kept;
      most = std::max(most, now + head.forward);
    } else if (action.gives_input_gradient()) {  // the head's first, then the blocks'
      const bool put_off = action.kind == Action::Kind::backward_input;
      const double left = put_off ? head.kept_for_weights + load.backward_input : load.backward;
      most = std::max({most, now + head.backward, now - head.kept + left});
    }
    most = std::max(most, now);
    if (action.gives_input_gradient()) now -= kept;
    if (action.kind == Action::Kind::backward_input) now += kept_for_weights;
    if (action.kind == Action::Kind::backward_weight) now -= kept_for_weights;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

std::vector<int> unlike_ranks(const Config& config, int world, int row) {
  const int first = row * (world / config.parallel.pipeline);
  std::vector<int> ranks{first};
  const std::optional<Mixture> experts = routed_experts(config, config.model.layers - 1);  // like all others
  if (!experts) return ranks;
  const bool alike = std::ranges::adjacent_find(experts->widths, std::ranges::not_equal_to()) == experts->widths.end();
  const bool first_has_most =
      config.parallel.placement == "contiguous" || experts->choices() % config.parallel.expert == 0;
  if (alike && first_has_most) return ranks;
  for (int e = 1; e < config.parallel.expert; ++e) ranks.push_back(first + e * config.parallel.expert_tensor);
  return ranks;
}

RankLoad rank_load(const PlanInput& input, const Place& place, BlockKinds& kinds) {
  RankLoad rank;
  for (int stage = place.index.pipeline; stage < std::ssize(input.blocks); stage += place.shape.pipeline) {
    rank.stages.push_back(stage);
    rank.loads.push_back(stage_load(input.config, place, input.blocks[static_cast<std::size_t>(stage)], kinds));
  }
  return rank;
}

RankPlan plan_place(const PlanInput& input, const Place& place, int rank, const RankLoad& load) {
  const Config& config = input.config;
  RankPlan plan{.rank = rank, .stages = {}, .memory = {}, .passes = {}, .step = {}};
  std::vector<PlannedUnit> units;
  const double passes = number(micro_batches(config, input.world)), boundary = boundary_bytes(config, place);
  const int row = place.index.pipeline, last = static_cast<int>(input.blocks.size()) - 1;
  for (std::size_t s = 0; s < load.stages.size(); ++s) {
    const int stage = load.stages[s];
    const Range& blocks = input.blocks[static_cast<std::size_t>(stage)];
    plan.stages.push_back(blocks);
    const std::vector<PlannedUnit> own = planned_units(config, place, blocks);
    units.insert(units.end(), own.begin(), own.end());
    plan.passes += (load.loads[s].traffic.forward + load.loads[s].traffic.backward).times(passes);
    const double ways = (stage < last ? 1 : 0) + (stage > 0 ? 1 : 0);
    plan.passes.add(place, Axis::pipeline, Transfer::send, ways * passes * boundary, ways * passes);
  }
  ZeroStates played;
  if (config.parallel.zero >= 2) {
    const bool tied_here = config.model.tie_embeddings && place.shape.pipeline == 1;
    played = play_zero(shared_layers(config, place, units), layer_uses(input, row), tied_here ? 0 : -1);
    for (auto& [layer, gathers] : played.gathers) gathers *= passes / input.schedule.shape.microbatches;
  }
  plan.memory = state_memory(config, place, units, played);
  for (const Range& blocks : plan.stages) plan.memory.buffers += stage_buffers(config, blocks);
  const bool reads =
      std::ranges::any_of(plan.stages, [&](const Range& blocks) { return reads_tokens(config, blocks); });
  if (reads) plan.memory.buffers += passes * token_bytes(config);
  plan.memory.buffers += update_buffers(config, units);
  plan.memory.activations = peak_of_passes(input, place, load);
  if (config.parallel.schedule == "gpipe") {  // keeps every micro-batch, also those that its program here leaves out
    plan.memory.activations +=
        (passes - input.schedule.shape.microbatches) * load.loads.front().kept.until_input_gradient;
  }
  plan.step = step_traffic(config, place, units, played);
  return plan;
}

const std::vector<Range>& StageCuts::of(const Config& config) {
  const int stages = config.parallel.pipeline * config.parallel.virtual_stages;
  const auto [place, fresh] = cuts_.try_emplace({stages, config.model.recompute, recomputed_head_flops(config) > 0});
  if (fresh) place->second = stage_blocks(config, stages);
  return place->second;
}

bool step_is_short(const Config& config, int world) {
  constexpr std::int64_t most = 4'000'000;
  return micro_batches(config, world) <= most / (config.parallel.pipeline * config.parallel.virtual_stages);
}

PlanInput plan_input(const Config& config, int world, std::int64_t most, StageCuts* cuts) {
  const std::int64_t all = micro_batches(config, world);
  const PipelineShape shape{.ranks = config.parallel.pipeline,
                            .virtual_stages = config.parallel.virtual_stages,
                            .microbatches = static_cast<int>(most > 0 ? std::min(all, most) : all)};
  require_usage(step_is_short(config, world),
                "a step of {} micro-batches through {} stages: raise batch.micro or lower batch.global", all,
                shape.stages());
  return {.config = config,
          .world = world,
          .blocks = cuts ? cuts->of(config) : stage_blocks(config, shape.stages()),
          .schedule = make_schedule(config.parallel.schedule, shape)};
}

RankPlan plan_rank(const PlanInput& input, int rank) {
  const Place place = Place::of(input.config.parallel, input.world, rank);
  BlockKinds kinds;
  return plan_place(input, place, rank, rank_load(input, place, kinds));
}

}  // namespace lyceum
