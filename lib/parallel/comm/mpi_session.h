#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/error.h"
#include "parallel/comm/last_word.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// MPI for the life of the program. Started by a launcher (mpirun, srun --mpi=pmix) it initialises MPI and finalises it
/// at the end; started by hand it is a job of one rank and leaves MPI alone. One object a process, made before threads.
class MpiSession {
 public:
  /// Throws a usage Error when srun started several ranks without MPI, as each would believe that it is alone. Waits
  /// for the other ranks for LYCEUM_START_TIMEOUT seconds (of the environment, default 300), then ends the process with
  /// one line and exit code 4.
  MpiSession();
  /// Finalises MPI, unless an error is on its way out: other ranks would not come along.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// All ranks of the job. `timeout`: seconds that any wait on it, or on groups split from it, may last.
  ProcessGroup world(double timeout) const;
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// This rank's place among, and the number of, the job's ranks on this machine.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  /// Ranks of each machine, where all have equally many and neighbours lie together; else 0.
  int host_ranks() const { return host_ranks_; }

  struct Failure {
    ExitCode code;
    std::string line;                 // that says why
    bool reported_elsewhere = false;  // see ReportedElsewhere
    int reporter = 0;
    std::function<bool()> ended{};  // true once the launcher has asked this process to end
  };
  /// Ends the job after an error that other ranks may have as well. One process of each machine prints the line, see
  /// LastWord; the others wait for the launcher to end them. Rank 0, or the rank that reports elsewhere, gets some time
  /// to be the one. Errors of the input are found by all ranks or one: then ranks of other machines learn that all have
  /// come here. Of other errors they know nothing, so they give it more time.
  [[noreturn]] void report(const Failure& failure) const;
  /// Ends every rank of the job at once with this exit code. For errors that this rank alone knows of.
  [[noreturn]] void abort(ExitCode code) const;
  /// Collective: ends the job with an exit code other than 0 that all ranks have, as returning it from `main` would,
  /// but without the two banners that Open MPI's mpirun has for that. Returns under other launchers.
  void end(ExitCode code) const;

 private:
  bool started_ = false;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, host_ranks_ = 1;
  bool with_rank_zero_ = true;  // on its machine
  LastWord last_word_;
  std::string host_;
  struct Ends;  // the communicator on which ranks meet that report
  std::unique_ptr<Ends> ends_;
};

}  // namespace lyceum
