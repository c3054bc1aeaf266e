#include "plan/cluster.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/paper_models.h"

namespace lyceum {
namespace {

TEST(Clusters, FilesSayWhatARankReaches) {
  const std::string file = (configs() / "clusters/h100-8x.ini").string();
  const Cluster bf16 = read_cluster(file, Precision::bf16), f32 = read_cluster(file, Precision::f32);
  EXPECT_EQ(bf16.name, "8 x H100 SXM a node, NDR InfiniBand");
  EXPECT_EQ(bf16.node_ranks, 8);
  EXPECT_DOUBLE_EQ(bf16.memory, 76e9);
  EXPECT_DOUBLE_EQ(bf16.flops, 400e12);
  EXPECT_DOUBLE_EQ(f32.flops, 27e12);
  EXPECT_DOUBLE_EQ(bf16.node_bytes, 360e9);
  EXPECT_DOUBLE_EQ(bf16.network_latency, 20e-6);
  EXPECT_DOUBLE_EQ(bf16.overlap, 0.7);
  EXPECT_DOUBLE_EQ(default_cluster(Precision::bf16).flops, bf16.flops);
  EXPECT_DOUBLE_EQ(default_cluster(Precision::f32).memory_bytes, f32.memory_bytes);
  EXPECT_GT(read_cluster((configs() / "clusters/cpu-2-cores.ini").string(), Precision::f32).flops, 0);
  EXPECT_THROW(read_cluster("absent.ini", Precision::f32), Error);
}

TEST(Clusters, TransfersTakeTheSlowestLinkOfTheirGroup) {
  Cluster cluster = default_cluster(Precision::bf16);
  cluster.node_latency = cluster.network_latency = 0;
  ParallelConfig parallel;
  parallel.tensor = 8;
  const MeshRank mesh_rank = MeshRank::of(parallel, 16, 0);
  Traffic inside, outside;
  inside.add(mesh_rank, Axis::tensor, Transfer::all_reduce, 8e9);
  outside.add(mesh_rank, Axis::data, Transfer::all_reduce, 8e9);
  EXPECT_DOUBLE_EQ(seconds(cluster, mesh_rank, inside), 2 * 7.0 / 8 * 8e9 / cluster.node_bytes);
  EXPECT_DOUBLE_EQ(seconds(cluster, mesh_rank, outside), 2 * 1.0 / 2 * 8e9 / cluster.network_bytes);
}

/// True if two ranks are in one group of an axis, that is, if all their other coordinates are equal.
bool together(Axis axis, const MeshCoordinates& a, const MeshCoordinates& b, const MeshShape& shape) {
  const int last_stage = shape.pipeline - 1, each = shape.expert / shape.expert_hosts;
  const bool stage = a.pipeline == b.pipeline, dense = a.data == b.data && a.tensor == b.tensor;
  switch (axis) {
    case Axis::data: return stage && a.tensor == b.tensor;
    case Axis::tensor: return stage && a.data == b.data;
    case Axis::pipeline: return dense;
    case Axis::pipeline_ends:
      return dense && (a.pipeline == 0 || a.pipeline == last_stage) && (b.pipeline == 0 || b.pipeline == last_stage);
    case Axis::data_tensor: return stage;
    case Axis::expert: return stage && a.expert_data == b.expert_data && a.expert_tensor == b.expert_tensor;
    case Axis::expert_tensor: return stage && a.expert_data == b.expert_data && a.expert == b.expert;
    case Axis::expert_data: return stage && a.expert == b.expert && a.expert_tensor == b.expert_tensor;
    case Axis::expert_copies: return a.pipeline == b.pipeline && a.expert == b.expert;
    case Axis::expert_across: return together(Axis::expert, a, b, shape) && a.expert % each == b.expert % each;
    case Axis::expert_within: return together(Axis::expert, a, b, shape) && a.expert / each == b.expert / each;
    default: return true;
  }
}

/// Returns the share of a rank's peers on other machines, for the worst rank, by examining every pair of ranks.
double worst_share_outside(const MeshShape& shape, int world, int node, Axis axis) {
  const MeshRank mesh_rank{.shape = shape, .world = world, .index = {}};
  double worst = 0;
  for (int a = 0; a < world; ++a) {
    const MeshCoordinates own = shape.index_of(a, world);
    if (axis == Axis::pipeline_ends && own.pipeline != 0) continue;
    int peers = 0, outside = 0;
    for (int b = 0; b < world; ++b) {
      if (a == b || mesh_rank.size(axis) == 1 || !together(axis, own, shape.index_of(b, world), shape)) continue;
      ++peers;
      if (a / node != b / node) ++outside;
    }
    if (peers > 0) worst = std::max(worst, static_cast<double>(outside) / peers);
  }
  return worst;
}

/// The group of an axis that is split worst over machines determines the time of all groups.
TEST(Clusters, PeersOnOtherMachinesAreThoseOfTheWorstGroup) {
  Cluster cluster = default_cluster(Precision::bf16);
  cluster.node_latency = cluster.network_latency = 0;
  cluster.node_bytes = 1e30;
  const std::vector<std::pair<MeshShape, int>> meshes{
      {{.expert = 6}, 24},
      {{.expert = 6}, 6},
      {{.tensor = 3, .expert = 2, .expert_tensor = 3}, 18},
      {{.pipeline = 3, .tensor = 2, .expert = 4}, 24},
      {{.pipeline = 2, .expert = 12}, 48},
      {{.pipeline = 5, .tensor = 2, .expert = 3, .expert_tensor = 2}, 60},
      {{.expert = 16}, 64},
      {{.pipeline = 3, .tensor = 3, .expert = 3}, 9},
      {{.pipeline = 2, .tensor = 7, .expert = 2, .expert_tensor = 7}, 56},
      {{.expert = 5, .expert_tensor = 2}, 20},
      {{.expert = 16, .expert_hosts = 2}, 32},
      {{.expert = 8, .expert_tensor = 2, .expert_hosts = 2}, 48},
      {{.pipeline = 3, .expert = 12, .expert_hosts = 4}, 36},
  };
  for (const auto& [shape, world] : meshes) {
    for (const int node : {3, 8, 16}) {
      cluster.node_ranks = node;
      const MeshRank mesh_rank{.shape = shape, .world = world, .index = {}};
      for (std::size_t a = 0; a < axis_names.size(); ++a) {
        const auto axis = static_cast<Axis>(a);
        Traffic traffic;
        traffic.add(mesh_rank, axis, Transfer::all_to_all, 1e9);
        EXPECT_NEAR(seconds(cluster, mesh_rank, traffic) * cluster.network_bytes / 1e9,
                    worst_share_outside(shape, world, node, axis), 1e-12)
            << shape.text(world) << ", " << node << " on a machine: " << axis_names[a];
      }
    }
  }
}

}  // namespace
}  // namespace lyceum
