#pragma once

#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// The requests of one started operation, and what must outlive them.
class Pending::State {
 public:
  State(std::shared_ptr<Communicator> communicator, Operation operation);

  /// A slot for one more request to fill in.
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Room for `count` requests: slots stay where they are while MPI fills them.
  void reserve(std::size_t count) { requests_.reserve(count); }
  /// The first request that is not yet covered expects exactly `bytes` (a receive); call right after request().
  void expect(std::int64_t bytes);
  void keep(const Tensor& tensor) { kept_ = tensor; }
  /// Throws what an MPI return code other than MPI_SUCCESS means, and gives the group up.
  void check(int code) const;

  /// Throws where an operation failed or a message had another length than expected.
  bool test();
  /// Throws when the group's timeout passes.
  void wait();
  /// Gives the operation up: the group is unusable from now on.
  void abandon() { communicator_->mark_broken(); }

 private:
  struct Expectation {
    std::size_t request;
    std::int64_t bytes;
  };
  void check_statuses(int code) const;

  std::shared_ptr<Communicator> communicator_;
  Operation operation_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Expectation> expectations_;
  Tensor kept_;
};

}  // namespace lyceum
