#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda_bf16.h"
#include "host_stream.h"
#include "nccl.h"

namespace {

constexpr int first_tag = 1 << 20, tags_of_a_rank = 1 << 12;

/// What the id of a communicator says: the rank of the job that made it, and the tag of all its messages.
struct Identity {
  int root, tag;
};

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

std::size_t width_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
  }
  return 0;
}

float value_of(__nv_bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
template <class T>
T value_of(T x) {
  return x;
}
template <class T>
void assign(T& to, T value) {
  to = value;
}
void assign(__nv_bfloat16& to, float value) { to = __float2bfloat16_rn(value); }

template <class T>
void reduce(std::byte* into, const std::byte* other, std::size_t count, ncclRedOp_t operation) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof a);
    std::memcpy(&b, other + i * sizeof(T), sizeof b);
    const auto x = value_of(a), y = value_of(b);
    assign(a, static_cast<decltype(x + y)>(operation == ncclSum ? x + y : (operation == ncclMax) == (x > y) ? x : y));
    std::memcpy(into + i * sizeof(T), &a, sizeof a);
  }
}

void reduce(std::byte* into, const std::byte* other, std::size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  switch (type) {
    case ncclInt32: return reduce<std::int32_t>(into, other, count, operation);
    case ncclInt64: return reduce<std::int64_t>(into, other, count, operation);
    case ncclFloat32: return reduce<float>(into, other, count, operation);
    case ncclFloat64: return reduce<double>(into, other, count, operation);
    case ncclBfloat16: return reduce<__nv_bfloat16>(into, other, count, operation);
    case ncclUint8: break;
  }
}

using Bytes = std::vector<std::byte>;

/// What all work of a communicator sees.
struct Ranks {
  int rank, tag;
  std::vector<int> world;  // ranks of the job
  bool aborted = false;
};

/// One call's part in what its group of calls does. `root`: −1 for every rank.
struct Call {
  enum class Kind { reduce, broadcast, send, receive } kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation;
  int root;  // or the peer

  Bytes own{};
  std::vector<Bytes> received{};  // by rank
  std::size_t bytes() const { return count * width_of(type); }
};

/// The calls of a group in a stream.
class Work {
 public:
  Work(std::shared_ptr<Ranks> ranks, std::vector<Call> calls) : ranks_(std::move(ranks)), calls_(std::move(calls)) {}
  bool operator()() {
    if (ranks_->aborted) {
      if (started_) new std::vector<Call>(std::move(calls_));  // leaked: MPI may still write there
      return true;
    }
    if (!started_) start();
    int arrived = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &arrived, MPI_STATUSES_IGNORE);
    if (arrived) finish();
    return arrived;
  }

 private:
  void start() {
    started_ = true;
    const int size = static_cast<int>(ranks_->world.size()), self = ranks_->rank;
    for (Call& call : calls_) {
      call.received.resize(ranks_->world.size());
      const bool is_root = call.root < 0 || call.root == self;
      const bool gives = call.kind == Call::Kind::reduce || call.kind == Call::Kind::send ||
                         (call.kind == Call::Kind::broadcast && is_root);
      if (gives) {
        call.own.resize(call.bytes());
        host_cuda::copy(call.own.data(), call.from, call.bytes());
      }
      for (int rank = 0; rank < size; ++rank) {
        if (rank == self) continue;
        const bool other_is_root = call.root < 0 || call.root == rank;
        switch (call.kind) {
          case Call::Kind::reduce:
            if (is_root) receive(call, rank);
            if (other_is_root) send(call, rank);
            break;
          case Call::Kind::broadcast:
            if (is_root) send(call, rank);
            if (!is_root && other_is_root) receive(call, rank);
            break;
          case Call::Kind::send:
            if (other_is_root) send(call, rank);
            break;
          case Call::Kind::receive:
            if (other_is_root) receive(call, rank);
            break;
        }
      }
    }
  }
  void receive(Call& call, int rank) {
    Bytes& into = call.received[static_cast<std::size_t>(rank)];
    into.resize(call.bytes());
    MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE, ranks_->world[static_cast<std::size_t>(rank)],
              ranks_->tag, MPI_COMM_WORLD, &requests_.emplace_back());
  }
  void send(Call& call, int rank) {
    MPI_Isend(call.own.data(), static_cast<int>(call.own.size()), MPI_BYTE,
              ranks_->world[static_cast<std::size_t>(rank)], ranks_->tag, MPI_COMM_WORLD, &requests_.emplace_back());
  }
  void finish() {
    for (Call& call : calls_) {
      const bool is_root = call.root < 0 || call.root == ranks_->rank;
      if (call.kind == Call::Kind::reduce && is_root) {
        call.received[static_cast<std::size_t>(ranks_->rank)] = call.own;
        Bytes sum = call.received.back();
        for (std::size_t rank = call.received.size() - 1; rank-- > 0;) {
          reduce(sum.data(), call.received[rank].data(), call.count, call.type, call.operation);
        }
        host_cuda::copy(call.to, sum.data(), sum.size());
      } else if (call.kind == Call::Kind::broadcast && is_root) {
        host_cuda::copy(call.to, call.own.data(), call.own.size());
      } else if (call.kind == Call::Kind::broadcast || call.kind == Call::Kind::receive) {
        const Bytes& bytes = call.received[static_cast<std::size_t>(call.root)];
        host_cuda::copy(call.to, bytes.data(), bytes.size());
      }
    }
  }

  std::shared_ptr<Ranks> ranks_;
  std::vector<Call> calls_;
  std::vector<MPI_Request> requests_;
  bool started_ = false;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Ranks> ranks = std::make_shared<Ranks>();
  Identity identity;
  std::vector<MPI_Request> requests;  // of connecting
  enum class Stage { gathering, spreading, ready } stage = Stage::gathering;
  int looks = 0;            // until what was given is in the stream
  std::vector<Call> calls;  // being given
  cudaStream_t stream = nullptr;

  /// Whether all ranks know each other: the first one hears of the others and tells them all.
  bool connected() {
    auto& world = ranks->world;
    while (stage != Stage::ready) {
      int done = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (!done) return false;
      requests.clear();
      if (stage == Stage::spreading) {
        stage = Stage::ready;
        break;
      }
      stage = Stage::spreading;
      const int bytes = static_cast<int>(world.size() * sizeof(int));
      if (ranks->rank != 0) {
        MPI_Irecv(world.data(), bytes, MPI_BYTE, identity.root, ranks->tag, MPI_COMM_WORLD, &requests.emplace_back());
      }
      for (std::size_t r = 1; r < world.size() && ranks->rank == 0; ++r) {
        MPI_Isend(world.data(), bytes, MPI_BYTE, world[r], ranks->tag, MPI_COMM_WORLD, &requests.emplace_back());
      }
    }
    return true;
  }
  /// Whoever comes says which rank of the communicator it is by another tag.
  void introduce() {
    auto& world = ranks->world;
    const int self = ranks->rank;
    world[static_cast<std::size_t>(self)] = world_rank();
    const int tag = ranks->tag + first_tag * 64;
    for (std::size_t r = 1; r < world.size() && self == 0; ++r) {
      MPI_Irecv(&world[r], 1, MPI_INT, MPI_ANY_SOURCE, tag + static_cast<int>(r) * first_tag, MPI_COMM_WORLD,
                &requests.emplace_back());
    }
    if (self != 0) {
      MPI_Isend(&world[static_cast<std::size_t>(self)], 1, MPI_INT, identity.root, tag + self * first_tag,
                MPI_COMM_WORLD, &requests.emplace_back());
    }
  }
};

namespace {

int group_depth = 0;
std::vector<ncclComm*> grouped;

ncclResult_t give(ncclComm_t comm, cudaStream_t stream, Call call) {
  if (comm->looks > 0 || comm->stage != ncclComm::Stage::ready) return ncclInvalidUsage;  // still in progress
  ncclGroupStart();
  comm->calls.push_back(std::move(call));
  comm->stream = stream;
  grouped.push_back(comm);
  return ncclGroupEnd();
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : result == ncclInProgress ? "in progress" : "?";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  const Identity identity{world_rank(), first_tag + world_rank() * tags_of_a_rank + made++ % tags_of_a_rank};
  std::memcpy(id, &identity, sizeof identity);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;  // the stand-in has no other kind
  *comm = new ncclComm;
  std::memcpy(&(*comm)->identity, &id, sizeof(Identity));
  *(*comm)->ranks = {rank, (*comm)->identity.tag, std::vector<int>(static_cast<std::size_t>(ranks))};
  (*comm)->introduce();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclInProgress;
  if (!comm->connected()) return ncclSuccess;
  if (comm->looks > 0 && --comm->looks == 0) {
    host_cuda::enqueue(comm->stream,
                       [work = std::make_shared<Work>(comm->ranks, std::move(comm->calls))] { return (*work)(); });
    comm->calls.clear();
  }
  if (comm->looks == 0) *state = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->ranks->aborted = true;
  host_cuda::advance();
  if (comm->requests.empty()) delete comm;  // else leaked: MPI may still write there
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || grouped.empty()) return ncclSuccess;
  for (ncclComm* comm : grouped) comm->looks = 3;
  grouped.clear();
  return ncclInProgress;
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return give(comm, stream, {Call::Kind::reduce, from, to, count, type, operation, root});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return ncclReduce(from, to, count, type, operation, -1, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return give(comm, stream, {Call::Kind::broadcast, from, to, count, type, ncclSum, root});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  ncclGroupStart();
  for (std::size_t rank = 0; rank < comm->ranks->world.size(); ++rank) {
    ncclReduce(static_cast<const std::byte*>(from) + rank * count * width_of(type), to, count, type, operation,
               static_cast<int>(rank), comm, stream);
  }
  return ncclGroupEnd();
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclGroupStart();
  for (std::size_t rank = 0; rank < comm->ranks->world.size(); ++rank) {
    ncclBroadcast(from, static_cast<std::byte*>(to) + rank * count * width_of(type), count, type,
                  static_cast<int>(rank), comm, stream);
  }
  return ncclGroupEnd();
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return give(comm, stream, {Call::Kind::send, from, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return give(comm, stream, {Call::Kind::receive, nullptr, to, count, type, ncclSum, peer});
}
