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
#include <utility>

#include "core/clock.h"
#include "core/gpu.h"
#include "core/launcher.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/deadline.h"
#include "parallel/comm/host_name.h"
#include "parallel/comm/process_state.h"

namespace lyceum {
namespace {

/// Returns the time limit of MPI_Init, which waits for all ranks of the job, without end if one of them is another
/// program.
Deadline start_limit(const std::string& host, const LastWord& last_word) {
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
  // Staggered: once one rank has printed, the launcher has time to end the ranks of other machines before they print.
  return {seconds + 0.25 * std::min(rank, 20), line, [last_word] { return last_word.take(); }};
}

void check(int code, const char* operation) {
  if (code != MPI_SUCCESS) fail(ExitCode::failed, "{}: {}", operation, mpi_error_text(code));
}

/// Suppresses Open MPI 4's message about MPI_Abort, as `mpirun -q` does for mpirun's own messages; the error line has
/// been printed already.
void suppress_abort_message() {
  if (void* quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet")) *static_cast<bool*>(quiet) = true;
}

}  // namespace

struct MpiSession::ReportBarrier {
  MPI_Comm group = MPI_COMM_NULL;
};

MpiSession::MpiSession() : host_(host_name()), report_barrier_(std::make_unique<ReportBarrier>()) {
  if (!launched_rank()) {
    const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
    require_usage(!tasks || std::atoi(tasks) <= 1,
                  "srun started {} tasks without MPI: start them with mpirun, or with srun --mpi=pmix",
                  tasks ? tasks : "");
    return;
  }
  prepare_cuda_for_ranks();  // must precede all threads: it changes the environment
  const Deadline start = start_limit(host_, last_word_);
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
  int lowest = rank_;
  check(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, machine), "MPI_Allreduce");
  with_rank_zero_ = lowest == 0;
  check(MPI_Comm_free(&machine), "MPI_Comm_free");
  // If every rank's local index is the expected one, consecutive ranks share a machine.
  const bool in_order = local_rank_ == rank_ % local_size_;
  std::array<int, 2> least{in_order ? local_size_ : 0, -local_size_};
  check(MPI_Allreduce(MPI_IN_PLACE, least.data(), 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  host_ranks_ = least[0] == -least[1] ? least[0] : 0;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &report_barrier_->group), "MPI_Comm_dup");
}

MpiSession::~MpiSession() {
  if (started_ && std::uncaught_exceptions() == 0 && mpi_running()) MPI_Finalize();
}

ProcessGroup MpiSession::world(double timeout) const {
  return started_ ? ProcessGroup::world(timeout) : ProcessGroup::self("world");
}

void MpiSession::report(const Failure& failure) const {
  // Seconds. After a failure, mpirun may take up to odls_base_sigkill_timeout to end the other processes.
  constexpr double time_of_rank_zero = 0.5, time_of_others = 3, time_of_reporter = 60, time_of_launcher = 60;
  const bool of_input = failure.code == ExitCode::usage || failure.code == ExitCode::bad_input;
  // The head start that this rank gives to the one that should report.
  const double head_start = [&] {
    if (failure.reported_elsewhere) return time_of_reporter;
    if (rank_ == 0) return 0.0;
    return with_rank_zero_ && !of_input ? time_of_rank_zero : time_of_others;
  }();
  MPI_Request barrier = MPI_REQUEST_NULL;
  bool works = of_input && size_ > 1 && started_ && mpi_running(), joined = false;
  const auto all_report = [&] {
    int all = 0;
    if (works && !std::exchange(joined, true)) works = MPI_Ibarrier(report_barrier_->group, &barrier) == MPI_SUCCESS;
    // MPI_Test also works once the barrier is complete
    if (works) works = MPI_Test(&barrier, &all, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    return works && all;
  };
  const auto wait_while = [&](double seconds, const std::function<bool()>& reason) {
    for (const auto begin = Clock::now(); seconds_since(begin) < seconds && reason();) {
      if (failure.ended && failure.ended()) std::_Exit(static_cast<int>(failure.code));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  bool all = false;
  wait_while(head_start, [&] {
    all = all_report();
    const bool reporter_gone = failure.reporter != 0 && is_gone(process_state(failure.reporter));
    return !all && !last_word_.taken() && !reporter_gone;
  });
  if (!all && last_word_.take()) {
    std::fflush(stdout);
    std::fputs((failure.line + '\n').c_str(), stderr);
    if (rank_ == 0) wait_while(time_of_others - 1, [&] { return works && !all_report(); });
    abort(failure.code);
  }
  wait_while(time_of_launcher, [&] {
    all_report();
    return true;
  });
  std::_Exit(static_cast<int>(failure.code));
}

void MpiSession::abort(ExitCode code) const {
  std::fflush(nullptr);
  suppress_abort_message();
  if (started_ && mpi_running()) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

void MpiSession::end(ExitCode code) const {
  if (!started_ || !launched_by_mpirun()) return;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ != 0) sleep(10);  // mpirun ends the process earlier
  abort(code);
}

}  // namespace lyceum
