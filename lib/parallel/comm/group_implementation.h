#pragma once

#include "parallel/comm/carrier.h"
#include "parallel/comm/mpi_carrier.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

/// The state of a ProcessGroup: its communicator, the transport of its tensors, and its traffic counters.
struct ProcessGroup::Implementation {
  /// `transport`: null if tensors are in host memory. `carrier`: made by the transport; null if no tensor data is sent
  /// by it (one rank, a rehearsal, or host memory without `on()`).
  Implementation(std::shared_ptr<Communicator> communicator, std::shared_ptr<TensorTransport> transport,
                 std::unique_ptr<Carrier> carrier);

  /// Adds the operation's bytes to `counter`. Returns true if the caller must start the operation; in a rehearsal, only
  /// records it and returns false. Throws if the group is broken.
  bool enter(const Operation& operation, std::int64_t& counter) const;
  /// Adds the messages that an operation would send if this were not a rehearsal to ProcessGroup::sent_messages().
  /// `messages` returns their number; it is called only in rehearsals that count messages.
  template <class F>
  void rehearse_messages(const F& messages) const {
    if (communicator->shared()->rehearses_messages) communicator->shared()->sent_messages += messages();
  }
  /// Calls enter() and returns the operation's state for MPI messages; null in a rehearsal.
  std::unique_ptr<Messages> start(const Operation& operation, std::int64_t& counter) const;
  /// Returns the carrier of this group's tensors.
  Carrier& tensors() { return carrier ? *carrier : host; }
  /// Copies between two buffers of this rank, in the memory where its tensors are.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// Starts an all-to-all whose rows carrier `by` sends. The exchanges must have passed require_fitting().
  Pending exchange(std::span<const AllToAll> exchanges, Carrier& by, Where where);

  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<TensorTransport> transport;
  MpiCarrier host;
  std::unique_ptr<Carrier> carrier;
  Traffic traffic{};
};

/// Throws if an exchange does not fit the group: if it does not have one count per rank, if a count is negative, if the
/// counts of rows that this rank sends to itself and expects from itself differ, or if row_bytes is not positive.
void require_fitting(const ProcessGroup& group, const ProcessGroup::AllToAll& exchange);

}  // namespace lyceum
