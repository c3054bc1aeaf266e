#pragma once

#include <nccl.h>

#include <deque>
#include <memory>
#include <vector>

#include "core/cuda_event.h"
#include "parallel/comm/communicator.h"

namespace lyceum {

/// An NCCL communicator of some ranks of a group, with its own CUDA stream. Operations in one lane run one after the
/// other; different lanes are independent. No function blocks the host except the destructor, which waits for the other
/// ranks for up to 10 s.
class NcclLane {
 public:
  /// An operation that NCCL has put into the stream and that may not have completed on the GPU yet.
  struct Flight {
    std::shared_ptr<CudaEvent> done;
    std::int64_t noted;  // number of its entry in the ledger
    Operation operation;
  };

  /// Starts to connect `ranks`, ranks of the group that include this one. All of them must construct their lanes in the
  /// same order, relative to other lanes that use the same `tag`: the first rank sends the NCCL unique id to the others
  /// in MPI messages with this tag. `channels`: see NcclOptions.
  NcclLane(std::shared_ptr<Communicator> group, std::vector<int> ranks, int tag, int channels = 0);
  /// Starts to split `parent`, which must be idle() on all its ranks. Collective over the ranks of `parent`. The new
  /// lane has the ranks of `group`, which must pass the same colour, and as many channels as `parent`. `parent` must
  /// not be used until the new lane is connected.
  NcclLane(std::shared_ptr<NcclLane> parent, std::shared_ptr<Communicator> group, int colour);
  /// Finalises the communicator together with the other ranks. Aborts it if they do not finalise theirs in time, if it
  /// is not connected, or if the group is broken.
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  /// Takes all steps of connecting that are possible without waiting. True once the communicator exists. Throws an
  /// Error if NCCL or MPI fails.
  bool try_connect();
  /// True if NCCL has put all operations that were passed to it into the stream. Throws NCCL's asynchronous errors.
  bool enqueued() const;
  /// True if no operation is waiting or in flight.
  bool idle() { return line_.empty() && !oldest_flight() && enqueued(); }
  /// The queue of operations that NCCL has not put into the stream yet, in the order in which they were started;
  /// `operation` identifies one. line_up() appends it. It may be passed to NCCL once first() is true. leave() removes
  /// an operation that ends without fly(). first() requires that the queue is not empty.
  void line_up(const void* operation) { line_.push_back(operation); }
  bool first(const void* operation) const { return line_.front() == operation; }
  void leave(const void* operation) {
    if (!line_.empty() && first(operation)) passing_ = false;
    std::erase(line_, operation);
  }
  /// Records that the first operation of the queue is being passed to NCCL. It then calls fly() or leave().
  void pass() { passing_ = true; }
  /// Records that the first operation was put into the stream, so that oldest_flight() can return it, and removes it
  /// from the queue.
  void fly(Flight flight) {
    flights_.push_back(std::move(flight));
    line_.pop_front();
    passing_ = false;
  }
  /// True if all operations that NCCL has put into the stream have completed on the GPU.
  bool settled();
  /// Returns the oldest operation that has not completed on the GPU; null if there is none. Records completed ones in
  /// the ledger.
  const Flight* oldest_flight();

  /// Aborts the communicator, which ends its kernels on the GPU. If the lane is still being split off, aborts the
  /// parent too.
  void abort() noexcept;
  /// Throws an Error unless `result` is success or "in progress".
  void check(ncclResult_t result, Message call) const;
  const Communicator& group() const { return *group_; }
  ncclComm_t handle() const { return handle_; }
  cudaStream_t stream() const { return stream_; }
  /// Returns the rank, within this lane's communicator, of a rank of the group that is one of the lane's ranks.
  int rank_of(int group_rank) const;

 private:
  enum class Stage { introducing, splitting, connecting, connected, aborted };
  /// The exchange of the NCCL unique id by MPI. MPI may write to this memory until all requests have completed.
  struct Introduction {
    ncclUniqueId id;
    std::vector<MPI_Request> requests;
  };
  /// A communicator that is being split off. NCCL may write to this memory until the split has completed in the parent
  /// or the parent was aborted.
  struct Birth {
    std::shared_ptr<NcclLane> parent;
    ncclComm_t handle = nullptr;
  };
  /// Starts the exchange of the unique id.
  void exchange_id(int tag);
  /// True once the unique id has been received or sent; then starts to initialise the communicator.
  bool try_initialise();
  /// True once the split has completed.
  bool try_finish_split();
  /// Finalises the communicator; false if that fails or takes too long.
  bool finalise() const;

  std::shared_ptr<Communicator> group_;
  std::vector<int> ranks_;
  int channels_;
  Stage stage_;
  std::unique_ptr<Introduction> introduction_;
  std::unique_ptr<Birth> birth_;
  ncclComm_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::deque<const void*> line_;
  bool passing_ = false;  // the first operation of line_ has been passed to NCCL
  std::deque<Flight> flights_;
};

}  // namespace lyceum
