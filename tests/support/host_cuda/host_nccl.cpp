#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "host_nccl_work.h"
#include "host_stream.h"
#include "nccl.h"

using host_nccl::Call;
using host_nccl::Ranks;
using host_nccl::width_of;
using host_nccl::Work;

namespace {

constexpr int first_tag = 1 << 20, tags_of_a_rank = 1 << 12;
/// Added to a communicator's tag for the messages that split it, and those by which ranks meet.
constexpr int split_tag = 1 << 30, meeting_tag = 1 << 29;

/// The contents of a communicator's id: the rank in the job that created it, and the tag of all its messages.
struct Identity {
  int root, tag;
};

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// The state of a split on one rank:
/// 1. Each rank receives colour and key of every other rank.
/// 2. The first rank of each colour creates an identity and sends it to the other ranks of that colour.
struct Split {
  struct Choice {
    int colour, key;
  };
  std::vector<Choice> choices;  // by rank
  ncclConfig_t config;
  ncclComm** into;
  std::vector<int> members{};  // ranks in the job of this rank's colour, by key; empty until all have chosen
  Identity identity{};
  std::vector<MPI_Request> requests{};
};

host_nccl::Made made_here;
std::set<const ncclComm*> living;  // all communicators of this process

}  // namespace

struct ncclComm {
  ncclComm() {
    static int made = 0;
    used.number = made++;
    living.insert(this);
  }
  ~ncclComm() { living.erase(this); }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::shared_ptr<Ranks> ranks = std::make_shared<Ranks>();
  Identity identity;
  std::vector<MPI_Request> requests;  // requests of connecting
  enum class Stage { gathering, spreading, ready } stage = Stage::gathering;
  bool finalising = false;
  int polls_left = 0;       // remaining polls until `calls` are enqueued in the stream
  std::vector<Call> calls;  // calls of the open group
  cudaStream_t stream = nullptr;
  std::unique_ptr<Split> split;  // the pending split, if any
  std::set<int> met;             // ranks in the job with which meet() was called
  std::vector<MPI_Request> meetings;
  host_nccl::Used used{.number = 0, .ranks = 0};

  /// Starts to connect to the ranks with which `calls` exchange data for the first time: each sends the other an empty
  /// message.
  void meet() {
    for (const Call& call : calls) {
      const bool message = call.kind == Call::Kind::send || call.kind == Call::Kind::receive;
      for (std::size_t r = 0; r < ranks->world.size(); ++r) {
        const int other = ranks->world[r];
        if (static_cast<int>(r) == ranks->rank || (message && static_cast<int>(r) != call.root)) continue;
        if (!met.insert(other).second) continue;
        const int tag = ranks->tag + meeting_tag;
        MPI_Irecv(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, &meetings.emplace_back());
        MPI_Isend(nullptr, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, &meetings.emplace_back());
      }
    }
  }
  /// Returns true once the ranks that were to be met have made their calls, too.
  bool all_met() {
    int done = 0;
    MPI_Testall(static_cast<int>(meetings.size()), meetings.data(), &done, MPI_STATUSES_IGNORE);
    if (done) meetings.clear();
    return done != 0;
  }
  /// Returns true once all ranks know each other. The first rank gathers the ranks in the job of all others and sends
  /// them the list.
  bool advance_connection() {
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
  /// Sends this rank in the job to the first rank of the communicator. Its position in the communicator is encoded in
  /// the tag.
  void send_own_rank() {
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

Identity new_identity() {
  static int made = 0;
  return {world_rank(), first_tag + world_rank() * tags_of_a_rank + made++ % tags_of_a_rank};
}

/// Returns the ranks in the job of this rank's colour, sorted by key.
std::vector<int> members_of(const ncclComm& comm) {
  const auto& choices = comm.split->choices;
  const int colour = choices[static_cast<std::size_t>(comm.ranks->rank)].colour;
  std::vector<std::size_t> places;
  for (std::size_t r = 0; r < choices.size(); ++r) {
    if (choices[r].colour == colour) places.push_back(r);
  }
  std::ranges::stable_sort(places, {}, [&](std::size_t r) { return choices[r].key; });
  std::vector<int> members;
  for (const std::size_t r : places) members.push_back(comm.ranks->world[r]);
  return members;
}

/// Sends or receives the identity of the new communicator.
void spread_identity(Split& split, int tag) {
  const auto& members = split.members;
  if (members[0] != world_rank()) {
    MPI_Irecv(&split.identity, sizeof split.identity, MPI_BYTE, members[0], tag, MPI_COMM_WORLD,
              &split.requests.emplace_back());
    return;
  }
  split.identity = new_identity();
  for (std::size_t r = 1; r < members.size(); ++r) {
    MPI_Isend(&split.identity, sizeof split.identity, MPI_BYTE, members[r], tag, MPI_COMM_WORLD,
              &split.requests.emplace_back());
  }
}

/// Continues a pending split. Returns true if none is pending any more.
bool advance_split(ncclComm& comm) {
  while (comm.split) {
    Split& split = *comm.split;
    int done = 0;
    MPI_Testall(static_cast<int>(split.requests.size()), split.requests.data(), &done, MPI_STATUSES_IGNORE);
    if (!done) return false;
    split.requests.clear();
    const bool stays_out = split.choices[static_cast<std::size_t>(comm.ranks->rank)].colour == NCCL_SPLIT_NOCOLOR;
    if (split.members.empty() && !stays_out) {
      split.members = members_of(comm);
      spread_identity(split, comm.ranks->tag + split_tag);
      continue;
    }
    if (!stays_out) {
      const auto self = std::ranges::find(split.members, world_rank()) - split.members.begin();
      auto* const child = *split.into = new ncclComm;
      child->config = split.config;
      *child->ranks = {static_cast<int>(self), split.identity.tag, split.members};
      child->identity = split.identity;
      child->stage = ncclComm::Stage::ready;
      ++made_here.by_split;
    }
    comm.split.reset();
  }
  return true;
}

/// True if the stand-in, and NCCL, accept the configuration of a new communicator.
bool valid(const ncclConfig_t& config) {
  const bool channels = config.maxCTAs == INT_MIN || config.maxCTAs > 0;
  return config.blocking == 0 && config.splitShare != 1 && channels;
}

ncclResult_t submit(ncclComm_t comm, cudaStream_t stream, Call call) {
  // An earlier call may still be in progress.
  if (comm->polls_left > 0 || comm->stage != ncclComm::Stage::ready || comm->split) return ncclInvalidUsage;
  ncclGroupStart();
  const bool message = call.kind == Call::Kind::send || call.kind == Call::Kind::receive;
  (message ? comm->used.exchanges : call.root < 0 ? comm->used.sums : comm->used.gathers) = true;
  comm->calls.push_back(std::move(call));
  comm->stream = stream;
  grouped.push_back(comm);
  return ncclGroupEnd();
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  if (result == ncclInvalidUsage) return "invalid usage";
  return result == ncclInProgress ? "in progress" : "?";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Identity identity = new_identity();
  std::memcpy(id, &identity, sizeof identity);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (!valid(*config)) return ncclInvalidArgument;
  ++made_here.by_id;
  *comm = new ncclComm;
  (*comm)->config = *config;
  std::memcpy(&(*comm)->identity, &id, sizeof(Identity));
  *(*comm)->ranks = {rank, (*comm)->identity.tag, std::vector<int>(static_cast<std::size_t>(ranks))};
  (*comm)->send_own_rank();
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (!valid(*config)) return ncclInvalidArgument;
  const bool busy = comm->polls_left > 0 || comm->ranks->pending > 0 || comm->split;
  if (busy || comm->stage != ncclComm::Stage::ready) return ncclInvalidUsage;  // NCCL may hang here
  *child = nullptr;
  const auto& world = comm->ranks->world;
  const auto self = static_cast<std::size_t>(comm->ranks->rank);
  comm->split = std::make_unique<Split>(
      Split{.choices = std::vector<Split::Choice>(world.size()), .config = *config, .into = child});
  auto& [choices, kept, into, members, identity, requests] = *comm->split;
  choices[self] = {colour, key};
  for (std::size_t r = 0; r < world.size(); ++r) {
    if (r == self) continue;
    const int tag = comm->ranks->tag + split_tag;
    MPI_Irecv(&choices[r], 2, MPI_INT, world[r], tag, MPI_COMM_WORLD, &requests.emplace_back());
    MPI_Isend(&choices[self], 2, MPI_INT, world[r], tag, MPI_COMM_WORLD, &requests.emplace_back());
  }
  return ncclInProgress;
}

host_nccl::Made host_nccl::made() { return made_here; }
std::vector<host_nccl::Used> host_nccl::used() {
  std::vector<Used> all;
  for (const ncclComm* comm : living) {
    all.push_back(comm->used);
    all.back().ranks = static_cast<int>(comm->ranks->world.size());
  }
  std::ranges::sort(all, {}, &Used::number);
  return all;
}
ncclConfig_t host_nccl::configuration(ncclComm_t comm) { return comm->config; }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclInProgress;
  if (!comm->advance_connection() || !advance_split(*comm)) return ncclSuccess;
  if (comm->polls_left > 0 && comm->all_met() && --comm->polls_left == 0) {
    host_cuda::enqueue(comm->stream,
                       [work = std::make_shared<Work>(comm->ranks, std::move(comm->calls))] { return (*work)(); });
    comm->calls.clear();
  }
  if (comm->finalising) host_cuda::advance();
  if (comm->polls_left == 0 && !(comm->finalising && comm->ranks->pending)) *state = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->finalising = true, ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->ranks->aborted = true;
  host_cuda::advance();
  if (comm->requests.empty() && !comm->split) delete comm;  // otherwise leaked, since MPI may still write to it
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || grouped.empty()) return ncclSuccess;
  for (ncclComm* comm : grouped) {
    comm->polls_left = 3;
    comm->meet();
  }
  grouped.clear();
  return ncclInProgress;
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {Call::Kind::reduce, from, to, count, type, operation, root});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return ncclReduce(from, to, count, type, operation, -1, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {Call::Kind::broadcast, from, to, count, type, ncclSum, root});
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
  return submit(comm, stream, {Call::Kind::send, from, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, stream, {Call::Kind::receive, nullptr, to, count, type, ncclSum, peer});
}
