#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/comm/progress.h"

namespace lyceum {

/// What an error says about the operation that it happened in.
struct Operation {
  const char* name;
  std::int64_t bytes;  // handed over by this rank
  int peer = -1;       // the other rank, where there is only one
};

/// An owned MPI communicator with the things that every operation on it needs: its place in errors, its timeout, and
/// whether an operation on it was given up. Without MPI (or alone) it is a group of one with no handle.
class Communicator {
 public:
  using SharedProgress = std::shared_ptr<Progress>;
  /// A group of one.
  Communicator(std::string name, double timeout, SharedProgress progress)
      : name_(std::move(name)), timeout_(timeout), progress_(std::move(progress)) {}
  /// Takes `handle` over; its errors are returned from now on. `timeout`: seconds.
  Communicator(MPI_Comm handle, std::string name, double timeout, SharedProgress progress);
  /// Frees the handle, unless the job is failing or MPI has ended: freeing is collective and must not hang.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool alone() const { return size_ == 1; }
  const std::string& name() const { return name_; }
  double timeout() const { return timeout_; }
  const SharedProgress& progress() const { return progress_; }

  /// Throws what an MPI return code other than MPI_SUCCESS means.
  void check(int code, const Operation& operation) const;
  [[noreturn]] void fail_timeout(const Operation& operation) const;
  /// An operation was given up half-way: ranks no longer agree on what comes next, so every later one is refused.
  void mark_broken() { broken_ = true; }
  void require_intact(const Operation& operation) const;
  /// "all_reduce of 4096 B on group data (rank 3 of 8)", "send of 64 B to rank 1 on group pipeline (rank 0 of 2)"
  std::string describe(const Operation& operation) const;

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
  std::string name_;
  double timeout_;
  SharedProgress progress_;
  int rank_ = 0, size_ = 1;
  bool broken_ = false;
};

/// The text of an MPI error code.
std::string mpi_error_text(int code);
/// Whether MPI calls are allowed: initialised and not finalised.
bool mpi_running();

}  // namespace lyceum
