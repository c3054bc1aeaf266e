#include "parallel/comm/cuda/nccl_transport.h"

#include <algorithm>
#include <bit>

#include "core/cuda_processors.h"
#include "parallel/comm/cuda/make_transport.h"
#include "parallel/comm/cuda/nccl_carrier.h"
#include "parallel/comm/pending_state.h"
#include "parallel/comm/watch.h"

namespace lyceum {

NcclTransport::NcclTransport(const CudaStream& stream, std::shared_ptr<SharedState> shared, const NcclOptions& options)
    : TensorTransport(stream),
      stream_(stream),
      shared_(std::move(shared)),
      channels_(options.channels),
      chain_(options.order == NcclOrder::serial ? std::make_unique<NcclChain>() : nullptr) {
  shared_->progress.add(*this);
  stream_.add_observer(*this);
}

NcclTransport::~NcclTransport() {
  if (channels_ > 0) leave_processors(stream_, 0);
  stream_.remove_observer(*this);
  shared_->progress.remove(*this);
}

std::unique_ptr<Carrier> NcclTransport::carrier(const std::shared_ptr<Communicator>& communicator, Where where) {
  if (channels_ > 0) leave_processors(stream_, static_cast<int>(std::bit_ceil(static_cast<unsigned>(channels_))));
  return std::make_unique<NcclCarrier>(shared_from_this(), communicator, where);
}

std::shared_ptr<NcclLane> NcclTransport::lane(std::shared_ptr<Communicator> group, std::vector<int> ranks, int tag) {
  check(cudaSetDevice(stream_.device()), "cudaSetDevice");
  return known(std::make_shared<NcclLane>(std::move(group), std::move(ranks), tag, channels_));
}

std::shared_ptr<NcclLane> NcclTransport::lane(std::shared_ptr<NcclLane> parent, std::shared_ptr<Communicator> group,
                                              int colour) {
  check(cudaSetDevice(stream_.device()), "cudaSetDevice");
  return known(std::make_shared<NcclLane>(std::move(parent), std::move(group), colour));
}

std::shared_ptr<NcclLane> NcclTransport::known(std::shared_ptr<NcclLane> lane) {
  std::erase_if(lanes_, [](const auto& other) { return other.expired(); });
  lanes_.push_back(lane);
  return lane;
}

std::vector<std::shared_ptr<NcclLane>> NcclTransport::lanes() const {
  std::vector<std::shared_ptr<NcclLane>> living;
  for (const auto& lane : lanes_) {
    if (auto one = lane.lock()) living.push_back(std::move(one));
  }
  return living;
}

void NcclTransport::require_intact(const Communicator& group, const Operation& operation) const {
  if (error_ && !given_up_) std::rethrow_exception(error_);
  require(!given_up_, "{}: an earlier operation was aborted, which also aborted the NCCL communicators; end the job",
          group.describe(operation));
}

bool NcclTransport::advance() noexcept {
  try {
    for (const auto& lane : lanes()) lane->oldest_flight();
  } catch (...) {  // a wait for the stream throws it again
  }
  return true;
}

void NcclTransport::give_up() noexcept {
  given_up_ = true;
  for (const auto& lane : lanes()) lane->abort();
}

void NcclTransport::waiting(double waited) {
  if (given_up_) return;
  shared_->progress.poll();  // operations of other ranks may need calls that have not been passed to NCCL yet
  std::shared_ptr<NcclLane> latest;
  const NcclLane::Flight* oldest = nullptr;
  try {
    for (const auto& lane : lanes()) {
      if (lane->handle()) lane->enqueued();
      const NcclLane::Flight* flight = lane->oldest_flight();
      if (!flight || (oldest && oldest->noted < flight->noted)) continue;
      oldest = flight;
      latest = lane;
    }
    shared_->ledger.wait_for(oldest ? oldest->noted : -1);
    if (oldest && waited > latest->group().timeout()) {
      latest->group().fail_timeout(oldest->operation, shared_->watch ? shared_->watch->find_cause() : Watch::Finding{});
    }
  } catch (...) {
    shared_->progress.give_up();
    shared_->ledger.wait_for(-1);
    throw;
  }
  if (shared_->watch) shared_->watch->serve(waited);
}

void NcclTransport::over() noexcept {
  advance();
  shared_->ledger.wait_for(-1);
}

bool NcclTransport::settled() {
  return std::ranges::all_of(lanes(), [](const std::shared_ptr<NcclLane>& lane) { return lane->settled(); });
}

std::shared_ptr<TensorTransport> make_nccl_transport(const CudaStream& stream, std::shared_ptr<SharedState> shared,
                                                     const NcclOptions& options) {
  return std::make_shared<NcclTransport>(stream, std::move(shared), options);
}

}  // namespace lyceum
