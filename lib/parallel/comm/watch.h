#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/ledger.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Finds out why a rank waits in vain. Ranks of one machine keep their ledgers in memory that all of them see, so that
/// what a stopped or dead process did last can be read. What happens on other machines is asked of their ranks that
/// wait too; it takes one of them. Nothing is sent, and nothing else runs in the job, until a wait has lasted long.
class Watch {
 public:
  /// Collective over `world`, whose ledger moves to shared memory. Takes `questions` over, a communicator of the same
  /// ranks. `machine`: see ProcessGroup::world().
  static std::shared_ptr<Watch> create(const ProcessGroup& world, MPI_Comm questions, const std::string& machine);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Answers what ranks of other machines ask; to be called while waiting, `waited` seconds so far.
  void serve(double waited);
  /// Why a wait lasts too long.
  struct Finding {
    std::string reason{};         // the result of verdict(); empty if it is not known
    bool found_by_other = false;  // another rank found out and is to report it
    int finder = 0;               // its process; 0 on another machine
  };
  /// Reads all ledgers that can be got within seconds. One rank of the job finds out; on the others the call lasts
  /// until it has. If that rank ends or stops meanwhile, another one finds out.
  Finding find_out();

 private:
  struct Segment;
  Watch(const ProcessGroup& world, MPI_Comm questions, std::vector<std::string> hosts);
  void share_pages(const ProcessGroup& world, const std::string& machine);
  bool elsewhere(int rank) const { return machine_of_[static_cast<std::size_t>(rank)] != machine_; }
  std::vector<LedgerPage> local_pages() const;
  void answer();
  void ask() const;
  /// Takes one answer, where there is one.
  void collect(std::vector<LedgerPage>& pages) const;
  /// The reason, or none if a rank of another machine found out.
  std::optional<std::string> search();
  /// True if a rank of another machine found out. Waits for one that asked this rank, unless this one asked too and is
  /// the lower one.
  bool other_machine_found(bool asked_too);
  bool told() const;
  void tell() const;

  int rank_;
  Ledger& ledger_;
  MPI_Comm questions_;
  std::vector<std::string> hosts_;  // by rank
  std::vector<int> machine_of_;     // by rank: the lowest rank that shares memory with it
  int machine_ = 0;                 // of this rank
  std::vector<int> neighbours_;     // ranks that share memory with this one, itself too
  std::shared_ptr<Segment> segment_;
  int asked_by_ = -1;  // the lowest rank that asked
  bool used_ = false;  // messages may be left on the communicator: it is not to be freed
  double served_ = 0;
  std::vector<std::shared_ptr<std::vector<LedgerPage>>> answers_;  // being sent
};

}  // namespace lyceum
