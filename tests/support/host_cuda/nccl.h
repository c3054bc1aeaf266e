#pragma once

// The part of NCCL that lib/parallel/comm uses, over MPI. The work of a communicator runs in its stream, whenever the
// host queries the device, and waits there for the other ranks. Calls remain in progress for a while, as they may in
// NCCL with blocking = 0: a communicator's first exchange of data with another rank until that rank makes its call,
// since NCCL connects them then. Sums are in reverse order of ranks.

#include <climits>
#include <cstddef>
#include <vector>

#include "cuda_runtime_api.h"

enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclInProgress = 7,
};
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2, ncclMin = 3 };
enum ncclDataType_t {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking, minCTAs, maxCTAs, splitShare;
};
#define NCCL_CONFIG_INITIALIZER \
  { INT_MIN, INT_MIN, INT_MIN, INT_MIN }
#define NCCL_SPLIT_NOCOLOR -1

struct ncclComm;
using ncclComm_t = ncclComm*;

const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
/// Returns ncclInvalidUsage if the communicator has pending work or a call in progress, which may hang in NCCL, and
/// ncclInvalidArgument unless config->blocking is 0, or if splitShare (shared resources) is 1 or maxCTAs not positive.
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* child, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t, ncclRedOp_t, int root,
                        ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t, int root, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);

namespace host_nccl {
/// Number of communicators that this process has created so far.
struct Made {
  int by_id = 0, by_split = 0;
};
Made made();
/// A communicator of this process, and the kinds of calls that were made with it.
struct Used {
  int number;  // of communicators that this process made before it
  int ranks;
  bool sums = false;                        // all-reduces
  bool gathers = false, exchanges = false;  // other collectives; sends and receives
};
/// Returns the communicators that exist, in the order in which they were made.
std::vector<Used> used();
/// Returns the configuration of the communicator.
ncclConfig_t configuration(ncclComm_t comm);
}  // namespace host_nccl
