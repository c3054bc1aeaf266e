// Training with exchanges of fixed sizes over the stand-in for NCCL: the host reads nothing from the device in sparse
// layers, and the results are those of counted exchanges.
#include <gtest/gtest.h>

#include "host_stream.h"
#include "support/tested_groups.h"
#include "support/trajectory.h"

namespace lyceum {
namespace {

/// The results of a step, and how often the host copied something from the device during the step.
struct ObservedStep {
  StepResult result;
  std::vector<Trajectory::Slice> weights;
  int copies;
};

ObservedStep second_step(Config config, const ParallelConfig& mesh, ExpertExchange exchange) {
  config.parallel = mesh;
  config.parallel.zero = 1;
  config.parallel.expert_exchange = exchange;
  TinyTraining training(config, test_world());
  training.run_steps_only(0, 1);
  const int before = host_cuda::copies_to_host();
  const StepResult result = training.run_steps_only(1, 1).front();
  const int copies = host_cuda::copies_to_host() - before;
  return {result, training.weights(), copies};
}

TEST(BoundedExchangeOnDevice, MakesTheHostWaitForNoCounts) {
  const int world = world_size();
  if (world < 2 || tested_transport() != Transport::nccl) GTEST_SKIP() << "needs NCCL with two ranks";
  Config config = tiny_config();
  config.batch = {.global = 2 * world, .micro = 1, .seq_len = 12};
  config.moe.expert_sizes = {5, 11, 7, 2, 16, 9, 33, 2, 8};  // ranks of expert_tensor hold a part of each
  config.moe.capacity_factor = 0.8;
  std::vector<ParallelConfig> meshes{{.expert = world}};
  if (world >= 4) {
    meshes.push_back({.expert = world, .host_ranks = world / 2});
    meshes.push_back({.expert = world / 2, .expert_tensor = 2});
  }
  const int alone = second_step(config, {}, ExpertExchange::counted).copies;
  for (const ParallelConfig& mesh : meshes) {
    SCOPED_TRACE(mesh_shape(mesh).text(world));
    const ObservedStep counted = second_step(config, mesh, ExpertExchange::counted),
                       bounded = second_step(config, mesh, ExpertExchange::bounded);
    EXPECT_EQ(bounded.copies, alone) << "as often as with all experts on one rank";
    EXPECT_GT(counted.copies, bounded.copies);
    EXPECT_EQ(bounded.result.loss, counted.result.loss);
    EXPECT_EQ(bounded.result.grad_norm, counted.result.grad_norm);
    EXPECT_EQ(bounded.weights, counted.weights);
  }
}

}  // namespace
}  // namespace lyceum
