// Compares the communicators of NCCL that a plan counts, and the kinds of their operations, with those of a run, on the
// stand-in for NCCL.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "parallel/expert/rebalance.h"
#include "plan/nccl_memory.h"
#include "plan/rank_load.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// A configuration and the name of what it tests.
struct Case {
  std::string name;
  ParallelConfig parallel;
  bool muon = false, tied = false, adapters = false, clips = false;
  BalanceScope scope = BalanceScope::sequence;
};

Config config_of(const Case& tested) {
  Config config = tiny_config();
  config.run.device = DeviceKind::cuda;
  config.model.layers = 4;
  config.model.tie_embeddings = tested.tied;
  config.moe.expert_sizes = {};
  config.parallel = tested.parallel;
  config.balance.scope = tested.scope;
  if (tested.clips) config.optim.qk_clip = 100;
  if (tested.muon) config.optim.rule = UpdateRuleName::muon;
  if (tested.adapters) {
    config.optim.lora_rank = 2;
    config.optim.lora_targets = {"model/layers/*/mlp/experts/*/down_proj/weight"};
  }
  return config;
}

std::string text_of(int ranks, bool sums, bool gathers, bool exchanges) {
  return std::to_string(ranks) + " ranks" + (sums ? ", sums" : "") + (gathers ? ", gathers" : "") +
         (exchanges ? ", exchanges" : "");
}

/// Returns the communicators that exist, without the first `before` that were made, and the kinds of their calls.
std::vector<std::string> made_since(int before) {
  std::vector<std::string> all;
  for (const host_nccl::Used& one : host_nccl::used()) {
    if (one.number >= before) all.push_back(text_of(one.ranks, one.sums, one.gathers, one.exchanges));
  }
  std::ranges::sort(all);
  return all;
}

/// Moves experts of every rank, by loads in which those of one rank after the other have most tokens.
void move_experts(TinyTraining& training, LivePlacement& mover) {
  const int ranks = training.setup().mesh.expert.size();
  std::vector<MixturePlacement> placement = place_all_experts(training.config(), ranks, {});
  for (int hot = 0; hot < ranks; ++hot) {
    std::vector<ExpertLoad> load;
    for (const auto& [id, of] : placement) {
      std::vector<double>& tokens = load.emplace_back(ExpertLoad{id, {}}).tokens;
      for (const int owner : of.owner) tokens.push_back(owner == hot ? 50 : 1);
    }
    const std::optional<std::vector<MixturePlacement>> better = mover.better(placement, load);
    ASSERT_TRUE(better.has_value()) << hot;
    mover.move(placement, *better, load);
    placement = *better;
  }
}

TEST(RunGroups, APlanKnowsEveryCommunicator) {
  if (world_size() != 4 || tested_transport() != Transport::nccl) {
    GTEST_SKIP() << "needs NCCL with 4 ranks";
  }
  const std::vector<Case> cases{
      {.name = "muon", .parallel = {.tensor = 2, .expert = 2, .zero = 1}, .muon = true, .clips = true},
      {.name = "whole matrices", .parallel = {.expert = 2}, .muon = true, .scope = BalanceScope::global},
      {.name = "pipeline", .parallel = {.pipeline = 2, .tensor = 2, .expert = 2}, .tied = true},
      {.name = "several stages", .parallel = {.pipeline = 4}, .muon = true, .tied = true},
      {.name = "hosts", .parallel = {.expert = 4, .zero = 3, .replace_every = 1, .host_ranks = 2}},
      {.name = "replicas", .parallel = {.expert = 2, .zero = 2, .replicas = 1}, .scope = BalanceScope::batch},
      {.name = "adapters", .parallel = {.expert = 2, .expert_tensor = 2, .zero = 1}, .adapters = true},
  };
  for (const Case& tested : cases) {
    const std::vector<host_nccl::Used> existing = host_nccl::used();
    const int before = existing.empty() ? 0 : existing.back().number + 1;
    TinyTraining training(config_of(tested), test_world());
    const Config& config = training.config();
    const auto mover = config.parallel.replace_every > 0 ? training.live_placement() : nullptr;
    training.run_steps_only(0, 1);
    training.settle();
    if (mover) move_experts(training, *mover);

    const int rank = training.setup().mesh.world.rank();
    const RankPlan plan = plan_rank(plan_input(config, 4), rank);
    std::vector<std::string> planned;
    std::string names;
    for (const NcclCommunicator& one :
         nccl_communicators(config, MeshRank::of(config.parallel, 4, rank), plan, groups_of_rank(config, 4, plan), 1)) {
      const NcclOperations& operations = one.operations;
      planned.push_back(text_of(one.ranks, operations.sums, operations.gathers, operations.exchanges));
      names += one.name + ": " + planned.back() + "\n";
    }
    std::ranges::sort(planned);
    EXPECT_GT(planned.size(), 4U) << tested.name;
    EXPECT_EQ(made_since(before), planned) << tested.name << ", rank " << rank << "\n" << names;
  }
}

}  // namespace
}  // namespace lyceum
