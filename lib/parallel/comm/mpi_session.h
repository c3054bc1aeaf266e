#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/error.h"
#include "parallel/comm/last_word.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// Initialises MPI for the lifetime of the program and finalises it at the end, if the process was started by a
/// launcher (mpirun, srun --mpi=pmix). Otherwise the process is a job of one rank, and MPI is not used. Make one object
/// per process, before any threads. Only the thread that made it may use MPI (MPI_THREAD_FUNNELED).
class MpiSession {
 public:
  /// Throws a usage Error if srun started several ranks without MPI, since each would be a separate job of one rank.
  /// Waits for the other ranks for LYCEUM_START_TIMEOUT seconds (environment variable, default 300); after that it
  /// prints one line and ends the process with exit code 4.
  MpiSession();
  /// Finalises MPI, unless an exception propagates: other ranks might not enter MPI_Finalize, which waits for them.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// Returns the group of all ranks of the job. `timeout`: maximum duration in seconds of waits in this group and in
  /// groups split from it.
  ProcessGroup world(double timeout) const;
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Return this rank's index among the ranks of the job on this machine, and their number.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  /// Returns the number of ranks on each machine, if it is the same on all machines and consecutive ranks share a
  /// machine; 0 otherwise.
  int host_ranks() const { return host_ranks_; }

  /// An error that ends the job.
  struct Failure {
    ExitCode code;
    std::string line;                 // message that states the cause
    bool reported_elsewhere = false;  // see ReportedElsewhere
    /// If `reported_elsewhere`: process id of the rank that reports; 0 if it is on another machine.
    int reporter = 0;
    std::function<bool()> ended{};  // true once the launcher has asked this process to end
  };
  /// Ends the job after an error that other ranks may have too. One process per machine prints the line (LastWord); the
  /// others wait for the launcher to end them. Rank 0, or the rank that reports according to ReportedElsewhere, gets a
  /// head start. Input errors (usage, bad_input) are found either by all ranks or by one: ranks of other machines meet
  /// in a barrier to find out which. For other errors they cannot know, so they wait longer before they print.
  [[noreturn]] void report(const Failure& failure) const;
  /// Ends all ranks of the job at once with this exit code. For errors that only this rank has.
  [[noreturn]] void abort(ExitCode code) const;
  /// Collective over the job. Ends the job with `code`, which must not be 0 and must be the same on all ranks. Unlike a
  /// return from `main`, this does not make Open MPI's mpirun print two banners. Returns without effect if the launcher
  /// is not mpirun; the caller then returns `code` from `main`.
  void end(ExitCode code) const;

 private:
  bool started_ = false;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, host_ranks_ = 1;
  bool with_rank_zero_ = true;  // rank 0 is on this machine
  LastWord last_word_;
  std::string host_;
  struct ReportBarrier;  // duplicate of MPI_COMM_WORLD for the barrier in report()
  std::unique_ptr<ReportBarrier> report_barrier_;
};

}  // namespace lyceum
