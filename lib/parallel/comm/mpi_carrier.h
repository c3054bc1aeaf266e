#pragma once

#include "parallel/comm/carrier.h"

namespace lyceum {

/// Sends tensors in host memory by MPI.
class MpiCarrier final : public Carrier {
 public:
  explicit MpiCarrier(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  Started all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) override;
  Started reduce_scatter(const Operation& operation, const Parts& parts) override;
  Started all_gather(const Operation& operation, const Parts& parts) override;
  Started send(const Operation& operation, const Tensor& values) override;
  Started receive(const Operation& operation, const Tensor& values) override;
  Started all_to_all(const Operation& operation, std::span<const ProcessGroup::AllToAll> exchanges) override;
  std::unique_ptr<Carrier> split(const std::shared_ptr<Communicator>& child, int colour, Where where) override;

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace lyceum
