#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Determines the cause of a wait that has timed out. Ranks of one machine keep their ledgers in shared memory, so the
/// last operations of a stopped or dead process can be read. Ledgers of another machine are requested from its ranks by
/// messages; one of them must be waiting (and therefore answering). Nothing is sent until a wait has lasted for a
/// while, and no thread runs.
class Watch {
 public:
  /// Collective over `world`. Moves the world's ledger to shared memory. Takes ownership of `questions`, a communicator
  /// of the same ranks. `machine`: see ProcessGroup::world().
  static std::shared_ptr<Watch> create(const ProcessGroup& world, MPI_Comm questions, const std::string& machine);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Answers requests of ranks on other machines. To be called repeatedly during a wait; `waited`: its duration so far,
  /// in seconds.
  void serve(double waited);
  /// The cause of a timeout.
  struct Finding {
    std::string reason{};         // the result of verdict(); empty if the cause is not known
    bool found_by_other = false;  // another rank has found the cause and reports it
    int finder = 0;               // process id of that rank; 0 if it is on another machine
  };
  /// Reads all ledgers that can be obtained within a few seconds and determines the cause. Not collective: call it on a
  /// rank whose wait has timed out. One rank of the job does the work; on other ranks the call returns when that rank
  /// has finished. If that rank ends or stops before, another one takes over.
  Finding find_cause();

 private:
  struct Segment;
  Watch(const ProcessGroup& world, MPI_Comm questions, std::vector<std::string> hosts);
  /// Collective. Allocates the memory that the ranks of a machine share, and moves the ledger there.
  void share_pages(const ProcessGroup& world, const std::string& machine);
  /// True if the rank does not share memory with this one.
  bool elsewhere(int rank) const { return machine_of_[static_cast<std::size_t>(rank)] != machine_; }
  /// Returns copies of the pages of this machine, with the states of the processes.
  std::vector<LedgerPage> local_pages() const;
  /// Sends this machine's pages to the ranks that have asked for them.
  void answer();
  /// Asks all ranks of other machines for their pages.
  void ask() const;
  /// Receives one answer, if one has arrived, and stores its pages by rank.
  void collect(std::vector<LedgerPage>& pages) const;
  /// Returns the cause, or nothing if a rank of another machine has found it.
  std::optional<std::string> search();
  /// True if a rank of another machine has found the cause. Waits for a rank that has asked this one. If both have
  /// asked (`asked_too`), the lower rank wins and does not wait.
  bool other_machine_found(bool asked_too);
  /// True if a rank of another machine has notified this one that it has found the cause, or if MPI fails. Does not
  /// block.
  bool notified() const;
  /// Sends a message to every rank of other machines: this rank has found the cause. Waits at most half a second for
  /// the messages to be sent.
  void notify() const;

  int rank_;
  Ledger& ledger_;
  MPI_Comm questions_;
  std::vector<std::string> hosts_;  // host name, by rank
  std::vector<int> machine_of_;     // by rank: the lowest rank with which it shares memory, as the id of its machine
  int machine_ = 0;                 // machine_of_[rank_]
  std::vector<int> neighbours_;     // ranks that share memory with this one, including itself, ascending
  std::shared_ptr<Segment> segment_;
  int asked_by_ = -1;  // the lowest rank that has asked
  bool used_ = false;  // unreceived messages may be left on the communicator, so it must not be freed
  double served_ = 0;  // time of the last answer(), by monotonic_seconds()
  std::vector<std::shared_ptr<std::vector<LedgerPage>>> answers_;  // pages that are being sent
};

}  // namespace lyceum
