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

/// The state of an operation in flight: recorded in the ledger, and advanced during every wait for any operation of its
/// world. Subclasses implement the steps.
class Pending::State : private Progress::Task {
 public:
  State(std::shared_ptr<Communicator> communicator, Operation operation);
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Keeps `owner` alive until the operation has ended.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }
  /// Sets a function that wait() or test() calls once, on success, before they return to the caller.
  void then(std::function<void()> last) { then_ = std::move(last); }

  /// Advances all operations in flight. True if this one has ended, on the device too. Throws if it failed.
  bool test();
  /// Blocks until the result can be used by work added to the compute stream. Throws on failure or timeout.
  void wait();
  /// Stops waiting for the operation and marks its group as broken. Also ends what other operations of the world wait
  /// for on a device (Progress::give_up()): with NCCL, all communicators are aborted.
  void abandon();

 protected:
  Communicator& communicator() const { return *communicator_; }
  const Operation& operation() const { return operation_; }
  /// Returns the number of the operation's entry in the ledger.
  std::int64_t noted() const { return noted_; }
  /// Takes all steps that are possible without waiting. True if no step is left for the host.
  virtual bool step() = 0;
  /// True if the operation has also ended on the device. Called once step() has returned true.
  virtual bool ended() const { return true; }
  /// Records the end of the operation in the ledger; called after the last step. Overridden by operations that end
  /// later, on a device, and record that themselves.
  virtual void finish();

 private:
  bool advance() noexcept final;
  /// Advances all operations in flight. True if this one has no step left.
  bool advance_all();
  void finish_for_caller();

  std::shared_ptr<Communicator> communicator_;
  Operation operation_;
  std::int64_t noted_;  // number of the entry in the ledger
  std::vector<std::shared_ptr<const void>> kept_;
  std::function<void()> then_;
  bool done_ = false;  // no step is left
  /// Thrown by step(), possibly during a wait for another operation; test() and wait() rethrow it.
  std::exception_ptr error_;
};

/// An operation that consists of MPI messages from and to host memory. Operations of several rounds override next().
class Messages : public Pending::State {
 public:
  using State::State;

  /// Returns an empty MPI request to be filled by the caller. The pointer is valid until the next call.
  MPI_Request* request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Starts to receive or send a message of exactly `bytes` bytes, which may be 0. A received message of another
  /// length, or one that fails its checksum (ProcessGroup::set_checksums()), throws an Error in test() or wait(). The
  /// buffer must not change until the requests of this round have completed.
  void receive(void* to, std::int64_t bytes, int from, int tag);
  void send(const void* from, std::int64_t bytes, int to, int tag);
  /// Throws an Error unless `code` is MPI_SUCCESS, and marks the group as broken.
  void check(int code) const;

 protected:
  /// True if there are requests to wait for.
  bool pending() const { return !requests_.empty(); }
  /// Called when all requests of a round have completed. Starts the requests of the next round; false if there is none.
  virtual bool next() { return false; }

 private:
  struct Expectation {
    std::size_t request;
    std::int64_t bytes;
  };
  /// A checksum, sent as a separate message after its data.
  struct Checksum {
    std::uint64_t value = 0;
    const void* data = nullptr;  // received data to be verified; null on the sending side
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

/// Calls `reached()` repeatedly until it returns true. Meanwhile answers queries of other ranks (Watch), but does not
/// advance operations: `reached` must do so (Progress::poll()) if it depends on them. Throws an Error once the group's
/// timeout has expired, with the cause if it can be determined, or ReportedElsewhere.
void wait_until(const std::function<bool()>& reached, const Communicator& communicator, const Operation& operation);

}  // namespace lyceum
