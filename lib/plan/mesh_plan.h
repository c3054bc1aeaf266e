#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "optim/run_groups.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"
#include "plan/cluster.h"
#include "plan/load_profile.h"
#include "plan/memory.h"
#include "plan/model_part.h"
#include "plan/placed_load.h"

namespace lyceum {

/// One planned rank: its memory, and the traffic of one training step.
struct RankPlan {
  int rank = 0;
  std::vector<Range> stages;  // ranges of blocks, one per pipeline stage of the rank
  RankMemory memory;
  Traffic passes;         // traffic of all micro-batches, including sends between stages
  StepTraffic step;       // traffic of the rest of the step
  double muon_flops = 0;  // of Muon's products, on the rank of the stage that has most
  /// Returns all traffic of a step.
  Traffic traffic() const { return passes + step.reductions + step.gathers + step.end + step.matrices; }
};

/// The mesh of a configuration, cut into stages, with its schedule.
struct PlanInput {
  /// Resolved for `world` and free of contradictions; must outlive this.
  const Config& config;
  int world;
  std::vector<Range> blocks;  // one range per pipeline stage
  Schedule schedule;
  const PlacedLoad* load = nullptr;  // the load of the experts; null: even
};
/// Caches stage_blocks() for configurations that differ only in mesh, batch.global, batch.micro and recomputation.
class StageCuts {
 public:
  /// Returns the blocks of each stage. The reference remains valid as long as the cache.
  const std::vector<Range>& of(const Config& config);

 private:
  // Key: number of stages; kind of recomputation in blocks; true if the head recomputes.
  std::map<std::tuple<int, Recompute, bool>, std::vector<Range>> cuts_;
};

/// True if the passes of a step (micro-batches times stages) are few enough to be planned.
bool can_plan_step(const Config& config, int world);
/// Prepares the plan of a resolved configuration. `most`: limit of the micro-batches in the schedule, a multiple of the
/// pipeline's ranks; 0: none. With a limit, repetitions of the steady state are left out. This changes neither the
/// peaks of memory nor the seconds of the bubble; for gpipe, which keeps the activations of all micro-batches,
/// plan_rank() adds those of the missing ones. `cuts` may be null. Throws a usage Error unless can_plan_step().
PlanInput plan_input(const Config& config, int world, std::int64_t most = 0, StageCuts* cuts = nullptr);
/// Returns the plan of rank `rank` of the mesh. Caches nothing: for many ranks use plan_mesh().
RankPlan plan_rank(const PlanInput& input, int rank);

/// Seconds of a training step by category; their sum is the duration of the step.
struct StepTime {
  double compute = 0;        // computation of the slowest stage
  double transfers = 0;      // communication within its passes: between tensor ranks, dispatch and combine
  double bubble = 0;         // waiting for other stages
  double synchronising = 0;  // reductions and gathers over copies that are not hidden behind computation
  double optimizer = 0;      // update, gradient norm, losses
  double muon = 0;           // Muon's products, and the exchange of matrices
  double total() const { return compute + transfers + bubble + synchronising + optimizer + muon; }
};

/// The uses of a model without training.
enum class Reading { evaluate, generate };

/// The plan of all ranks of a mesh: memory, traffic, pipeline and, with a cluster, the time of a step. A *row* of the
/// pipeline is the set of ranks with one pipeline coordinate; each row is represented by one rank.
struct MeshPlan {
  Config config;
  int world = 1;
  std::optional<Reading> reading{};  // none: training
  std::vector<RankPlan> ranks;       // for every row of the pipeline, the rank that needs the most memory
  /// Costs of the passes: seconds with a cluster, else millions of FLOPs of one rank.
  Costs costs;
  /// The simulated schedule, with all micro-batches or as many as PlanLimits allows.
  Timeline timeline;
  std::optional<StepTime> time;

  /// Returns the rank that needs the most memory, by RankMemory::resident().
  const RankPlan& fullest() const;
  /// Returns RankMemory::total() of that rank, in bytes.
  double peak_memory() const { return fullest().memory.total(); }
  /// Returns RankMemory::resident() of that rank, in bytes. Equal to peak_memory() on a GPU or a cluster.
  double peak_resident() const { return fullest().memory.resident(); }
  /// Returns the most bytes that one of `ranks` needs without RankMemory::nccl, which is an upper bound.
  double peak_without_nccl() const;
  /// Returns the share of the time, 0 to 1, that ranks wait in the pipeline.
  double bubble() const { return timeline.bubble_fraction(); }
  /// Returns the tokens of a global batch per second; 0 if the plan has no time.
  double tokens_per_second() const;
  /// Returns a summary of the mesh: "pp2 dp4 tp1 · edp4 ep2 etp1, 1f1b, zero 1, micro 2, recompute full".
  std::string text() const;
};
/// Caches groups_of_rank() for training with configurations that differ only in mesh, batch.global, batch.micro and
/// recomputation.
class GroupsOfRanks {
 public:
  /// The reference remains valid as long as the cache.
  const std::vector<RunGroup>& of(const Config& config, int world, const RankPlan& plan);

 private:
  // Key: sizes of the mesh; first, last or another row; true if adapters belong to divided experts.
  std::map<std::array<int, 8>, std::vector<RunGroup>> groups_;
};
/// Caches for plans with one load of configurations that differ only in mesh, batch.global, batch.micro and
/// recomputation.
struct MeshPlanCache {
  StageCuts cuts;
  ModelParts parts;
  PlacedLoads loads;
  GroupsOfRanks groups;
};
/// Restrictions that make plans of many meshes faster.
struct PlanLimits {
  std::int64_t microbatches = 0;  // see plan_input
  /// Bytes per rank; a plan that needs more gets no timeline and no time; 0: no limit.
  double memory = 0;
  /// If false, planning stops at the first row that needs more than `memory`, and MeshPlan::ranks lacks the later rows.
  bool all_rows = true;
  MeshPlanCache* cache = nullptr;
};
/// Plans training on `world` ranks. `config` must be resolved. Without a cluster the plan has no time, but the memory
/// of processes on the CPU; the memory of a cluster's rank is only for what the allocator holds. Throws a usage Error
/// unless can_plan_step(). `load`: the load of the experts, which the times of passes depend on; null: even. Memory,
/// bytes and the division into stages are always those of an even load.
MeshPlan plan_mesh(const Config& config, int world, const std::optional<Cluster>& cluster,
                   const PlanLimits& limits = {}, const LoadProfile* load = nullptr);
/// Returns the plan's pipeline simulated with at most `most` micro-batches, but at least one per pipeline rank, for
/// drawing.
Timeline drawn_timeline(const MeshPlan& plan, int most);

/// Returns the number of micro-batches in flight at once in an evaluation. A stage keeps the results of each until the
/// next stage takes them.
inline int micro_batches_in_flight(int pipeline) { return pipeline == 1 ? 1 : 8 * pipeline; }
/// Plans evaluation or generation: weights, key-value caches, and the maximum activations of a forward pass. The plan
/// has no timeline.
MeshPlan plan_inference(const Config& config, int world, Reading reading);

/// Returns a table with one line per row of the pipeline: the rank that needs the most memory, its blocks, its memory
/// by kind. `most`: limit of the lines, to the rows that need the most; 0: all.
std::string memory_table(const MeshPlan& plan, std::size_t most = 0);
/// Returns memory_table() as the end of a message: at most 8 rows, without the final newline.
std::string error_table(const MeshPlan& plan);

/// Returns "rank 4 needs 93 GB (weights …), but `whose` has only 76 GB", for the rank that needs the most.
std::string need_text(const MeshPlan& plan, double available, const std::string& whose);
/// Returns an empty string if no rank needs more than `available` bytes without NCCL's, which are an upper bound.
/// Otherwise returns need_text() and the first of these that exists:
///   1. changes of a single key after which the plan fits, at most three, with the memory that they need. They change
///      the mesh, ZeRO, the schedule, the micro-batch, recomputation or the loss chunk, so training is the same;
///   2. a batch.seq_len with which the plan fits;
///   3. changes of several keys of 1, with the memory that they need, and a note if they do not fit either;
///   4. a note that no change helps.
/// `whose`: for example "each of the 8 ranks of this machine".
std::string shortage(const MeshPlan& plan, double available, const std::string& whose);
/// Returns a warning if a rank needs more than `available` bytes only together with the upper bound of NCCL's;
/// otherwise an empty string.
std::string nccl_shortage(const MeshPlan& plan, double available, const std::string& whose);
/// Throws a usage Error with `before`, shortage() and error_table() if there is a shortage().
void require_fits(const MeshPlan& plan, double available, const std::string& whose, const std::string& before = "");

}  // namespace lyceum
