#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/process_group.h"

namespace lyceum {

/// A started operation: noted in the ledger, moved on by whoever waits for any operation of its world.
class Pending::State : private Progress::Task {
 public:
  State(std::shared_ptr<Communicator> communicator, Operation operation);
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// What must outlive the operation.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }
  /// Called by whoever waits for this, or finds that it has ended.
  void then(std::function<void()> last) { then_ = std::move(last); }

  /// Moves everything that is under way on; whether this has ended. Throws where it failed.
  bool test();
  /// Until its data can be used on the compute stream. Throws when the group's timeout passes.
  void wait();
  /// Gives the operation up: the group is unusable from now on.
  void abandon();

 protected:
  Communicator& communicator() const { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const { return communicator_; }
  const Operation& operation() const { return operation_; }
  std::int64_t noted() const { return noted_; }
  /// Takes the steps that can be taken without waiting. True: none is left for the host to take.
  virtual bool step() = 0;
  /// After the last step: whether a device has ended it, too.
  virtual bool ended() const { return true; }
  /// Called after the last step; other operations end later, and say so to the ledger themselves.
  virtual void finish();

 private:
  bool advance() noexcept final;
  /// Moves everything on; whether no step is left.
  bool settled();
  void finish_for_caller();

  std::shared_ptr<Communicator> communicator_;
  Operation operation_;
  std::int64_t noted_;  // in the ledger
  std::vector<std::shared_ptr<const void>> kept_;
  std::function<void()> then_;
  bool done_ = false;
  std::exception_ptr error_;  // met while somebody else polled
};

/// An operation of MPI messages, from and to the host's memory. One of several steps overrides next().
class Messages : public Pending::State {
 public:
  using State::State;

  /// A slot for one more request to fill in, good until the next call.
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Starts a message of exactly `bytes`, which may be 0; another length is an Error, and so is a message that
  /// arrives changed where messages have checksums. The memory stays as it is until the operation's next step.
  void receive(void* to, std::int64_t bytes, int from, int tag);
  void send(const void* from, std::int64_t bytes, int to, int tag);
  /// Throws what an MPI return code other than MPI_SUCCESS means, and gives the group up.
  void check(int code) const;

 protected:
  /// Whether there are requests to wait for.
  bool pending() const { return !requests_.empty(); }
  /// Called when all requests are done; makes those of the next step. False: there is none.
  virtual bool next() { return false; }

 private:
  struct Expectation {
    std::size_t request;
    std::int64_t bytes;
  };
  /// A checksum that travels behind its message.
  struct Checksum {
    std::uint64_t value = 0;
    const void* data = nullptr;  // received; null of one that is sent
    std::size_t bytes = 0;
    int from = -1;
  };
  bool step() final;
  void receive_message(void* to, int bytes, int from, int tag);
  void send_message(const void* from, int bytes, int to, int tag);
  void check_statuses(int code) const;
  void check_checksums() const;

  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Expectation> expectations_;
  std::deque<Checksum> checksums_;
};

/// Waits until `reached()`, as long as the group's timeout allows: throws then, with what can be found out of the
/// reason. Answers meanwhile what other ranks ask.
void wait_until(const std::function<bool()>& reached, const Communicator& communicator, const Operation& operation);

}  // namespace lyceum
