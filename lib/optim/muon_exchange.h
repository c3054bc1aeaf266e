#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/muon_group.h"
#include "optim/muon_rounds.h"
#include "optim/update_rule.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Collective over the ranks of a pipeline stage. Returns a new group of the ranks that hold parts of the units of
/// `group`, in the order of MuonGroup::members.
ProcessGroup new_muon_group(const Mesh& mesh, ParameterUnit::Group group);

/// Orthogonalises the matrices of the units of one group (ParameterUnit::Group): brings the parts of each to its owner
/// and the results back, in rounds (MuonRound). With a single rank the launches may be recorded in a graph.
class MuonExchange {
 public:
  /// Collective over the ranks of a pipeline stage. `shares`: all trained shares of this rank; those of other groups
  /// are ignored. Their gradient memory must outlive this and must not move. `loads` [ranks of the stage]: FLOPs of the
  /// matrices of other groups, by owner; those of this group are added.
  MuonExchange(const Stream& stream, const Mesh& mesh, std::span<const UpdatedShare> shares,
               const RuleAssignment& rules, ParameterUnit::Group group, std::vector<double>& loads);

  /// Collective. Replaces the update U of each matrix, which is in the gradients of the shares, by 0.2 √max(rows, cols)
  /// · X, where X is U orthogonalised (newton_schulz.h), unless the verdict is to skip the step. The host waits only
  /// for other ranks.
  void run(std::span<const StepVerdict> verdict) const;

  /// Returns the bytes that this rank has sent so far.
  const ProcessGroup::Traffic& traffic() const { return group_.traffic(); }

 private:
  /// A table of boxes on the device, and the number of their blocks.
  struct Boxes {
    Tensor table;
    std::int64_t blocks = 0;
  };
  struct Round {
    MuonRound plan;
    Boxes own, sent, received, returned, taken;
  };
  using Shares = std::vector<const UpdatedShare*>;
  MuonLayout layout_of(const Shares& shares, const RuleAssignment& rules, int rank, const ProcessGroup* sharers) const;
  Boxes table_of_boxes(std::span<const ShareBox> boxes, const Shares& shares) const;
  Boxes table_of_boxes(std::vector<MovedBox> boxes) const;
  template <class T>
  void run_round(const Round& round, std::span<const StepVerdict> verdict) const;
  /// Sends the parts of `buffer` to the ranks of the group, and returns the parts received from them.
  Tensor exchange(const Tensor& buffer, std::span<const std::int64_t> sent,
                  std::span<const std::int64_t> received) const;

  Stream stream_;
  ProcessGroup group_;
  MatrixSharing sharing_;
  DType type_ = DType::f32;  // of the values of the shares
  std::vector<Round> rounds_;
};

}  // namespace lyceum
