#include "plan/nccl_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include "config/check.h"
#include "plan/report.h"

namespace lyceum {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double connection = 524288 + 4915200 + 4194304;  // LL, LL128, Simple

Config on_gpus(int channels) {
  Config config;
  config.run.device = DeviceKind::cuda;
  config.model = {.layers = 2, .hidden = 64, .heads = 4, .ffn_hidden = 160, .vocab = 256};
  config.batch = {.global = 8, .micro = 1, .seq_len = 128};
  config.parallel.nccl_channels = channels;
  return config;
}

double bytes_of(const ParallelConfig& parallel, int world, Axis axis, Transfer transfer, int channels) {
  Config config = on_gpus(channels);
  const MeshRank mesh_rank = MeshRank::of(parallel, world, 0);
  Traffic traffic;
  traffic.add(mesh_rank, axis, transfer, 100);
  return nccl_bytes(config, mesh_rank, traffic, false);
}

TEST(NcclMemory, HasBuffersForEveryChannelAndSender) {
  const ParallelConfig none, experts{.expert = 8}, stages{.pipeline = 4};
  EXPECT_EQ(bytes_of(none, 2, Axis::data, Transfer::all_reduce, 3), 3 * connection);
  EXPECT_EQ(bytes_of(none, 8, Axis::data, Transfer::reduce_scatter, 3), 3 * (2 * connection + 8 * 2097152));
  EXPECT_EQ(bytes_of(none, 64, Axis::data, Transfer::all_gather, 3), 3 * (2 * connection + 8 * 2097152));
  EXPECT_EQ(bytes_of(experts, 8, Axis::expert, Transfer::all_to_all, 3), 4 * 7 * connection) << "a power of two";
  EXPECT_EQ(bytes_of(stages, 4, Axis::pipeline, Transfer::send, 1), 2 * connection);
  EXPECT_EQ(bytes_of(none, 8, Axis::data, Transfer::all_reduce, 0), 0);
}

TEST(NcclMemory, IsOnlyThatOfNccl) {
  Config config = on_gpus(2);
  const MeshRank mesh_rank = MeshRank::of(config.parallel, 2, 0);
  Traffic traffic;
  traffic.add(mesh_rank, Axis::data, Transfer::all_reduce, 100);
  EXPECT_GT(nccl_bytes(config, mesh_rank, traffic, false), 0);
  EXPECT_EQ(nccl_bytes(config, mesh_rank, {}, false), 0);
  config.parallel.transport = TransportKind::staged;
  EXPECT_EQ(nccl_bytes(config, mesh_rank, traffic, true), 0);
  config.parallel.transport = TransportKind::automatic;
  config.run.device = DeviceKind::cpu;
  EXPECT_EQ(nccl_bytes(config, mesh_rank, traffic, false), 0);
  EXPECT_GT(nccl_bytes(config, mesh_rank, traffic, true), 0) << "a cluster";
}

TEST(NcclMemory, IsPartOfAPlan) {
  const auto planned = [](int channels) {
    Config config = on_gpus(channels);
    resolve(config, 8);
    return plan_mesh(config, 8, {});
  };
  const MeshPlan without = planned(0), with = planned(4);
  const RankMemory& memory = with.fullest().memory;
  EXPECT_GT(memory.nccl, 4 * connection);
  EXPECT_EQ(with.peak_memory(), without.peak_memory() + memory.nccl);
  const auto json = nlohmann::json::parse(json_report(with, {}, nullptr, 1e9)).at("memory_bytes_per_rank");
  EXPECT_EQ(json.at("nccl"), std::llround(memory.nccl));
  EXPECT_THAT(memory_table(with), HasSubstr("NCCL"));
  EXPECT_THAT(memory_table(without), Not(HasSubstr("NCCL")));
  EXPECT_THAT(shortage(with, with.peak_memory() - 1, "a rank"), HasSubstr(", NCCL "));
}

}  // namespace
}  // namespace lyceum
