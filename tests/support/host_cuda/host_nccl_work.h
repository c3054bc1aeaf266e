#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "nccl.h"

namespace host_nccl {

using Bytes = std::vector<std::byte>;

std::size_t width_of(ncclDataType_t type);

/// The state of a communicator, shared by all its Work objects.
struct Ranks {
  int rank, tag;
  std::vector<int> world;  // for each rank of the communicator, its rank in the job
  bool aborted = false;
  int pending = 0;  // number of Work objects that are not done
};

/// A reduction, broadcast, send or receive. An all-reduce is a reduction with root −1: every rank is a root. A
/// reduce-scatter is one reduction to each rank, and an all-gather one broadcast from each rank.
struct Call {
  enum class Kind { reduce, broadcast, send, receive } kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation;
  int root;  // for send and receive: the peer

  Bytes own{};
  std::vector<Bytes> received{};  // by rank
  std::size_t bytes() const { return count * width_of(type); }
};

/// The calls between ncclGroupStart and ncclGroupEnd on one communicator, as work of a stream (host_stream.h).
class Work {
 public:
  Work(std::shared_ptr<Ranks> ranks, std::vector<Call> calls);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  /// Sends and receives what is possible without blocking. Returns true once all calls are done or the communicator is
  /// aborted.
  bool operator()();

 private:
  void start();
  void start(Call& call, int other);
  void receive(Call& call, int rank);
  void send(Call& call, int rank);
  void finish();

  std::shared_ptr<Ranks> ranks_;
  std::vector<Call> calls_;
  std::vector<MPI_Request> requests_;
  bool started_ = false;
};

}  // namespace host_nccl
