#include <gtest/gtest.h>

#include "parallel/comm/mesh.h"
#include "support/tested_world.h"

namespace lyceum {
namespace {

/// Returns the ranks in the world of a group's members, in the order of the group.
std::vector<std::int64_t> members(const ProcessGroup& group, int world_rank) {
  const std::int64_t own = world_rank;
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span(&own, 1), ranks);
  return ranks;
}

/// Returns the world ranks whose coordinates agree with those of this rank according to `same`, in ascending order.
template <class Same>
std::vector<std::int64_t> expected_members(const Mesh& mesh, Same same) {
  std::vector<std::int64_t> ranks;
  for (int r = 0; r < mesh.world.size(); ++r) {
    if (same(mesh.shape.index_of(r, mesh.world.size()), mesh.index)) ranks.push_back(r);
  }
  return ranks;
}

TEST(MeshMpiTest, GroupsJoinTheRanksThatDifferOnOneAxis) {
  int tried = 0;
  for (const MeshShape shape :
       {MeshShape{}, MeshShape{.expert = 2}, MeshShape{.expert = 4}, MeshShape{.expert = 8},
        MeshShape{.pipeline = 2, .expert = 2}, MeshShape{.tensor = 2, .expert = 4},
        MeshShape{.expert = 2, .expert_tensor = 2}, MeshShape{.expert = 4, .expert_hosts = 2},
        MeshShape{.expert = 8, .expert_hosts = 4}, MeshShape{.expert = 4, .expert_tensor = 2, .expert_hosts = 2},
        MeshShape{.pipeline = 2, .expert = 4, .expert_hosts = 3},
        MeshShape{.pipeline = 2, .tensor = 2, .expert = 2, .expert_tensor = 2}}) {
    ProcessGroup world = test_world();
    if (!shape.problem(world.size()).empty()) {
      EXPECT_THROW(Mesh::create(std::move(world), shape), Error);
      continue;
    }
    ++tried;
    const Mesh mesh = Mesh::create(std::move(world), shape);
    const int rank = mesh.world.rank();
    EXPECT_EQ(members(mesh.data, rank), expected_members(mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) {
                return a.pipeline == b.pipeline && a.tensor == b.tensor;
              }));
    EXPECT_EQ(members(mesh.tensor, rank),
              expected_members(mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) {
                return a.pipeline == b.pipeline && a.data == b.data;
              }));
    EXPECT_EQ(members(mesh.pipeline, rank),
              expected_members(mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) {
                return a.data == b.data && a.tensor == b.tensor;
              }));
    EXPECT_EQ(members(mesh.data_tensor, rank),
              expected_members(
                  mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) { return a.pipeline == b.pipeline; }));
    EXPECT_EQ(members(mesh.expert_tensor, rank),
              expected_members(mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) {
                return a.pipeline == b.pipeline && a.expert_data == b.expert_data && a.expert == b.expert;
              }));
    EXPECT_EQ(members(mesh.expert, rank),
              expected_members(mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) {
                return a.pipeline == b.pipeline && a.expert_data == b.expert_data && a.expert_tensor == b.expert_tensor;
              }));
    EXPECT_EQ(members(mesh.expert_data, rank),
              expected_members(mesh, [](const MeshCoordinates& a, const MeshCoordinates& b) {
                return a.pipeline == b.pipeline && a.expert == b.expert && a.expert_tensor == b.expert_tensor;
              }));
    ASSERT_EQ(mesh.expert_hosts.has_value(), shape.expert_hosts > 1);
    if (const auto& hosts = mesh.expert_hosts) {
      const int each = shape.expert / shape.expert_hosts;
      const auto same_experts = [](const MeshCoordinates& a, const MeshCoordinates& b) {
        return a.pipeline == b.pipeline && a.expert_data == b.expert_data && a.expert_tensor == b.expert_tensor;
      };
      EXPECT_EQ(members(hosts->across, rank),
                expected_members(mesh, [&](const MeshCoordinates& a, const MeshCoordinates& b) {
                  return same_experts(a, b) && a.expert % each == b.expert % each;
                }));
      EXPECT_EQ(members(hosts->within, rank),
                expected_members(mesh, [&](const MeshCoordinates& a, const MeshCoordinates& b) {
                  return same_experts(a, b) && a.expert / each == b.expert / each;
                }));
      EXPECT_EQ(hosts->across.rank(), mesh.index.expert / each);
      EXPECT_EQ(hosts->within.rank(), mesh.index.expert % each);
    }
    EXPECT_EQ(mesh.data.rank(), mesh.index.data);
    EXPECT_EQ(mesh.expert.rank(), mesh.index.expert);
    EXPECT_EQ(mesh.expert_data.rank(), mesh.index.expert_data);
    EXPECT_EQ(mesh.expert.size(), shape.expert);
    EXPECT_EQ(mesh.tensor.rank(), mesh.index.tensor);
    EXPECT_EQ(mesh.pipeline.rank(), mesh.index.pipeline);
    EXPECT_EQ(mesh.expert_tensor.rank(), mesh.index.expert_tensor);
    EXPECT_EQ(mesh.data_tensor.size(), mesh.world.size() / shape.pipeline);
  }
  EXPECT_GE(tried, 1);
}

}  // namespace
}  // namespace lyceum
