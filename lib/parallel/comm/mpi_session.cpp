#include "parallel/comm/mpi_session.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "core/clock.h"
#include "core/gpu.h"
#include "core/launcher.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/deadline.h"
#include "parallel/comm/host_name.h"

namespace lyceum {
namespace {

/// MPI_Init waits for all ranks of the job, for ever where one of them is another program.
Deadline start_limit(const std::string& host) {
  double seconds = 300;
  if (const char* set = std::getenv("LYCEUM_START_TIMEOUT")) {
    char* end = nullptr;
    seconds = std::strtod(set, &end);
    require_usage(
        end != set && *end == '\0' && seconds > 0 && seconds <= 1e6,
        "LYCEUM_START_TIMEOUT is '{}': set it to the longest time for all ranks to start, in seconds, at most 1e6",
        set);
  }
  const int rank = launched_rank().value_or(0);
  const std::string line = fmt::format(
      "lyceum: rank {} on {} waited {:g} s for the other ranks to start: all ranks of a job must run lyceum, on hosts "
      "that "
      "reach each other; LYCEUM_START_TIMEOUT=SECONDS waits longer",
      rank, host, seconds);
  return {seconds + 0.25 * std::min(rank, 20), line};  // the launcher ends the others once one has spoken
}

void check(int code, const char* operation) {
  if (code != MPI_SUCCESS) fail(ExitCode::failed, "{}: {}", operation, mpi_error_text(code));
}

/// Keeps in what Open MPI 4 says of MPI_Abort, after the line that says why, as `mpirun -q` does for mpirun's own.
void hush_abort() {
  if (void* quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet")) *static_cast<bool*>(quiet) = true;
}

}  // namespace

struct MpiSession::Ends {
  MPI_Comm group = MPI_COMM_NULL;
};

MpiSession::MpiSession() : host_(host_name()), ends_(std::make_unique<Ends>()) {
  if (!launched_rank()) {
    const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
    require_usage(!tasks || std::atoi(tasks) <= 1,
                  "srun started {} tasks without MPI: start them with mpirun, or with srun --mpi=pmix",
                  tasks ? tasks : "");
    return;
  }
  load_kernels_at_start();  // while there are no threads: it changes the environment
  const Deadline start = start_limit(host_);
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  started_ = true;
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  require(provided >= MPI_THREAD_FUNNELED,
          "this MPI does not support threads in addition to the one that communicates");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
  check(MPI_Comm_rank(machine, &local_rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(machine, &local_size_), "MPI_Comm_size");
  check(MPI_Comm_free(&machine), "MPI_Comm_free");
  // Where every rank's place is what it would be among neighbours, neighbours lie together.
  const bool in_order = local_rank_ == rank_ % local_size_;
  std::array<int, 2> least{in_order ? local_size_ : 0, -local_size_};
  check(MPI_Allreduce(MPI_IN_PLACE, least.data(), 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  host_ranks_ = least[0] == -least[1] ? least[0] : 0;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &ends_->group), "MPI_Comm_dup");
}

MpiSession::~MpiSession() {
  if (started_ && std::uncaught_exceptions() == 0 && mpi_running()) MPI_Finalize();
}

ProcessGroup MpiSession::world(double timeout) const {
  return started_ ? ProcessGroup::world(timeout) : ProcessGroup::self("world");
}

bool MpiSession::all_ranks_end(double seconds) const {
  if (!started_ || !mpi_running()) return false;
  MPI_Request request = MPI_REQUEST_NULL;
  bool works = MPI_Ibarrier(ends_->group, &request) == MPI_SUCCESS;
  int done = 0;
  for (const auto begun = Clock::now(); works && !done && seconds_since(begun) < seconds;) {
    works = MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    if (!done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return works && done;
}

void MpiSession::abort(ExitCode code) const {
  std::fflush(nullptr);
  hush_abort();
  if (started_ && mpi_running()) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

void MpiSession::end(ExitCode code) const {
  if (!started_ || !launched_by_mpirun()) return;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ != 0) sleep(10);  // mpirun ends it before
  abort(code);
}

}  // namespace lyceum
