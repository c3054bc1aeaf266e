#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "core/polling.h"
#include "parallel/comm/carrier.h"
#include "parallel/comm/cuda/nccl_chain.h"
#include "parallel/comm/cuda/nccl_lane.h"

namespace lyceum {

/// Sends tensors by NCCL. Owns the list of lanes of all groups that use one stream. While the host waits for the
/// stream, which may itself be waiting for other ranks, it polls the lanes. If the wait exceeds a group's timeout or
/// NCCL reports an error, it aborts all NCCL communicators, which also ends the kernels that wait on the GPU.
class NcclTransport final : public TensorTransport,
                            public std::enable_shared_from_this<NcclTransport>,
                            private Progress::Task,
                            private WaitObserver {
 public:
  /// A stream has at most one transport with limited channels, since the last one sets the multiprocessors to leave.
  NcclTransport(const CudaStream& stream, std::shared_ptr<SharedState> shared, const NcclOptions& options = {});
  ~NcclTransport();

  /// Makes a carrier of NCCL. From then on, persistent kernels of the stream leave as many multiprocessors to NCCL as
  /// NcclOptions::channels says, see leave_processors().
  std::unique_ptr<Carrier> carrier(const std::shared_ptr<Communicator>& communicator, Where where) override;
  /// Makes a lane; see the constructors of NcclLane.
  std::shared_ptr<NcclLane> lane(std::shared_ptr<Communicator> group, std::vector<int> ranks, int tag);
  std::shared_ptr<NcclLane> lane(std::shared_ptr<NcclLane> parent, std::shared_ptr<Communicator> group, int colour);
  cudaStream_t compute() const { return stream_.handle(); }
  /// Returns the order of operations with NcclOrder::serial, else null.
  NcclChain* chain() const { return chain_.get(); }
  /// Records that an operation failed with `error`. Others that have not been passed to NCCL may wait for it, so
  /// require_intact() throws the first such error.
  void fail(std::exception_ptr error) {
    if (!error_) error_ = std::move(error);
  }
  /// Throws if an operation has failed or the communicators have been aborted.
  void require_intact(const Communicator& group, const Operation& operation) const;

 private:
  bool advance() noexcept override;
  void give_up() noexcept override;
  void waiting(double waited) override;
  void over() noexcept override;
  bool settled() override;
  std::vector<std::shared_ptr<NcclLane>> lanes() const;
  std::shared_ptr<NcclLane> known(std::shared_ptr<NcclLane> lane);

  CudaStream stream_;
  std::shared_ptr<SharedState> shared_;
  const int channels_;                          // see NcclOptions
  const std::unique_ptr<NcclChain> chain_;      // see chain()
  std::vector<std::weak_ptr<NcclLane>> lanes_;  // a lane that was split off is behind its parent
  bool given_up_ = false;
  std::exception_ptr error_;  // see fail()
};

}  // namespace lyceum
