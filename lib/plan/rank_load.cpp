#include "plan/rank_load.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "model/counts.h"
#include "model/routing/expert_placements.h"
#include "model/routing/mixture.h"
#include "model/routing/running_loads.h"
#include "parallel/data/copies.h"
#include "parallel/data/flat_range.h"
#include "plan/muon_plan.h"

namespace lyceum {

namespace {

/// Returns the FLOPs of the rank in block `layer` for one micro-batch, minus the share that it would have if tensor
/// ranks divided routed experts, too. `flops`: expert_flops() of the block.
double routed_excess(const Config& config, const MeshRank& mesh_rank, std::int64_t layer, const ExpertFlops& flops) {
  return flops.all() > 0 ? flops.all() - block_flops(config, layer) * tensor_share(config, mesh_rank) : 0;
}

/// Sets the rank's share of the FLOPs of block `layer`. `load`: as for expert_flops().
void set_flops(const Config& config, const MeshRank& mesh_rank, std::int64_t layer, const LayerLoad* load,
               BlockKind& kind) {
  const double share = tensor_share(config, mesh_rank);
  kind.experts = expert_flops(config, mesh_rank, layer, load);
  const double own = block_flops(config, layer) * share + routed_excess(config, mesh_rank, layer, kind.experts);
  kind.flops = {
      .forward = own,
      .recomputed = config.model.recompute == Recompute::full ? own : recomputed_flops(config, layer) * share};
}

/// Returns the load of the experts of a layer; null if the plan has none.
const LayerLoad* load_of(const PlanInput& input, std::int64_t layer) {
  return input.load ? input.load->of_layer(layer) : nullptr;
}

/// Sets the rank's share of the FLOPs of the output: final norm, head and modules of multi-token prediction.
void set_output_flops(const PlanInput& input, const MeshRank& mesh_rank, StageLoad& load) {
  const Config& config = input.config;
  const double share = tensor_share(config, mesh_rank);
  double excess = 0;
  for (std::int64_t layer = config.model.layers; layer < all_blocks(config); ++layer) {
    const ExpertFlops one = expert_flops(config, mesh_rank, layer, load_of(input, layer));
    load.experts += one;
    excess += routed_excess(config, mesh_rank, layer, one);
  }
  const StageFlops all = output_flops(config);
  load.flops = {.forward = all.forward * share + excess,
                .recomputed = all.recomputed * share + (config.model.recompute == Recompute::full ? excess : 0),
                .early_weights = all.early_weights * share};
}

}  // namespace

const BlockKind& BlockKinds::of(const Config& config, const MeshRank& mesh_rank, std::int64_t layer,
                                const LayerLoad* load, ModelParts& parts) {
  const ModelPart* const part = &parts.block(config, mesh_rank, layer);
  const auto [kind, fresh] = kinds_.try_emplace({part, window_of(config.model, layer), load},
                                                BlockKind{.part = part, .flops = {}, .experts = {}});
  if (fresh) set_flops(config, mesh_rank, layer, load, kind->second);
  return kind->second;
}

namespace {

/// Concatenates the turns of two consecutive passes. The last turn of the first continues as the first turn of the
/// second.
std::vector<TurnNeed> joined(std::vector<TurnNeed> first, std::span<const TurnNeed> second) {
  const double level = first.empty() ? 0 : first.back().at_end;
  for (std::size_t t = 0; t < second.size(); ++t) {
    TurnNeed turn{.most = level + second[t].most, .at_end = level + second[t].at_end};
    if (t == 0 && !first.empty()) {
      turn.most = std::max(turn.most, first.back().most);
      first.back() = turn;
    } else {
      first.push_back(turn);
    }
  }
  return first;
}

/// Adds the activations of the next part in backward order. At that time the parts after it have been freed, or hold
/// only the operands of their delayed weight gradients.
void add_activations(StageLoad& load, const ActivationNeed& need) {
  SavedActivations& saved = load.saved;
  load.forward = std::max(load.forward, need.forward - saved.until_input_gradient);
  load.backward = std::max(load.backward, need.backward - saved.until_input_gradient);
  load.backward_input =
      std::max(load.backward_input, need.backward_input - saved.until_input_gradient + saved.until_weight_gradient);
  load.backward_weight = std::max(load.backward_weight, need.backward_weight - saved.until_weight_gradient);
  saved.until_input_gradient += need.saved;
  saved.until_weight_gradient += need.saved_for_weights;
  load.forward_turns = joined(need.forward_turns, load.forward_turns);
  load.backward_turns = joined(std::move(load.backward_turns), need.backward_turns);
}

/// Returns the traffic of the ranks to which the most rows travel. `own`: with an even load. An exchange takes until
/// these ranks have all their rows, and what they have they send back and gather on the ranks that share the width of
/// their experts.
Traffic awaited_traffic(Traffic own, const RowGrowth& rows) {
  for (const Axis axis : {Axis::expert, Axis::expert_within, Axis::expert_tensor}) own.scale(axis, rows.rank);
  own.scale(Axis::expert_across, rows.host);
  return own;
}

/// Returns the mean growth of the rows of the modules of multi-token prediction, which are parts of the output.
RowGrowth rows_of_modules(const PlanInput& input) {
  RowGrowth mean{.rank = 0, .host = 0};
  for (std::int64_t layer = input.config.model.layers; layer < all_blocks(input.config); ++layer) {
    const LayerLoad* const own = load_of(input, layer);
    mean.rank += (own ? own->rows.rank : 1) / number(input.config.mtp.depth);
    mean.host += (own ? own->rows.host : 1) / number(input.config.mtp.depth);
  }
  return mean;
}

StageLoad stage_load(const PlanInput& input, const MeshRank& mesh_rank, const Range& blocks, BlockKinds& kinds,
                     ModelParts& parts) {
  const Config& config = input.config;
  StageLoad load;
  const auto add = [&](const ModelPart& part, std::int64_t layer, const RowGrowth& rows = {}) {
    load.traffic += part.traffic;
    load.awaited += {awaited_traffic(part.traffic.forward, rows), awaited_traffic(part.traffic.backward, rows)};
    load.update += part.update;
    load.buffers += part.buffers;
    add_activations(load, part.activations);
    for (PlannedUnit unit : part.units) {
      if (unit.twin && blocks.first == 0) continue;  // the table of the input, which is already counted
      unit.layer = static_cast<int>(layer);
      if (unit.role != ParameterUnit::Role::buffer) {
        unit.size = padded_for_ranks(unit.size, mesh_rank.size(copies_axis(unit.group)));
      }
      load.units.push_back(unit);
    }
  };
  const std::int64_t output = config.model.layers + 1;
  if (blocks.end() == config.model.layers) {
    add(parts.output(config, mesh_rank), output, config.mtp.depth > 0 ? rows_of_modules(input) : RowGrowth{});
    set_output_flops(input, mesh_rank, load);
  }
  for (std::int64_t layer = blocks.end() - 1; layer >= blocks.first; --layer) {
    const LayerLoad* const experts = load_of(input, layer);
    const BlockKind& kind = kinds.of(config, mesh_rank, layer, experts, parts);
    add(*kind.part, layer + 1, experts ? experts->rows : RowGrowth{});
    load.flops.forward += kind.flops.forward;
    load.flops.recomputed += kind.flops.recomputed;
    load.experts += kind.experts;
  }
  if (blocks.first == 0) {
    add(parts.input(config, mesh_rank), 0);
  } else {
    load.saved.until_weight_gradient += boundary_bytes(config, mesh_rank);  // the gradient of its input is kept as long
  }
  return load;
}

/// Appends the layers that a pass uses after the blocks, in forward order. `first`: the stage also has the input, whose
/// table is layer 0.
void add_output_uses(const Config& config, bool first, bool backward, std::vector<LayerUse>& pass) {
  const int output = static_cast<int>(config.model.layers) + 1;
  const LayerUse own{output, backward}, table{0, backward};
  const bool again = backward && config.model.recompute == Recompute::full;
  const auto add_head = [&] {
    pass.push_back(own);
    if (config.model.tie_embeddings && first) pass.push_back(table);
  };
  add_head();
  for (std::int64_t module = 0; module < config.mtp.depth; ++module) {
    // The table embeds the shifted tokens before the block runs.
    for (int time = 0; first && time < (again ? 2 : 1); ++time) {
      pass.push_back(table);
      pass.push_back(own);
    }
    add_head();
  }
}

/// Returns the layers that the program of a row uses, in order.
std::vector<LayerUse> layer_uses(const PlanInput& input, int row) {
  const Config& config = input.config;
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
    if (blocks.end() == config.model.layers) add_output_uses(config, blocks.first == 0, backward, pass);
    if (backward) std::reverse(pass.begin(), pass.end());
    uses.insert(uses.end(), pass.begin(), pass.end());
  }
  return uses;
}

/// Returns the maximum memory of a backward pass and a forward pass that take turns, on top of what was in use before
/// both.
double most_by_turns(const StageLoad& load) {
  double most = 0, backward = 0, forward = 0;
  for (std::size_t t = 0; t < std::max(load.backward_turns.size(), load.forward_turns.size()); ++t) {
    if (t < load.backward_turns.size()) {
      most = std::max(most, load.backward_turns[t].most + forward);
      backward = load.backward_turns[t].at_end;
    }
    if (t < load.forward_turns.size()) {
      most = std::max(most, load.forward_turns[t].most + backward);
      forward = load.forward_turns[t].at_end;
    }
  }
  return most;
}

/// Returns the bytes of messages between stages that a rank holds while it runs action `i` of its program, without the
/// input and the result of that action: the input of the next action, which is being received, and the result of the
/// previous one, which is being sent (PipelineExecutor). The saved memory of a pass that delays weight gradients
/// already includes its result. Forward passes may run ahead of the next stage, above all with gpipe; the results that
/// then wait to be sent are not counted.
double message_bytes(const PlanInput& input, const MeshRank& mesh_rank, std::size_t i) {
  const PipelineShape& shape = input.schedule.shape;
  const Program& program = input.schedule.programs[static_cast<std::size_t>(mesh_rank.index.pipeline)];
  const auto moves = [&](const std::optional<Handover>& handover) {
    return handover && crosses_ranks(*handover, shape);
  };
  double bytes = 0;
  if (i + 1 < program.size() && moves(needed_by(program[i + 1], shape)))
    bytes += boundary_bytes(input.config, mesh_rank);
  const bool kept = i > 0 && program[i - 1].kind == Action::Kind::backward_input;
  if (i > 0 && !kept && moves(made_by(program[i - 1], shape))) bytes += boundary_bytes(input.config, mesh_rank);
  return bytes;
}

/// Returns the maximum activations of a rank's program at any time.
double peak_of_passes(const PlanInput& input, const MeshRank& mesh_rank, const RankLoad& rank) {
  const bool by_turns = overlaps_batches(input.config.parallel) && input.schedule.shape.microbatches > 1;
  double kept = 0, most = 0;
  const Program& program = input.schedule.programs[static_cast<std::size_t>(mesh_rank.index.pipeline)];
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& action = program[i];
    const StageLoad& load = rank.loads[static_cast<std::size_t>(input.schedule.shape.chunk_of(action.stage))];
    const auto [saved, saved_for_weights] = load.saved;
    const bool delays_weights = action.kind == Action::Kind::backward_input;
    const double messages = message_bytes(input, mesh_rank, i), before = kept + messages;
    if (action.kind == Action::Kind::forward) {
      kept += saved;
      most = std::max(most, before + saved + load.forward);
    } else if (action.gives_input_gradient()) {
      most = std::max(most, before + (delays_weights ? load.backward_input : load.backward));
      if (by_turns) most = std::max(most, before + most_by_turns(load));
      kept -= saved;
    }
    if (delays_weights) kept += saved_for_weights;
    if (action.kind == Action::Kind::backward_weight) {
      most = std::max(most, before + load.backward_weight);
      kept -= saved_for_weights;
    }
    most = std::max(most, kept + messages);
  }
  return most;
}

/// Returns the bytes that the sums of loads of a stage take for each pass.
double running_load_bytes(const Config& config, const Range& blocks) {
  if (config.balance.scope != BalanceScope::global) return 0;
  const std::int64_t end = parts_of(config, blocks).output ? all_blocks(config) : blocks.end();
  double bytes = 0;
  for (std::int64_t layer = blocks.first; layer < end; ++layer) {
    bytes += number(RunningLoads::bytes(config, mixtures_of(config, layer), 1));
  }
  return bytes;
}

/// True if no rank of an expert group holds more of the mixture than the first one.
bool first_has_most(const Config& config, const Mixture& mixture) {
  const auto widths = std::span(mixture.widths).first(static_cast<std::size_t>(mixture.weighted()));
  const bool alike = std::ranges::adjacent_find(widths, std::ranges::not_equal_to()) == widths.end();
  return alike &&
         (config.parallel.placement == PlacementKind::contiguous || mixture.weighted() % config.parallel.expert == 0);
}

}  // namespace

std::vector<int> candidate_worst_ranks(const Config& config, int world, int row) {
  const int first = row * (world / config.parallel.pipeline);
  std::vector<int> ranks{first};
  const std::vector<Mixture> mixtures = mixtures_of(config);
  if (std::ranges::all_of(mixtures,
                          [&](const Mixture& each) { return !each.placed() || first_has_most(config, each); }))
    return ranks;
  for (int e = 1; e < config.parallel.expert; ++e) ranks.push_back(first + e * config.parallel.expert_tensor);
  return ranks;
}

RankLoad rank_load(const PlanInput& input, const MeshRank& mesh_rank, BlockKinds& kinds, ModelParts& parts) {
  RankLoad rank;
  for (int stage = mesh_rank.index.pipeline; stage < std::ssize(input.blocks); stage += mesh_rank.shape.pipeline) {
    rank.stages.push_back(stage);
    rank.loads.push_back(stage_load(input, mesh_rank, input.blocks[static_cast<std::size_t>(stage)], kinds, parts));
  }
  return rank;
}

RankPlan plan_loaded_rank(const PlanInput& input, const MeshRank& mesh_rank, int rank, const RankLoad& load) {
  const Config& config = input.config;
  RankPlan plan{.rank = rank, .stages = {}, .memory = {}, .passes = {}, .step = {}};
  std::vector<PlannedUnit> units;
  const double passes = number(micro_batches(config, input.world)), boundary = boundary_bytes(config, mesh_rank);
  const int row = mesh_rank.index.pipeline, last = static_cast<int>(input.blocks.size()) - 1;
  for (std::size_t s = 0; s < load.stages.size(); ++s) {
    const int stage = load.stages[s];
    const Range& blocks = input.blocks[static_cast<std::size_t>(stage)];
    plan.stages.push_back(blocks);
    units.insert(units.end(), load.loads[s].units.begin(), load.loads[s].units.end());
    plan.passes += (load.loads[s].traffic.forward + load.loads[s].traffic.backward).times(passes);
    const double ways = (stage < last ? 1 : 0) + (stage > 0 ? 1 : 0);
    plan.passes.add(mesh_rank, Axis::pipeline, Transfer::send, ways * passes * boundary, ways * passes);
  }
  ZeroStates zero_states;
  if (config.parallel.zero >= 2) {
    const bool shared_here = shares_table(config) && mesh_rank.shape.pipeline == 1;
    zero_states = simulate_zero(shared_layers(config, mesh_rank, units), layer_uses(input, row), shared_here ? 0 : -1);
    for (auto& [layer, gathers] : zero_states.gathers) gathers *= passes / input.schedule.shape.microbatches;
  }
  plan.memory = state_memory(config, mesh_rank, units, zero_states);
  for (const StageLoad& stage : load.loads) plan.memory.buffers += rope_bytes(config) + stage.buffers;
  const bool reads = std::ranges::any_of(
      plan.stages, [&](const Range& blocks) { return reads_tokens(config, parts_of(config, blocks)); });
  if (reads) plan.memory.buffers += passes * token_bytes(config);
  plan.memory.buffers += passes * document_bytes(config);
  for (const Range& blocks : plan.stages) plan.memory.buffers += passes * running_load_bytes(config, blocks);
  plan.memory.buffers += update_buffers(config, mesh_rank, units);
  plan.memory.activations = peak_of_passes(input, mesh_rank, load);
  if (config.parallel.schedule ==
      ScheduleKind::gpipe) {  // gpipe keeps every micro-batch, including those that this schedule leaves out
    plan.memory.activations +=
        (passes - input.schedule.shape.microbatches) * load.loads.front().saved.until_input_gradient;
  }
  plan.step = step_traffic(config, mesh_rank, units, zero_states);
  const MuonPlan muon = plan_muon(config, mesh_rank, units);
  plan.muon_flops = muon.flops;
  plan.step.matrices = muon.traffic;
  plan.memory.buffers += muon.table_bytes;
  if (muon.peak_bytes > 0) {
    plan.memory.update = {
        .activations = muon.peak_bytes, .pass_activations = plan.memory.activations, .freed = zero_states.gradients};
    plan.memory.activations = std::max(plan.memory.activations, muon.peak_bytes);
  }
  const double moves = move_bytes(config, mesh_rank, units);
  plan.memory.activations = std::max(plan.memory.activations, moves);
  if (plan.memory.update) plan.memory.update->activations = std::max(plan.memory.update->activations, moves);
  for (const StageLoad& stage : load.loads) plan.step.end += stage.update;
  return plan;
}

const std::vector<Range>& StageCuts::of(const Config& config) {
  const int stages = config.parallel.pipeline * config.parallel.virtual_stages;
  const bool head_recomputes = recomputed_head_flops(dividing_config(config)) > 0;
  const auto [entry, fresh] = cuts_.try_emplace({stages, config.model.recompute, head_recomputes});
  if (fresh) entry->second = stage_blocks(config, stages);
  return entry->second;
}

bool can_plan_step(const Config& config, int world) {
  constexpr std::int64_t most = 4'000'000;
  return micro_batches(config, world) <= most / (config.parallel.pipeline * config.parallel.virtual_stages);
}

PlanInput plan_input(const Config& config, int world, std::int64_t most, StageCuts* cuts) {
  const std::int64_t all = micro_batches(config, world);
  const PipelineShape shape{.ranks = config.parallel.pipeline,
                            .virtual_stages = config.parallel.virtual_stages,
                            .microbatches = static_cast<int>(most > 0 ? std::min(all, most) : all)};
  require_usage(
      can_plan_step(config, world),
      "a step of {} micro-batches through {} stages is too long to plan: raise batch.micro or lower batch.global", all,
      shape.stages());
  return {.config = config,
          .world = world,
          .blocks = cuts ? cuts->of(config) : stage_blocks(config, shape.stages()),
          .schedule = make_schedule(config.parallel.schedule, shape)};
}

RankPlan plan_rank(const PlanInput& input, int rank) {
  const MeshRank mesh_rank = MeshRank::of(input.config.parallel, input.world, rank);
  BlockKinds kinds;
  ModelParts parts;
  return plan_loaded_rank(input, mesh_rank, rank, rank_load(input, mesh_rank, kinds, parts));
}

}  // namespace lyceum
