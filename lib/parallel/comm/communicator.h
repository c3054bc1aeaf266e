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

/// MPI tags. Messages of one kind between two ranks keep their order; only what exchanges several rounds of messages,
/// reductions and exchanges along a tree, needs tags that distinguish those in progress at the same time:
/// Communicator::next_reduce_tag().
constexpr int all_to_all_tag = 0, all_gather_tag = 1, point_to_point_tag = 2, connect_tag = 3, connect_pair_tag = 4,
              gather_tag = 5, first_reduce_tag = 6;

/// What an error says about the operation that it happened in, and what the ledger notes of it.
struct Operation {
  const char* name;
  std::int64_t bytes;  // handed over by this rank
  std::int64_t size;   // what all ranks must agree on, see LedgerEntry
  Where where;
  int peer = -1;  // the other rank, where there is only one
};

/// What the groups share that come from one world.
struct SharedState {
  Progress progress{};
  Ledger ledger{};
  Turns turns{};
  std::shared_ptr<Watch> watch{};                            // none in a world of one
  bool checksums = false;                                    // see ProcessGroup::set_checksums()
  double timeout = std::numeric_limits<double>::infinity();  // seconds that a wait may last
};

/// An owned MPI communicator with the things that every operation on it needs: its place in errors and in the ledger,
/// and whether an operation on it was given up. Without MPI it has no handle: a group of one, or the
/// rehearsal of a group.
class Communicator {
 public:
  struct Identity {
    std::string name;
    std::uint64_t number;  // see LedgerEntry::group
  };
  /// A group of one, or in a rehearsal that of `members`, ranks of the job.
  Communicator(Identity identity, std::shared_ptr<SharedState> shared, std::vector<int> members, int rank);
  /// Takes `handle` over; its errors are returned from now on.
  Communicator(MPI_Comm handle, Identity identity, std::shared_ptr<SharedState> shared);
  /// Frees the handle, unless the job is failing or MPI has ended: freeing is collective and must not hang.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  bool alone() const { return size() == 1; }
  /// Whether operations are noted and nothing else.
  bool rehearses() const { return !alone() && handle_ == MPI_COMM_NULL; }
  const std::string& name() const { return identity_.name; }
  double timeout() const { return shared_->timeout; }
  const std::shared_ptr<SharedState>& shared() const { return shared_; }
  /// Ranks of the job, by rank of the group.
  const std::vector<int>& members() const { return members_; }
  /// The identity of the next group split from this one, which has this colour.
  Identity child(std::string name, int colour);

  int next_reduce_tag() { return first_reduce_tag + static_cast<int>(reductions_++ % 16384); }

  /// Notes the start of an operation in the ledger; its number there.
  std::int64_t note(const Operation& operation);

  /// Throws what an MPI return code other than MPI_SUCCESS means.
  void check(int code, const Operation& operation) const;
  /// Throws; a ReportedElsewhere if another rank found out why.
  [[noreturn]] void fail_timeout(const Operation& operation, const Watch::Finding& finding) const;
  /// An operation was given up half-way: ranks no longer agree on what comes next, so every later one is refused.
  void mark_broken() { broken_ = true; }
  bool broken() const { return broken_; }
  void require_intact(const Operation& operation) const;
  /// "all_reduce of 4096 B on group data (rank 3 of 8)", "send of 64 B to rank 1 on group pipeline (rank 0 of 2)"
  std::string describe(const Operation& operation) const;

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
  Identity identity_;
  std::shared_ptr<SharedState> shared_;
  std::vector<int> members_;
  int rank_ = 0;
  bool broken_ = false;
  int place_;                                             // in the ledger
  LedgerEntry entry_;                                     // with what all entries of this group share
  std::int64_t started_ = 0;                              // operations, without messages
  std::uint32_t reductions_ = 0;                          // started so far
  std::map<std::pair<int, int>, std::int64_t> messages_;  // by sender and receiver
  std::map<std::string, std::uint64_t> children_;         // of each name
};

/// A number that follows from others, for identities.
std::uint64_t mixed(std::uint64_t number, std::uint64_t other);
std::uint64_t mixed(std::uint64_t number, std::string_view text);

/// The number of the `birth`th group of that name and colour which is split from `parent`.
std::uint64_t child_number(std::uint64_t parent, std::string_view name, int colour, std::uint64_t birth);

/// The text of an MPI error code.
std::string mpi_error_text(int code);
/// Whether MPI calls are allowed: initialised and not finalised.
bool mpi_running();

}  // namespace lyceum
