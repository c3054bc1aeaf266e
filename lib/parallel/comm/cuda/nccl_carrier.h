#pragma once

#include <functional>
#include <map>

#include "parallel/comm/cuda/nccl_transport.h"

namespace lyceum {

/// Tensors on a GPU, by NCCL. A group has one lane, split off that of the group that it was split from, and one for the
/// messages of each pair of ranks and direction, made at the first of them: a receive may be started before what its
/// sender waits for.
class NcclCarrier final : public Carrier {
 public:
  /// Connects a group that was not split from one with a lane; waits for its ranks.
  NcclCarrier(std::shared_ptr<NcclTransport> transport, std::shared_ptr<Communicator> group, Where where);
  NcclCarrier(std::shared_ptr<NcclTransport> transport, std::shared_ptr<Communicator> group,
              std::shared_ptr<NcclLane> lane);

  Started all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) override;
  Started reduce_scatter(const Operation& operation, const Parts& parts) override;
  Started all_gather(const Operation& operation, const Parts& parts) override;
  Started send(const Operation& operation, const Tensor& values) override;
  Started receive(const Operation& operation, const Tensor& values) override;
  Started all_to_all(const Operation& operation, const ProcessGroup::AllToAll& exchange) override;
  /// Waits for all ranks of this group, and until nothing is under way on it.
  std::unique_ptr<Carrier> split(const std::shared_ptr<Communicator>& child, int colour, Where where) override;

 private:
  using Calls = std::function<void(const NcclLane&)>;
  Started start(std::shared_ptr<NcclLane> lane, const Operation& operation, Calls calls);
  std::shared_ptr<NcclLane> pair(int from, int to);
  std::shared_ptr<NcclLane> split_off(const std::shared_ptr<Communicator>& child, int colour, const Operation& split);

  std::shared_ptr<NcclTransport> transport_;
  std::shared_ptr<Communicator> group_;
  std::shared_ptr<NcclLane> lane_;
  std::map<std::pair<int, int>, std::shared_ptr<NcclLane>> pairs_;  // by sender and receiver
};

}  // namespace lyceum
