#include "parallel/comm/communicator.h"

#include <exception>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace lyceum {

Communicator::Communicator(Identity identity, std::shared_ptr<SharedState> shared, std::vector<int> members, int rank)
    : identity_(std::move(identity)),
      shared_(std::move(shared)),
      members_(std::move(members)),
      rank_(rank),
      position_(shared_->ledger.join(identity_.number)) {
  entry_.group = identity_.number;
  entry_.members = size();
  entry_.group_rank = rank_;
  put(entry_.group_name, identity_.name);
}

namespace {

int size_of(MPI_Comm handle) {
  int size = 0;
  return MPI_Comm_size(handle, &size) == MPI_SUCCESS ? size : 0;
}

}  // namespace

Communicator::Communicator(MPI_Comm handle, Identity identity, std::shared_ptr<SharedState> shared)
    : Communicator(std::move(identity), std::move(shared), std::vector<int>(static_cast<std::size_t>(size_of(handle))),
                   0) {
  handle_ = handle;
  const Operation made{"creating a communicator", 0, 0, std::source_location::current()};
  check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), made);
  check(MPI_Comm_rank(handle_, &rank_), made);
  entry_.group_rank = rank_;
  std::vector<int> ranks(members_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group own = MPI_GROUP_NULL, job = MPI_GROUP_NULL;
  check(MPI_Comm_group(handle_, &own), made);
  check(MPI_Comm_group(MPI_COMM_WORLD, &job), made);
  check(MPI_Group_translate_ranks(own, size(), ranks.data(), job, members_.data()), made);
  check(MPI_Group_free(&own), made);
  check(MPI_Group_free(&job), made);
}

Communicator::~Communicator() {
  shared_->ledger.leave(position_);
  if (handle_ == MPI_COMM_NULL || broken_ || std::uncaught_exceptions() > 0 || !mpi_running()) return;
  MPI_Comm_free(&handle_);
}

Communicator::Identity Communicator::child(std::string name, int colour) {
  const std::uint64_t number = child_number(identity_.number, name, colour, children_[name]++);
  return {std::move(name), number};
}

std::int64_t Communicator::note(const Operation& operation) {
  entry_.from = entry_.to = -1;
  if (operation.peer >= 0) {
    const int self = members_[static_cast<std::size_t>(rank_)],
              peer = members_[static_cast<std::size_t>(operation.peer)];
    const bool sends = std::string_view(operation.name) == "send";
    entry_.from = sends ? self : peer;
    entry_.to = sends ? peer : self;
    entry_.index = messages_[{entry_.from, entry_.to}]++;
  } else {
    entry_.index = started_++;
  }
  entry_.size = operation.where.unit > 0 ? operation.where.unit : operation.size;
  entry_.bytes = operation.bytes;
  entry_.line = static_cast<std::int32_t>(operation.where.location.line());
  put(entry_.operation, operation.name);
  put(entry_.file, file_of(operation.where.location));
  return shared_->ledger.start(entry_, position_);
}

void Communicator::check(int code, const Operation& operation) const {
  if (code == MPI_SUCCESS) return;
  fail(ExitCode::failed, "{}: {}; all ranks of the group must call it, with matching sizes", describe(operation),
       mpi_error_text(code));
}

void Communicator::fail_timeout(const Operation& operation, const Watch::Finding& finding) const {
  const std::string reason = finding.reason.empty() ? "another rank is gone or stuck" : finding.reason;
  const std::string message = format_message("{} waited {} s: {}; raise run.timeout_seconds if a step takes longer",
                                             {describe(operation), timeout(), reason});
  const auto here = std::source_location::current();
  if (finding.found_by_other) throw ReportedElsewhere(message, here, finding.finder);
  throw Error(ExitCode::failed, message, here);
}

void Communicator::require_intact(const Operation& operation) const {
  if (!broken_) return;
  fail(ExitCode::failed,
       "{}: an earlier operation on this group was aborted, so its ranks are no longer in step; end the job",
       describe(operation));
}

std::string Communicator::describe(const Operation& operation) const {
  const std::string_view name = operation.name;
  std::string peer;
  if (operation.peer >= 0) {
    peer = format_message(name == "send" ? " to rank {}" : " from rank {}", {std::int64_t{operation.peer}});
  }
  return format_message(
      "{} of {} B{} on group {} (rank {} of {})",
      {std::string(name), operation.bytes, peer, identity_.name, std::int64_t{rank_}, std::int64_t{size()}});
}

std::uint64_t mixed(std::uint64_t number, std::uint64_t other) {
  // The finaliser of MurmurHash3, applied to Boost's hash_combine.
  std::uint64_t x = number ^ (other + 0x9e3779b97f4a7c15u + (number << 6) + (number >> 2));
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

std::uint64_t child_number(std::uint64_t parent, std::string_view name, int colour, std::uint64_t birth) {
  return mixed(mixed(mixed(parent, name), static_cast<std::uint64_t>(colour)), birth);
}

std::uint64_t mixed(std::uint64_t number, std::string_view text) {
  for (const char c : text) number = mixed(number, static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  return mixed(number, static_cast<std::uint64_t>(text.size()));
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
