#include "optim/muon_group.h"

namespace lyceum {

std::vector<int> MuonGroup::choose_owners(std::span<const MatrixSlice> matrices, std::vector<double>& loads) const {
  std::vector<double> own;
  for (const int member : members) own.push_back(loads[static_cast<std::size_t>(member)]);
  std::vector<int> owners = lyceum::choose_owners(matrices, sharing, own);
  for (std::size_t m = 0; m < members.size(); ++m) loads[static_cast<std::size_t>(members[m])] = own[m];
  return owners;
}

MuonGroup muon_group(const MeshShape& shape, int world, const MeshCoordinates& index, ParameterUnit::Group group,
                     int zero) {
  const int stage_ranks = world / shape.pipeline;
  MuonGroup made;
  if (group == ParameterUnit::Group::expert) {
    const int ep = shape.expert, etp = shape.expert_tensor;
    made.sharing = {.copies = shape.expert_data(world), .sharers = etp};
    for (int copy = 0; copy < made.sharing.copies; ++copy) {
      for (int t = 0; t < etp; ++t) made.members.push_back((copy * ep + index.expert) * etp + t);
    }
    made.rank = index.expert_data * etp + index.expert_tensor;
  } else {
    const bool dense = group == ParameterUnit::Group::dense;
    made.sharing = {.copies = dense ? shape.data(world) : stage_ranks, .sharers = dense ? shape.tensor : 1};
    for (int rank = 0; rank < stage_ranks; ++rank) made.members.push_back(rank);
    made.rank = index.data * shape.tensor + index.tensor;
  }
  made.sharing.sharded = zero >= 1 && made.sharing.copies > 1;
  return made;
}

}  // namespace lyceum
