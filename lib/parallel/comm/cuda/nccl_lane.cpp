#include "parallel/comm/cuda/nccl_lane.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "core/polling.h"

namespace lyceum {
namespace {

/// Maximum time, in seconds, to wait for the other ranks to finalise a communicator.
constexpr double farewell = 10;

/// Calls do not block. Resources are not shared with the parent communicator: NCCL would use one device queue for both,
/// in the order in which its threads happen to launch, which differs between ranks.
ncclConfig_t configuration(int channels) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  if (channels > 0) config.maxCTAs = channels;
  return config;
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

}  // namespace

NcclLane::NcclLane(std::shared_ptr<Communicator> group, std::vector<int> ranks, int tag, int channels)
    : group_(std::move(group)),
      ranks_(std::move(ranks)),
      channels_(channels),
      stage_(Stage::introducing),
      introduction_(std::make_unique<Introduction>()),
      stream_(new_stream()) {
  exchange_id(tag);
}

NcclLane::NcclLane(std::shared_ptr<NcclLane> parent, std::shared_ptr<Communicator> group, int colour)
    : group_(std::move(group)),
      ranks_(static_cast<std::size_t>(group_->size())),
      channels_(parent->channels_),
      stage_(Stage::splitting),
      birth_(std::make_unique<Birth>()),
      stream_(new_stream()) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  ncclConfig_t config = configuration(channels_);
  check(ncclCommSplit(parent->handle(), colour, group_->rank(), &birth_->handle, &config), "ncclCommSplit");
  birth_->parent = std::move(parent);
}

void NcclLane::exchange_id(int tag) {
  const Operation connecting{.name = "connecting", .bytes = 0, .size = 0, .where = std::source_location::current()};
  auto& [id, requests] = *introduction_;
  const auto message = [&](auto&& start) {
    group_->check(start(&requests.emplace_back(MPI_REQUEST_NULL)), connecting);
  };
  if (group_->rank() != ranks_[0]) {
    message([&](MPI_Request* r) { return MPI_Irecv(&id, sizeof id, MPI_BYTE, ranks_[0], tag, group_->handle(), r); });
    return;
  }
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  for (std::size_t i = 1; i < ranks_.size(); ++i) {
    message([&](MPI_Request* r) { return MPI_Isend(&id, sizeof id, MPI_BYTE, ranks_[i], tag, group_->handle(), r); });
  }
}

bool NcclLane::try_initialise() {
  auto& [id, requests] = *introduction_;
  int known = 0;
  const Operation connecting{.name = "connecting", .bytes = 0, .size = 0, .where = std::source_location::current()};
  group_->check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &known, MPI_STATUSES_IGNORE),
                connecting);
  if (!known) return false;
  ncclConfig_t config = configuration(channels_);
  check(ncclCommInitRankConfig(&handle_, static_cast<int>(ranks_.size()), id, rank_of(group_->rank()), &config),
        "ncclCommInitRankConfig");
  return true;
}

bool NcclLane::try_finish_split() {
  if (!birth_->parent->enqueued()) return false;
  handle_ = birth_->handle;
  birth_.reset();
  return true;
}

bool NcclLane::try_connect() {
  if (stage_ == Stage::introducing && try_initialise()) stage_ = Stage::connecting;
  if (stage_ == Stage::splitting && try_finish_split()) stage_ = Stage::connecting;
  if (stage_ == Stage::connecting && enqueued()) {
    introduction_.reset();
    stage_ = Stage::connected;
  }
  return stage_ == Stage::connected;
}

bool NcclLane::enqueued() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
  check(state, stage_ == Stage::connecting ? "connecting over NCCL" : "an operation over NCCL");
  return state != ncclInProgress;
}

// NCCL also reports errors here. They count as in the stream, so that the wait goes on until enqueued() throws them.
bool NcclLane::settled() {
  if (oldest_flight()) return false;
  ncclResult_t state = ncclSuccess;
  return !passing_ || (ncclCommGetAsyncError(handle_, &state) == ncclSuccess && state == ncclInProgress);
}

const NcclLane::Flight* NcclLane::oldest_flight() {
  while (!flights_.empty() && flights_.front().done->reached()) {
    group_->shared()->ledger.finish(flights_.front().noted);
    flights_.pop_front();
  }
  return flights_.empty() ? nullptr : &flights_.front();
}

void NcclLane::check(ncclResult_t result, Message call) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  throw Error(ExitCode::failed,
              format_message("{} failed on GPU {}, rank {} of group {}: {} ({})",
                             {call.text, device, group_->rank(), group_->name(), ncclGetErrorString(result),
                              ncclGetLastError(handle_)}),
              call.where);
}

int NcclLane::rank_of(int group_rank) const {
  return static_cast<int>(std::ranges::find(ranks_, group_rank) - ranks_.begin());
}

void NcclLane::abort() noexcept {
  stage_ = Stage::aborted;
  flights_.clear();
  passing_ = false;
  if (const auto birth = std::exchange(birth_, nullptr)) {
    birth->parent->abort();  // also aborts the split; before that, there is no handle
    handle_ = birth->handle;
  }
  if (handle_) ncclCommAbort(handle_);
  handle_ = nullptr;
}

bool NcclLane::finalise() const {
  ncclResult_t state = ncclCommFinalize(handle_);
  const double begin = monotonic_seconds();
  for (double waited = 0; waited < farewell; waited = monotonic_seconds() - begin) {
    if (state != ncclSuccess && state != ncclInProgress) return false;
    if (ncclCommGetAsyncError(handle_, &state) == ncclSuccess && state == ncclSuccess) return true;
    pause_polling(waited);
  }
  return false;
}

NcclLane::~NcclLane() {
  const bool together =
      stage_ == Stage::connected && !group_->broken() && std::uncaught_exceptions() == 0 && mpi_running();
  if (together && finalise()) {
    ncclCommDestroy(handle_);
  } else {
    abort();
  }
  if (introduction_ && std::ranges::any_of(introduction_->requests, [](auto r) { return r != MPI_REQUEST_NULL; })) {
    (void)introduction_.release();  // leaked: MPI may still write into it
  }
  cudaStreamDestroy(stream_);
}

}  // namespace lyceum
