#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// The requests of one started operation, and what must outlive them. An operation of several steps overrides next().
class Pending::State : private Progress::Task {
 public:
  State(std::shared_ptr<Communicator> communicator, Operation operation);
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// A slot for one more request to fill in, good until the next call.
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// The request made last is a receive of exactly `bytes`.
  void expect(std::int64_t bytes) { expectations_.push_back({requests_.size() - 1, bytes}); }
  void keep(std::shared_ptr<const void> owner) { kept_ = std::move(owner); }
  /// Throws what an MPI return code other than MPI_SUCCESS means, and gives the group up.
  void check(int code) const;

  /// Moves everything that is under way on; whether this is done. Throws where it failed or a message had another
  /// length than expected.
  bool test();
  /// Throws when the group's timeout passes.
  void wait();
  /// Gives the operation up: the group is unusable from now on.
  void abandon();

 protected:
  const Communicator& communicator() const { return *communicator_; }
  /// Whether there are requests to wait for.
  bool pending() const { return !requests_.empty(); }
  /// Called when all requests are done; makes those of the next step. False: there is none.
  virtual bool next() { return false; }

 private:
  struct Expectation {
    std::size_t request;
    std::int64_t bytes;
  };
  bool advance() noexcept final;
  void check_statuses(int code) const;

  std::shared_ptr<Communicator> communicator_;
  Operation operation_;
  std::int64_t noted_;  // in the ledger
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Expectation> expectations_;
  std::shared_ptr<const void> kept_;
  bool done_ = false;
  std::exception_ptr error_;  // met while somebody else polled
};

}  // namespace lyceum
