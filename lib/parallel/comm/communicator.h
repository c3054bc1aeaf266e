#pragma once

#include <mpi.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_group.h"
#include "parallel/comm/progress.h"
#include "parallel/comm/turns.h"
#include "parallel/comm/watch.h"

namespace lyceum {

/// MPI tags. Messages between two ranks with the same tag keep their order, so one tag per kind of operation is enough.
/// Only operations that exchange several rounds of messages (reductions, gathers of tensors in large groups, exchanges
/// along a tree) need a tag that distinguishes them from others in flight: Communicator::next_reduce_tag().
constexpr int all_to_all_tag = 0, all_gather_tag = 1, point_to_point_tag = 2, connect_tag = 3, connect_pair_tag = 4,
              gather_tag = 5, first_reduce_tag = 6;

/// A description of an operation, for error messages and the ledger.
struct Operation {
  const char* name;
  std::int64_t bytes;  // bytes that this rank passes, as counted by ProcessGroup::Traffic
  std::int64_t size;   // size in bytes on which all ranks must agree, see LedgerEntry::size
  Where where;
  int peer = -1;  // rank of the other side of a send or receive; -1 for collective operations
};

/// State shared by all groups that are derived from one world.
struct SharedState {
  Progress progress{};
  Ledger ledger{};
  Turns turns{};
  std::shared_ptr<Watch> watch{};                            // null for a world of one rank or a rehearsal
  bool checksums = false;                                    // see ProcessGroup::set_checksums()
  std::int64_t sent_messages = 0;                            // see ProcessGroup::sent_messages()
  bool rehearses_messages = false;                           // see ProcessGroup::rehearsal()
  double timeout = std::numeric_limits<double>::infinity();  // maximum duration of a wait, in seconds
};

/// Owns an MPI communicator and what every operation on it needs: descriptions for errors, the group's position in the
/// ledger, and a flag that is set once an operation was abandoned. A group of one rank and a group of a rehearsal have
/// no MPI handle.
class Communicator {
 public:
  struct Identity {
    std::string name;
    std::uint64_t number;  // see LedgerEntry::group
  };
  /// Makes a communicator without an MPI handle, for a group of one rank or of a rehearsal. `members`: ranks in the
  /// job, by rank of the group.
  Communicator(Identity identity, std::shared_ptr<SharedState> shared, std::vector<int> members, int rank);
  /// Takes ownership of `handle` and sets its error handler to MPI_ERRORS_RETURN.
  Communicator(MPI_Comm handle, Identity identity, std::shared_ptr<SharedState> shared);
  /// Frees the handle, unless the group is broken, an exception propagates or MPI has ended: freeing is collective and
  /// could hang.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  bool alone() const { return size() == 1; }
  /// True if operations are only recorded, not executed (ProcessGroup::rehearsal()).
  bool rehearses() const { return !alone() && handle_ == MPI_COMM_NULL; }
  const std::string& name() const { return identity_.name; }
  double timeout() const { return shared_->timeout; }
  const std::shared_ptr<SharedState>& shared() const { return shared_; }
  /// Returns the rank in the job of each rank of the group.
  const std::vector<int>& members() const { return members_; }
  /// Returns the identity of the next group with this name and colour that is split from this group. Counts groups per
  /// name, so all ranks must call it in the same order.
  Identity child(std::string name, int colour);

  /// Returns a tag for an operation of several rounds. Tags repeat after 16384 operations.
  int next_reduce_tag() { return first_reduce_tag + static_cast<int>(reductions_++ % 16384); }

  /// Records the start of an operation in the ledger. Returns the number of its entry.
  std::int64_t note(const Operation& operation);

  /// Throws an Error with MPI's text and a description of the operation, unless `code` is MPI_SUCCESS. Does not mark
  /// the group as broken.
  void check(int code, const Operation& operation) const;
  /// Throws an Error for a timeout, or ReportedElsewhere if another rank has found the cause.
  [[noreturn]] void fail_timeout(const Operation& operation, const Watch::Finding& finding) const;
  /// Marks the group as unusable after an operation was abandoned: its ranks no longer agree on the next operation.
  void mark_broken() { broken_ = true; }
  bool broken() const { return broken_; }
  /// Throws if the group is marked as broken.
  void require_intact(const Operation& operation) const;
  /// Returns e.g. "all_reduce of 4096 B on group data (rank 3 of 8)" or "send of 64 B to rank 1 on group pipeline (rank
  /// 0 of 2)".
  std::string describe(const Operation& operation) const;

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
  Identity identity_;
  std::shared_ptr<SharedState> shared_;
  std::vector<int> members_;
  int rank_ = 0;
  bool broken_ = false;
  int position_;                  // index in LedgerPage::positions; -1 if none was free
  LedgerEntry entry_;             // template with the fields that all entries of this group share
  std::int64_t started_ = 0;      // number of collective operations
  std::uint32_t reductions_ = 0;  // number of tags that next_reduce_tag() has returned
  std::map<std::pair<int, int>, std::int64_t> messages_;  // number of messages, by sender and receiver
  std::map<std::string, std::uint64_t> children_;         // number of splits of this group per name
};

/// Hash functions: return a hash of `number` combined with the second argument.
std::uint64_t mixed(std::uint64_t number, std::uint64_t other);
std::uint64_t mixed(std::uint64_t number, std::string_view text);

/// Returns the identity number of a group: the part with this colour of the `birth`-th split (from 0) of `parent` into
/// groups with this name.
std::uint64_t child_number(std::uint64_t parent, std::string_view name, int colour, std::uint64_t birth);

/// Returns MPI's text for an error code.
std::string mpi_error_text(int code);
/// True if MPI calls are allowed: MPI is initialised and not yet finalised.
bool mpi_running();

}  // namespace lyceum
