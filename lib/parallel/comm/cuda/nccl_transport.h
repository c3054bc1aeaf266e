#pragma once

#include <memory>
#include <vector>

#include "core/polling.h"
#include "parallel/comm/carrier.h"
#include "parallel/comm/cuda/nccl_lane.h"

namespace lyceum {

/// The lanes of all groups that use one stream. While the host waits for the stream, which may wait for other ranks, it
/// looks whether they are still there: a wait that lasts longer than a group's timeout, or an error that NCCL met, ends
/// all communicators, and so what waits on the GPU.
class NcclTransport final : public TensorTransport,
                            public std::enable_shared_from_this<NcclTransport>,
                            private Progress::Task,
                            private WaitObserver {
 public:
  NcclTransport(const CudaStream& stream, std::shared_ptr<SharedState> shared);
  ~NcclTransport();

  std::unique_ptr<Carrier> carrier(const std::shared_ptr<Communicator>& communicator, Where where) override;
  std::shared_ptr<NcclLane> lane(std::shared_ptr<Communicator> group, std::vector<int> ranks, int tag);
  std::shared_ptr<NcclLane> lane(std::shared_ptr<NcclLane> parent, std::shared_ptr<Communicator> group, int colour);
  cudaStream_t compute() const { return stream_.handle(); }
  /// Throws when communicators were ended before their time.
  void require_intact(const Communicator& group, const Operation& operation) const;

 private:
  bool advance() noexcept override;
  void give_up() noexcept override;
  void waiting(double waited) override;
  void over() noexcept override;
  std::vector<std::shared_ptr<NcclLane>> lanes() const;
  std::shared_ptr<NcclLane> known(std::shared_ptr<NcclLane> lane);

  CudaStream stream_;
  std::shared_ptr<SharedState> shared_;
  std::vector<std::weak_ptr<NcclLane>> lanes_;  // one that was split off behind the one it comes from
  bool given_up_ = false;
};

}  // namespace lyceum
