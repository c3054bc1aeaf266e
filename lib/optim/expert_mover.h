#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/process_group.h"
#include "parallel/data/expert_transfers.h"
#include "parallel/expert/placement.h"

namespace lyceum {

/// The bytes of one tensor that a rank sends at a time while experts move. It has buffers for as many bytes to send and
/// to receive.
inline constexpr std::int64_t expert_round_bytes = std::int64_t{64} << 20;

/// Collective over the ranks of a pipeline stage. Returns a new group of those with the same index on expert_tensor,
/// between which experts move.
ProcessGroup new_mover_group(const Mesh& mesh);

/// Sends experts to other ranks between two steps of training, with all that an update needs of them: the masters, the
/// states of the update rule and the averages. With ZeRO every rank sends the parts that it owns. Weights in the
/// model's type are not sent, but rounded from the masters.
class ExpertMover {
 public:
  /// Collective over the ranks of a pipeline stage. `round_bytes`: see expert_round_bytes. `mesh` must outlive this.
  ExpertMover(const Mesh& mesh, Stream stream, std::int64_t round_bytes = expert_round_bytes);

  /// The experts of a layer that change their owners.
  struct Move {
    const ParameterUnit& unit;                    // of the layer's experts; it consists of their slots
    std::span<const std::int64_t> slot_elements;  // [experts]: see ExpertMemory::elements
    const Placement &before, &after;
  };
  /// Collective over the ranks of a pipeline stage with the same index on expert_tensor. Exchanges the contents of
  /// slots so that the masters, states and averages of the optimizer are those of the experts of `after`, and rounds
  /// the weights of this rank's share from its masters. Gradients are not moved: call it between steps. The caller
  /// renames the slots, renews digests and sends the new weights to other copies. Transfers run in rounds, which bounds
  /// their memory.
  void move(const Optimizer& optimizer, const Move& move) const;

  /// Returns the bytes that this rank sends for a move. Local.
  std::int64_t bytes_sent(const Optimizer& optimizer, const Move& move) const;
  /// Returns the bytes that this rank has sent so far, as all_to_all.
  const ProcessGroup::Traffic& traffic() const { return group_.traffic(); }

 private:
  ExpertMemory memory_of(const UpdatedShare& updated, const Move& move) const;

  Stream stream_;
  ProcessGroup group_;  // see ExpertMemory
  int copies_;
  std::int64_t round_bytes_;
};

}  // namespace lyceum
