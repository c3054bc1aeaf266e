#pragma once

#include <functional>
#include <map>

#include "parallel/comm/cuda/nccl_transport.h"

namespace lyceum {

/// Sends GPU tensors by NCCL. A group has one lane for collective operations, split off the lane of its parent group,
/// and one lane per (sender, receiver) pair, made at its first message. Pairs have separate lanes because a rank may
/// start a receive before an operation that the sender must complete first.
class NcclCarrier final : public Carrier {
 public:
  /// Connects a group that has no parent lane. Blocks until all its ranks are connected or the timeout expires.
  NcclCarrier(std::shared_ptr<NcclTransport> transport, std::shared_ptr<Communicator> group, Where where);
  /// Uses `lane`, which is connected.
  NcclCarrier(std::shared_ptr<NcclTransport> transport, std::shared_ptr<Communicator> group,
              std::shared_ptr<NcclLane> lane);

  Started all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) override;
  Started reduce_scatter(const Operation& operation, const Parts& parts) override;
  Started all_gather(const Operation& operation, const Parts& parts) override;
  Started send(const Operation& operation, const Tensor& values) override;
  Started receive(const Operation& operation, const Tensor& values) override;
  Started all_to_all(const Operation& operation, std::span<const ProcessGroup::AllToAll> exchanges) override;
  /// Blocks until all ranks of this group have called it and nothing is in flight on its lane.
  std::unique_ptr<Carrier> split(const std::shared_ptr<Communicator>& child, int colour, Where where) override;

 private:
  using Calls = std::function<void(const NcclLane&)>;
  /// Starts an operation whose NCCL calls are made by `calls`.
  Started start(std::shared_ptr<NcclLane> lane, const Operation& operation, Calls calls);
  /// Returns the lane of messages from rank `from` to rank `to`; made at the first call, without waiting.
  std::shared_ptr<NcclLane> pair(int from, int to);
  /// Splits this group's lane by colour and returns the lane of `child`.
  std::shared_ptr<NcclLane> split_off(const std::shared_ptr<Communicator>& child, int colour, const Operation& split);

  std::shared_ptr<NcclTransport> transport_;
  std::shared_ptr<Communicator> group_;
  std::shared_ptr<NcclLane> lane_;
  std::map<std::pair<int, int>, std::shared_ptr<NcclLane>> pairs_;  // by sender and receiver
};

}  // namespace lyceum
