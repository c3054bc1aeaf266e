#include "plan/nccl_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <string>

#include "config/check.h"
#include "plan/report.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double mebibyte = 1 << 20, local = 12 * mebibyte, network = 20 * mebibyte;  // both ends of a connection

Config on_gpus(int channels) {
  Config config;
  config.run.device = DeviceKind::cuda;
  config.model = {.layers = 2, .hidden = 64, .heads = 4, .ffn_hidden = 160, .vocab = 256};
  config.batch = {.global = 8, .micro = 1, .seq_len = 128};
  config.parallel.nccl_channels = channels;
  return config;
}

/// Returns the bytes of the connections of a group of `ranks` ranks on an axis that carries a transfer of passes.
double connections(ParallelConfig parallel, int world, Axis axis, Transfer transfer, int channels) {
  Config config = on_gpus(channels);
  config.parallel = parallel;
  const MeshRank mesh_rank = MeshRank::of(parallel, world, 0);
  const std::vector<RunGroup> groups{{"group", RunGroup::Use::passes, axis, mesh_rank.size(axis)}};
  const auto bytes = [&](const RankPlan& plan) {
    return nccl_communicators(config, mesh_rank, plan, groups, channels).front().bytes;
  };
  RankPlan plan;
  plan.passes.add(mesh_rank, axis, transfer, 100);
  return bytes(plan) - bytes({});
}

TEST(NcclMemory, HasBuffersForEveryChannelAndConnection) {
  using enum Transfer;
  const Axis stage = Axis::data_tensor;
  const ParallelConfig one{.host_ranks = 8}, experts{.expert = 8, .host_ranks = 8};
  const double in_switch = 2 * mebibyte * 8;
  EXPECT_EQ(connections(one, 2, stage, all_reduce, 3), 3 * (local + 2 * 2 * mebibyte));
  EXPECT_EQ(connections(one, 8, stage, all_reduce, 3), 3 * (2 * local + in_switch)) << "a tree is a chain";
  EXPECT_EQ(connections(one, 8, stage, all_gather, 3), 3 * (local + in_switch)) << "a ring";
  EXPECT_EQ(connections(experts, 8, Axis::expert, all_to_all, 3), 4 * 7 * local) << "a power of two";

  EXPECT_EQ(connections(one, 64, stage, all_reduce, 3), 3 * (8 * network + in_switch)) << "two kinds of trees";
  EXPECT_EQ(connections(one, 64, stage, reduce_scatter, 3), 3 * (network + in_switch));
  const ParallelConfig alone{.host_ranks = 1};
  EXPECT_EQ(connections(alone, 8, stage, reduce_scatter, 3), 3 * 5 * network) << "to ranks at distances 1, 2, 4, 6, 7";
  EXPECT_EQ(connections(alone, 6, stage, all_gather, 3), 3 * 4 * network) << "to ranks at distances 1, 2, 4, 5";
  EXPECT_EQ(connections(alone, 3, stage, all_reduce, 3), 3 * 2 * network) << "to all ranks";
  const ParallelConfig far{.expert = 16, .host_ranks = 8};
  EXPECT_EQ(connections(far, 16, Axis::expert, all_to_all, 4), 4 * (7 * local + 9 * 2 * mebibyte)) << "shared buffers";
  const ParallelConfig unknown{.expert = 16};
  EXPECT_EQ(connections(unknown, 16, Axis::expert, all_to_all, 4), connections(far, 16, Axis::expert, all_to_all, 4));
}

TEST(NcclMemory, HasACommunicatorForEveryGroupAndDirection) {
  Config config = on_gpus(2);
  config.parallel.pipeline = 4;
  config.model.layers = 4;
  config.model.tie_embeddings = true;
  config.optim.rule = UpdateRuleName::muon;
  resolve(config, 8);
  const MeshRank first = MeshRank::of(config.parallel, 8, 0), second = MeshRank::of(config.parallel, 8, 2);
  RankPlan plan;
  const auto names = [&](const MeshRank& mesh_rank, int rank, bool reading = false) {
    plan.rank = rank;
    std::vector<std::string> all;
    for (const NcclCommunicator& one :
         nccl_communicators(config, mesh_rank, plan, groups_of_rank(config, 8, plan, reading), 2, reading)) {
      all.push_back(one.name + " " + std::to_string(one.ranks));
      EXPECT_GE(one.bytes, (2 + 3 * 2) * 2 * mebibyte) << one.name;
    }
    return all;
  };
  std::vector<std::string> expected{"world 8",
                                    "data 2",
                                    "pipeline 4",
                                    "data_tensor 2",
                                    "expert_data 2",
                                    "data gradients 2",
                                    "data values 2",
                                    "data_tensor gradients 2",
                                    "data_tensor values 2",
                                    "expert_data gradients 2",
                                    "expert_data values 2",
                                    "muon 2",
                                    "muon 2",
                                    "muon experts 2",
                                    "pipeline ends 2",
                                    "pipeline messages from 0 to 1 2",
                                    "pipeline messages from 1 to 0 2"};
  EXPECT_EQ(names(first, 0), expected);
  expected.insert(expected.end(), {"pipeline messages from 1 to 2 2", "pipeline messages from 2 to 1 2"});
  EXPECT_EQ(names(second, 2), expected);
  EXPECT_THAT(names(second, 2, true),
              testing::ElementsAre("world 8", "data 2", "pipeline 4", "data_tensor 2", "expert_data 2",
                                   "pipeline messages from 0 to 1 2", "pipeline messages from 1 to 2 2"));
}

TEST(NcclMemory, OfMessagesDependsOnTheMachinesOfTheirStages) {
  Config config = on_gpus(2);
  config.model.layers = 4;
  config.model.tie_embeddings = true;
  const auto bytes = [&](int world, int host_ranks, int rank) {
    config.parallel.pipeline = 4;
    config.parallel.host_ranks = host_ranks;
    RankPlan plan;
    plan.rank = rank;
    std::map<std::string, double> mebibytes;
    for (const NcclCommunicator& one : nccl_communicators(config, MeshRank::of(config.parallel, world, rank), plan,
                                                          groups_of_rank(config, world, plan), 2)) {
      mebibytes[one.name] = one.bytes / mebibyte;
    }
    return mebibytes;
  };
  const double tables = 4 + 2 * 6, in_switch = 2 + 2 * 2;
  const auto second = bytes(8, 4, 2);  // two machines of two stages with two ranks each
  EXPECT_EQ(second.at("pipeline messages from 0 to 1"), tables + in_switch + 2 * 10) << "receives on its machine";
  EXPECT_EQ(second.at("pipeline messages from 1 to 0"), tables + in_switch + 2 * 2) << "sends on its machine";
  EXPECT_EQ(second.at("pipeline messages from 1 to 2"), tables + 2 * 2) << "to another machine";
  EXPECT_EQ(second.at("pipeline messages from 2 to 1"), tables + 2 * 2) << "from another machine";
  EXPECT_EQ(bytes(8, 3, 2).at("pipeline messages from 0 to 1"), tables + in_switch + 2 * 10)
      << "ranks 0 and 2 are on one machine, 1 and 3 are not";

  EXPECT_EQ(bytes(4, 2, 0).at("pipeline ends"), tables) << "ranks 0 and 3, on two machines";
  EXPECT_EQ(bytes(4, 2, 1).at("pipeline ends"), tables + in_switch) << "ranks 1 and 2, which may be on one";
}

TEST(NcclMemory, IsOnlyThatOfNccl) {
  Config config = on_gpus(2);
  EXPECT_TRUE(sends_by_nccl(config, false));
  config.parallel.transport = TransportKind::staged;
  EXPECT_FALSE(sends_by_nccl(config, true));
  config.parallel.transport = TransportKind::automatic;
  config.run.device = DeviceKind::cpu;
  EXPECT_FALSE(sends_by_nccl(config, false));
  EXPECT_TRUE(sends_by_nccl(config, true)) << "a cluster";
}

TEST(NcclMemory, IsPartOfAPlan) {
  const auto planned = [](int channels, int world = 8) {
    Config config = on_gpus(channels);
    resolve(config, world);
    return plan_mesh(config, world, {});
  };
  const auto json_of = [](const MeshPlan& plan) {
    return nlohmann::json::parse(json_report(plan, {}, nullptr, 1e9)).at("memory_bytes_per_rank");
  };
  const MeshPlan without = planned(0), with = planned(4);
  const RankMemory& memory = with.fullest().memory;
  EXPECT_GT(memory.nccl, 4 * local);
  EXPECT_EQ(with.peak_memory(), without.peak_memory() + memory.nccl);
  EXPECT_EQ(json_of(with).at("nccl"), std::llround(memory.nccl));
  EXPECT_THAT(memory_table(with), HasSubstr("NCCL"));
  EXPECT_THAT(memory_table(without), Not(HasSubstr("NCCL")));
  EXPECT_EQ(shortage(with, with.peak_memory() - 1, "a rank"), "") << "NCCL may take less";
  EXPECT_THAT(nccl_shortage(with, with.peak_memory() - 1, "a rank"), HasSubstr("parallel.nccl_channels = 2 (now 4)"));
  EXPECT_NO_THROW(require_fits(with, without.peak_memory(), "a rank"));
  EXPECT_THAT(shortage(with, without.peak_memory() - 1, "a rank"), HasSubstr(", NCCL at most "));
  EXPECT_EQ(nccl_shortage(with, without.peak_memory() - 1, "a rank"), "");
  EXPECT_EQ(nccl_shortage(with, with.peak_memory(), "a rank"), "");

  const double most = unlimited_nccl_bytes(without, false);
  EXPECT_GT(most, 10 * memory.nccl);
  EXPECT_EQ(unlimited_nccl_bytes(with, false), 0);
  EXPECT_EQ(json_of(without).at("nccl_at_most"), std::llround(most));
  EXPECT_FALSE(json_of(with).contains("nccl_at_most"));
  EXPECT_THAT(mesh_report(without, {}, 1e9), HasSubstr("not counted: memory of NCCL"));
  EXPECT_THAT(mesh_report(with, {}, 1e9), Not(HasSubstr("not counted")));
  EXPECT_EQ(unlimited_nccl_bytes(planned(0, 1), false), 0) << "one rank";

  Config config = on_gpus(4);
  resolve(config, 8);
  const double reading = plan_inference(config, 8, Reading::evaluate).fullest().memory.nccl;
  EXPECT_GT(reading, 0);
  EXPECT_LT(reading, memory.nccl);
}

}  // namespace
}  // namespace lyceum
