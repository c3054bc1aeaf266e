#pragma once

#include <nccl.h>

#include <deque>
#include <memory>
#include <vector>

#include "core/cuda_event.h"
#include "parallel/comm/communicator.h"

namespace lyceum {

/// Some ranks of a group with an NCCL communicator and a stream of their own, in which operations run one after the
/// other. Lanes do not wait for each other. Nothing here blocks the host.
class NcclLane {
 public:
  /// An operation that NCCL has been given, until it has ended on the GPU.
  struct Flight {
    std::shared_ptr<CudaEvent> done;
    std::int64_t noted;  // in the ledger
    Operation operation;
  };

  /// Starts to connect `ranks` of the group, this one among them, which do so at the same place of the order of
  /// messages with MPI tag `tag`.
  NcclLane(std::shared_ptr<Communicator> group, std::vector<int> ranks, int tag);
  /// Starts to split an idle lane, together with all its ranks: this is the lane of `group`, those that have the same
  /// colour. Nothing else may use `parent` until this one is connected.
  NcclLane(std::shared_ptr<NcclLane> parent, std::shared_ptr<Communicator> group, int colour);
  /// Ends the communicator together with the other ranks, if they come along, else by itself.
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  /// Takes the next steps of connecting; whether there is a communicator.
  bool connected();
  /// Whether NCCL has put everything that it was given into the stream. Throws what went wrong since.
  bool enqueued() const;
  /// Whether all that it was given has ended on the GPU.
  bool idle() { return line_.empty() && !flight() && enqueued(); }
  /// Operations line up, so that they begin in the order in which they were made.
  void line_up(const void* operation) { line_.push_back(operation); }
  bool first(const void* operation) const { return line_.front() == operation; }
  void leave(const void* operation) { std::erase(line_, operation); }
  void fly(Flight flight) { flights_.push_back(std::move(flight)); }
  /// The oldest flight; null where there is none. Notes those that have ended.
  const Flight* flight();

  /// Ends all that runs, on the GPU too; a lane that is being split off ends the one it comes from.
  void abort() noexcept;
  /// Throws what a result of NCCL other than success, or still in progress, means.
  void check(ncclResult_t result, Message call) const;
  const Communicator& group() const { return *group_; }
  ncclComm_t handle() const { return handle_; }
  cudaStream_t stream() const { return stream_; }
  /// This rank's place in the lane.
  int rank_of(int group_rank) const;

 private:
  enum class Stage { introducing, splitting, connecting, connected, aborted };
  /// How the ranks come to know the communicator's id. MPI may write here until all requests are done.
  struct Introduction {
    ncclUniqueId id;
    std::vector<MPI_Request> requests;
  };
  /// A communicator that is being split off. NCCL may write here until its parent has done that, or was aborted.
  struct Birth {
    std::shared_ptr<NcclLane> parent;
    ncclComm_t handle = nullptr;
  };
  void introduce(int tag);
  bool introduced();
  bool split_off();
  bool finalised() const;

  std::shared_ptr<Communicator> group_;
  std::vector<int> ranks_;
  Stage stage_;
  std::unique_ptr<Introduction> introduction_;
  std::unique_ptr<Birth> birth_;
  ncclComm_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::deque<const void*> line_;
  std::deque<Flight> flights_;
};

}  // namespace lyceum
