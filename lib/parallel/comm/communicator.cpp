#include "parallel/comm/communicator.h"

#include <exception>

#include "core/error.h"

namespace lyceum {

Communicator::Communicator(MPI_Comm handle, std::string name, double timeout, SharedProgress progress)
    : handle_(handle), name_(std::move(name)), timeout_(timeout), progress_(std::move(progress)) {
  const Operation made{"making a communicator", 0};
  check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), made);
  check(MPI_Comm_rank(handle_, &rank_), made);
  check(MPI_Comm_size(handle_, &size_), made);
}

Communicator::~Communicator() {
  if (handle_ == MPI_COMM_NULL || broken_ || std::uncaught_exceptions() > 0 || !mpi_running()) return;
  MPI_Comm_free(&handle_);
}

void Communicator::check(int code, const Operation& operation) const {
  if (code == MPI_SUCCESS) return;
  fail(ExitCode::failed, "{}: {}; every rank of the group must call it with sizes that agree", describe(operation),
       mpi_error_text(code));
}

void Communicator::fail_timeout(const Operation& operation) const {
  fail(ExitCode::failed,
       "{} waited {} s: another rank is gone or stuck; raise run.timeout_seconds if a step takes longer",
       describe(operation), timeout_);
}

void Communicator::require_intact(const Operation& operation) const {
  if (!broken_) return;
  fail(ExitCode::failed, "{}: an earlier operation on this group was given up, its ranks no longer agree; end the job",
       describe(operation));
}

std::string Communicator::describe(const Operation& operation) const {
  const std::string_view name = operation.name;
  const std::string peer = operation.peer < 0 ? ""
                                              : format_message(name == "send" ? " to rank {}" : " from rank {}",
                                                               {std::int64_t{operation.peer}});
  return format_message("{} of {} B{} on group {} (rank {} of {})",
                        {std::string(name), operation.bytes, peer, name_, std::int64_t{rank_}, std::int64_t{size_}});
}

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
  return {text, static_cast<std::size_t>(length)};
}

bool mpi_running() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised && !finalised;
}

}  // namespace lyceum
