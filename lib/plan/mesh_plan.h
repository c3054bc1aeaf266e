#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"
#include "plan/cluster.h"
#include "plan/memory.h"
#include "plan/piece.h"

namespace lyceum {

/// One rank: what it holds, and what it hands to its groups in one training step.
struct RankPlan {
  int rank = 0;
  std::vector<Range> stages;  // the blocks of each of its pipeline stages
  RankMemory memory;
  Traffic passes;  // of all micro-batches, between stages too
  StepTraffic step;
  Traffic traffic() const { return passes + step.reductions + step.gathers + step.end; }
};

/// A configuration's mesh of `world` ranks before anything runs.
struct PlanInput {
  const Config& config;  // resolved for `world`, without contradictions
  int world;
  std::vector<Range> blocks;  // of every pipeline stage
  Schedule schedule;
};
/// stage_blocks() of configurations that differ in mesh, batch and recomputation alone: each is cut once.
class StageCuts {
 public:
  const std::vector<Range>& of(const Config& config);

 private:
  std::map<std::tuple<int, Recompute, bool>, std::vector<Range>> cuts_;  // by stages and what is made again
};

/// Whether a step of a resolved configuration has no more passes through stages than can be planned.
bool step_is_short(const Config& config, int world);
/// `most`: micro-batches that the schedule is made for, where a step has more: what it does over and over is then left
/// out, which changes neither peaks of memory (with gpipe, which keeps all micro-batches, those left out count as well)
/// nor the seconds of the bubble. A multiple of the pipeline's ranks; 0: all. `cuts` may be null. Throws a usage Error
/// unless step_is_short().
PlanInput plan_input(const Config& config, int world, std::int64_t most = 0, StageCuts* cuts = nullptr);
RankPlan plan_rank(const PlanInput& input, int rank);

/// Seconds of a step, by what they are spent on. They sum to the step.
struct StepTime {
  double compute = 0;        // of the slowest stage, the passes' own transfers aside
  double transfers = 0;      // inside its passes: tensor ranks, dispatch and combine
  double bubble = 0;         // what it waits for other stages
  double synchronising = 0;  // sums and gathers over copies that nothing hides
  double optimizer = 0;      // update, norm, losses
  double total() const { return compute + transfers + bubble + synchronising + optimizer; }
};

/// The uses of a model that do not train it.
enum class Reading { evaluate, generate };

struct MeshPlan {
  Config config;
  int world = 1;
  std::optional<Reading> reading{};  // nothing: it trains
  std::vector<RankPlan> ranks;       // of every row of the pipeline one that needs the most memory
  Costs costs;                       // of the passes: seconds with a cluster, else units of a million FLOPs of one rank
  Timeline timeline;                 // of them, with all micro-batches or as many as were asked for
  std::optional<StepTime> time;

  double peak_memory() const;
  double bubble() const { return timeline.bubble_fraction(); }
  double tokens_per_second() const;
  std::string text() const;  // "pp2 dp4 tp1 · edp4 ep2 etp1, zero 1, 1f1b, micro 2, recompute full"
};
/// What plans of configurations have in common that differ in mesh, batch and recomputation alone.
struct PlanCache {
  StageCuts cuts;
  Pieces pieces;
};
/// What makes plans of many meshes quick.
struct PlanLimits {
  std::int64_t microbatches = 0;  // see plan_input
  double memory = 0;              // bytes of a rank: what needs more is planned without timeline and time; 0: any
  bool all_rows = true;           // of what needs more; else those up to the first that does
  PlanCache* cache = nullptr;
};
MeshPlan plan_mesh(const Config& config, int world, const std::optional<Cluster>& cluster,
                   const PlanLimits& limits = {});
/// Its pipeline with at most so many micro-batches, or as few more as one for each of its ranks, to be drawn.
Timeline drawn_timeline(const MeshPlan& plan, int most);

/// Micro-batches that are under way at once in an evaluation: a stage keeps its results until the next one takes them.
inline int evaluated_at_once(int pipeline) { return pipeline == 1 ? 1 : 8 * pipeline; }
/// The same without training: weights, caches of keys and values, and at most what a forward pass needs at a time. No
/// timeline.
MeshPlan plan_inference(const Config& config, int world, Reading reading);

/// A line for every row of the pipeline: the rank that needs the most memory, its blocks, its memory by kind. `most`:
/// rows, those that need the most; 0: all.
std::string memory_table(const MeshPlan& plan, std::size_t most = 0);
/// The same as the end of a message.
std::string error_table(const MeshPlan& plan);

/// "rank 4 needs 93 GB of the 76 GB that `whose` has (weights …)": of the rank that needs the most.
std::string need_text(const MeshPlan& plan, double available, const std::string& whose);
/// Returns nothing if every rank's memory is at most `available` bytes. Otherwise need_text() and advice: changes of
/// one key after which a plan made anew fits, at most three, with the memory that they need; if there are none, changes
/// of several keys; if these do not fit either, what they need. `whose`: "each of the 8 ranks of this machine".
std::string shortage(const MeshPlan& plan, double available, const std::string& whose);
/// Throws a usage Error with shortage() and, below it, the table.
void require_fits(const MeshPlan& plan, double available, const std::string& whose);

}  // namespace lyceum
