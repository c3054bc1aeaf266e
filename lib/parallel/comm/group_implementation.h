#pragma once

#include "parallel/comm/carrier.h"
#include "parallel/comm/mpi_carrier.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// What a group is made of: its ranks, how its tensors travel, and what it has counted.
struct ProcessGroup::Implementation {
  /// `transport`: null for tensors in the host's memory. `carrier`: of the transport; null where nothing travels by it.
  Implementation(std::shared_ptr<Communicator> communicator, std::shared_ptr<TensorTransport> transport,
                 std::unique_ptr<Carrier> carrier);

  /// Whether an operation is to be started; in a rehearsal it is over once it is noted. Adds its bytes to `counter`.
  bool enter(const Operation& operation, std::int64_t& counter) const;
  /// The same for one that only MPI does; null in a rehearsal.
  std::unique_ptr<Messages> start(const Operation& operation, std::int64_t& counter) const;
  Carrier& tensors() { return carrier ? *carrier : host; }
  /// Between two places of this rank's tensors.
  void copy(void* to, const void* from, std::size_t bytes) const;
  Pending exchange(const AllToAll& exchange, Carrier& by, Where where);

  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<TensorTransport> transport;
  MpiCarrier host;
  std::unique_ptr<Carrier> carrier;
  Traffic traffic{};
};

/// Throws where an exchange does not fit its group.
void require_fitting(const ProcessGroup& group, const ProcessGroup::AllToAll& exchange);

}  // namespace lyceum
