#include "plan/model_part.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/allocator.h"
#include "core/error.h"
#include "kernels/weight_update.h"
#include "model/attention/logits.h"
#include "model/routing/running_loads.h"
#include "model/routing/step_replicas.h"
#include "model/transformer.h"
#include "model/working_type.h"
#include "optim/rounded_slices.h"
#include "parallel/comm/ledger.h"
#include "parallel/comm/turns.h"
#include "parallel/pipeline/tape_stage.h"
#include "plan/memory.h"

namespace lyceum {

namespace {

/// Adds an operation from the rank's ledger to its traffic.
void add(Traffic& traffic, const MeshRank& mesh_rank, const LedgerEntry& entry) {
  const auto axis = std::ranges::find(axis_names, std::string_view(entry.group_name.data()));
  const auto transfer = std::ranges::find(transfer_names, std::string_view(entry.operation.data()));
  if (axis == axis_names.end() || transfer == transfer_names.end()) return;
  traffic.add(mesh_rank, static_cast<Axis>(axis - axis_names.begin()),
              static_cast<Transfer>(transfer - transfer_names.begin()), number(entry.bytes));
}

/// Returns the size, role and updates of a unit, without its parameters.
PlannedUnit planned(const OptimConfig& optim, const RuleAssignment& rules, const ParameterUnit& unit) {
  const bool rounds = unit.trained() && optim.moments == MomentType::bf16;
  return {.group = unit.group(),
          .layer = unit.layer(),
          .size = unit.size(),
          .twin = unit.twin(),
          .updates = update_ranges(rules, unit),
          .matrices = unit.trained() ? matrix_slices(rules, unit) : std::vector<MatrixSlice>{},
          .role = unit.role(),
          .rounded_slices = rounds ? std::ssize(rounded_slices(0, unit, 0)) : 0};
}

/// Runs the code of one rank of a pipeline stage without peers, and measures its memory and its traffic.
class Rehearsal {
 public:
  Rehearsal(const Config& config, const MeshRank& mesh_rank, const StageParts& parts)
      : mesh_rank_(mesh_rank),
        mesh_(Mesh::create(ProcessGroup::rehearsal(rank_in_stage(mesh_rank), mesh_rank.stage_ranks()),
                           one_stage(mesh_rank))),
        type_(working_type(config.run)),
        optim_(config.optim),
        rules_(config.optim),
        model_(config, stream_, mesh_, type_, true, parts),
        stage_(stream_, [this](Tape& tape, int, const Variable& x) { return record(tape, x); }) {
    buffers_ =
        number(memory_of(stream_).use().in_use[static_cast<std::size_t>(MemoryKind::buffers)]) - rope_bytes(config);
    for (ParameterUnit* unit : model_.units()) unit->allocate(stream_, type_, true);
    const std::int64_t tokens = config.batch.micro * config.batch.seq_len;
    const auto numbers = [&](DType type, std::int64_t count) {
      return Tensor::empty(stream_, type, {count}, MemoryKind::buffers);
    };
    batch_ = {.inputs = numbers(DType::i32, tokens),
              .targets = numbers(DType::i32, tokens),
              .sequences = config.batch.micro,
              .seq_len = config.batch.seq_len,
              .first_keys = config.data.document_mask ? numbers(DType::i32, tokens) : Tensor(),
              .step = numbers(DType::f64, 1)};
    if (config.moe.top_k_start > 0) batch_.choices = numbers(DType::f64, 1);
    if (config.optim.qk_clip > 0) {
      logits_.emplace(config, mesh_, stream_);
      batch_.attention_logits = logits_->largest();
    }
    if (config.balance.scope == BalanceScope::global) {
      batch_.running_loads = &running_loads_.emplace(stream_, config, model_.mixtures(), 2);
      batch_.pass = 1;
    }
    if (config.parallel.replicas > 0) batch_.replicas = &replicas_;
    model_.clear_routing();
  }

  ModelPart run() {
    ModelPart part;
    Ledger& ledger = mesh_.world.ledger();
    const auto listen_for = [&](Traffic& traffic) {
      ledger.listen([&](const LedgerEntry& entry) { add(traffic, mesh_rank_, entry); });
    };
    ActivationNeed& need = part.activations;
    const double before = use().in_use;
    listen_for(part.traffic.forward);
    need.forward_turns = turns_of([&] { forward(0); });
    need.saved = use().in_use - before;
    need.forward = most_of(need.forward_turns) - need.saved;
    listen_for(part.traffic.backward);
    need.backward_turns = turns_of([&] { stage_.backward(0, gradient()); });
    need.backward = most_of(need.backward_turns);
    ledger.listen({});
    // The first pass of a step sends the weights of replicas. Later ones find them, since all passes have the same
    // rows.
    if (batch_.replicas) {
      batch_.pass = 1 - batch_.pass;
      const Traffic first = std::exchange(part.traffic.forward, {});
      listen_for(part.traffic.forward);
      forward(1);
      part.update += first + part.traffic.forward.times(-1);
      ledger.listen({});
    } else {
      forward(1);
    }
    const double recorded = use().in_use;
    const Tensor dx = stage_.backward_input(1, gradient());
    const auto [delayed, most] = use();
    need.backward_input = most - recorded;
    need.saved_for_weights = delayed - before - (dx.defined() ? static_cast<double>(dx.bytes()) : 0);
    memory_of(stream_).reset_peaks();
    stage_.backward_weight(1);
    need.backward_weight = use().peak - delayed;
    const StepVerdict verdict{};
    listen_for(part.update);
    model_.update_routers({&verdict, 1});
    ledger.listen({});
    part.buffers = buffers_;
    for (const ParameterUnit* unit : model_.units()) part.units.push_back(planned(optim_, rules_, *unit));
    return part;
  }

 private:
  static int rank_in_stage(const MeshRank& mesh_rank) {
    return mesh_rank.index.data * mesh_rank.shape.tensor + mesh_rank.index.tensor;
  }
  static MeshShape one_stage(const MeshRank& mesh_rank) {
    return {.tensor = mesh_rank.shape.tensor,
            .expert = mesh_rank.shape.expert,
            .expert_tensor = mesh_rank.shape.expert_tensor,
            .expert_hosts = mesh_rank.shape.expert_hosts};
  }

  TapeStage::Results record(Tape& tape, const Variable& x) {
    const Transformer::StageResult result = model_.forward_stage(tape, batch_, x);
    TapeStage::Results results{.y = result.y};
    if (model_.last_stage()) results.seeds.push_back(tape.seed(result.losses.cross_entropy, 1));
    for (const auto& [layer, loss] : result.losses.layers) results.seeds.push_back(tape.seed(loss.value, 1));
    return results;
  }

  /// Runs `pass` and returns the memory of each of its turns. A second task, whose turns come between those of the
  /// pass, reads the memory in use.
  std::vector<TurnNeed> turns_of(const std::function<void()>& pass) {
    std::vector<TurnNeed> all;
    const double before = use().in_use;
    bool over = false;
    Turns& turns = mesh_.world.turns();
    const auto note = [&] {
      const auto [in_use, peak] = use();
      all.push_back({.most = peak - before, .at_end = in_use - before});
      memory_of(stream_).reset_peaks();
    };
    const auto look = [&] {
      while (!over) {
        note();
        turns.note_start();
        turns.before_wait();
      }
    };
    turns.run(
        [&] {
          pass();
          over = true;
        },
        look);
    note();
    return all;
  }
  static double most_of(std::span<const TurnNeed> turns) { return std::ranges::max(turns, {}, &TurnNeed::most).most; }

  Tensor between_stages() const {
    return Tensor::empty(stream_, type_, model_.boundary(batch_.tokens(), batch_.seq_len));
  }
  void forward(int microbatch) {
    memory_of(stream_).reset_peaks();
    stage_.forward(microbatch, model_.first_stage() ? Tensor() : between_stages());
  }
  Tensor gradient() const {
    memory_of(stream_).reset_peaks();
    return model_.last_stage() ? Tensor() : between_stages();
  }
  /// Bytes of activations: now, and at most since the last reset.
  struct Use {
    double in_use, peak;
  };
  Use use() const {
    const MemoryUse all = memory_of(stream_).use();
    const auto kind = static_cast<std::size_t>(MemoryKind::activations);
    return {static_cast<double>(all.in_use[kind]), static_cast<double>(all.peak[kind])};
  }

  const MeshRank& mesh_rank_;
  RehearsalStream stream_;
  Mesh mesh_;
  DType type_;
  const OptimConfig& optim_;
  RuleAssignment rules_;
  Transformer model_;
  TapeStage stage_;
  std::optional<RunningLoads> running_loads_;
  StepReplicas replicas_;
  std::optional<AttentionLogits> logits_;
  TokenBatch batch_;
  double buffers_ = 0;
};

/// Returns the coordinates of a rank that is equivalent to `mesh_rank`, in the smallest pipeline stage in which all
/// groups have the same sizes. Only groups of copies are reduced, to at most two ranks. `experts`: true if the part has
/// expert groups.
MeshRank smallest_equivalent(const MeshRank& mesh_rank, bool experts) {
  MeshRank small{.shape = {.tensor = mesh_rank.shape.tensor}, .world = mesh_rank.shape.tensor, .index = {}};
  if (experts) {
    small.shape.expert = mesh_rank.shape.expert;
    small.shape.expert_tensor = mesh_rank.shape.expert_tensor;
    small.shape.expert_hosts = mesh_rank.shape.expert_hosts;
    small.world = std::lcm(mesh_rank.shape.tensor, mesh_rank.shape.expert * mesh_rank.shape.expert_tensor);
  }
  if (mesh_rank.size(Axis::data) > 1 && small.size(Axis::data) == 1) small.world *= 2;
  small.index = small.shape.index_of(
      (mesh_rank.index.data * mesh_rank.shape.tensor + mesh_rank.index.tensor) % small.world, small.world);
  return small;
}

/// True if no pattern can treat tensors of one block in another way than those of another block.
bool blocks_are_alike(const OptimConfig& optim) {
  return optim.train_only.empty() && optim.adamw_only.empty() && optim.lora_rank == 0;
}

}  // namespace

ModelPart rehearse_part(const Config& config, const MeshRank& mesh_rank, const StageParts& parts) {
  try {
    return Rehearsal(config, mesh_rank, parts).run();
  } catch (const Error& error) {  // the process ran out of address space
    if (error.code() != ExitCode::failed) throw;
    fail(ExitCode::usage, "a part of this model is too large to plan on this machine: {}", error.what());
  }
}

const ModelPart& ModelParts::input(const Config& config, const MeshRank& mesh_rank) {
  return find(config, mesh_rank, Kind::input, {.input = true, .blocks = {0, 0}, .output = false});
}

const ModelPart& ModelParts::block(const Config& config, const MeshRank& mesh_rank, std::int64_t layer) {
  return find(config, mesh_rank, is_sparse(config, layer) ? Kind::sparse : Kind::dense,
              {.input = false, .blocks = {layer, 1}, .output = false});
}

const ModelPart& ModelParts::output(const Config& config, const MeshRank& mesh_rank) {
  return find(config, mesh_rank, Kind::output, {.input = false, .blocks = {config.model.layers, 0}, .output = true});
}

const ModelPart& ModelParts::find(const Config& config, const MeshRank& mesh_rank, Kind kind, const StageParts& parts) {
  // The output has experts in the blocks of modules of multi-token prediction.
  const bool modules = kind == Kind::output && config.mtp.depth > 0;
  const MeshRank small =
      smallest_equivalent(mesh_rank, kind == Kind::sparse || (modules && is_sparse(config, config.model.layers)));
  const std::optional<Mixture> experts =
      kind == Kind::sparse ? routed_experts(config, parts.blocks.first) : std::nullopt;
  const int replicas = config.parallel.replicas;
  const bool is_block = kind == Kind::sparse || kind == Kind::dense;
  const std::optional<Mixture> heads = is_block ? attention_experts(config, parts.blocks.first) : std::nullopt;
  const auto [found, fresh] = parts_.try_emplace({.kind = kind,
                                                  .layer = blocks_are_alike(config.optim) ? 0 : parts.blocks.first,
                                                  .experts = experts ? experts->choices() : 0,
                                                  .attention_experts = heads ? heads->choices() : 0,
                                                  .tensor = small.shape.tensor,
                                                  .expert = small.shape.expert,
                                                  .expert_tensor = small.shape.expert_tensor,
                                                  .expert_hosts = small.shape.expert_hosts,
                                                  .ranks = small.world,
                                                  .rank = small.index.data * small.shape.tensor + small.index.tensor,
                                                  .sequence = config.parallel.sequence,
                                                  .micro = config.batch.micro,
                                                  .recompute = config.model.recompute,
                                                  .expert_exchange = config.parallel.expert_exchange,
                                                  .replicas = replicas,
                                                  .pipeline = replicas > 0 ? config.parallel.pipeline : 1,
                                                  .schedule = replicas > 0 ? config.parallel.schedule : ScheduleKind{},
                                                  .overlap = replicas > 0 ? config.parallel.overlap : Overlap{}});
  if (fresh) found->second = rehearse_part(config, small, parts);
  return found->second;
}

}  // namespace lyceum
