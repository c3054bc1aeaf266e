// Compares the communicators of NCCL that a plan counts with those that a run creates, on the stand-in for NCCL.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/nccl_memory.h"
#include "plan/rank_load.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// A configuration and the name of what it tests.
struct Case {
  std::string name;
  ParallelConfig parallel;
  bool muon = false, tied = false, adapters = false;
};

Config config_of(const Case& tested) {
  Config config = tiny_config();
  config.run.device = DeviceKind::cuda;
  config.model.layers = 4;
  config.model.tie_embeddings = tested.tied;
  config.moe.expert_sizes = {};
  config.parallel = tested.parallel;
  if (tested.muon) config.optim.rule = UpdateRuleName::muon;
  if (tested.adapters) {
    config.optim.lora_rank = 2;
    config.optim.lora_targets = {"model/layers/*/mlp/experts/*/down_proj/weight"};
  }
  return config;
}

TEST(RunGroups, APlanKnowsEveryCommunicator) {
  if (world_size() != 4 || tested_transport() != Transport::nccl || tested_nccl().order == NcclOrder::serial) {
    GTEST_SKIP() << "needs NCCL with 4 ranks";
  }
  const std::vector<Case> cases{
      {.name = "muon", .parallel = {.tensor = 2, .expert = 2, .zero = 1}, .muon = true},
      {.name = "pipeline", .parallel = {.pipeline = 2, .tensor = 2, .expert = 2}, .tied = true},
      {.name = "several stages", .parallel = {.pipeline = 4}, .muon = true, .tied = true},
      {.name = "hosts", .parallel = {.expert = 4, .zero = 3, .replace_every = 1, .host_ranks = 2}},
      {.name = "replicas", .parallel = {.expert = 2, .zero = 2, .replicas = 1}},
      {.name = "adapters", .parallel = {.expert = 2, .expert_tensor = 2}, .adapters = true},
  };
  for (const Case& tested : cases) {
    const std::vector<int> before = host_nccl::sizes();
    TinyTraining training(config_of(tested), test_world());
    const Config& config = training.config();
    const auto mover = config.parallel.replace_every > 0 ? training.live_placement() : nullptr;
    if (config.parallel.pipeline > 1) training.run_steps_only(0, 1);  // connects the lanes of messages
    std::vector<int> made = host_nccl::sizes(), planned = before;

    const int rank = training.setup().mesh.world.rank();
    const RankPlan plan = plan_rank(plan_input(config, 4), rank);
    for (const NcclCommunicator& one :
         nccl_communicators(config, MeshRank::of(config.parallel, 4, rank), plan, groups_of_rank(config, 4, plan), 1)) {
      planned.push_back(one.ranks);
    }
    std::ranges::sort(planned);
    EXPECT_GT(made.size(), before.size() + 4) << tested.name;
    EXPECT_EQ(made, planned) << tested.name << ", rank " << rank;
  }
}

}  // namespace
}  // namespace lyceum
