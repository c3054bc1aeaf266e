// Definitions of the NCCL functions that Lyceum calls. Each forwards to the library, which the first call loads, so
// that the program also starts without NCCL: for CPUs, for one GPU, and to read checkpoints.
#include <nccl.h>

#include "core/library_on_demand.h"

namespace {

constexpr lyceum::LibraryOnDemand library("NCCL", "libnccl.so.2");

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { LYCEUM_PASS_ON(library, ncclGetUniqueId, id); }
const char* ncclGetErrorString(ncclResult_t result) { LYCEUM_PASS_ON(library, ncclGetErrorString, result); }
const char* ncclGetLastError(ncclComm_t comm) { LYCEUM_PASS_ON(library, ncclGetLastError, comm); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  LYCEUM_PASS_ON(library, ncclCommInitRankConfig, comm, ranks, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  LYCEUM_PASS_ON(library, ncclCommSplit, comm, color, key, child, config);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  LYCEUM_PASS_ON(library, ncclCommGetAsyncError, comm, state);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { LYCEUM_PASS_ON(library, ncclCommFinalize, comm); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { LYCEUM_PASS_ON(library, ncclCommDestroy, comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { LYCEUM_PASS_ON(library, ncclCommAbort, comm); }

ncclResult_t ncclGroupStart() { LYCEUM_PASS_ON(library, ncclGroupStart); }
ncclResult_t ncclGroupEnd() { LYCEUM_PASS_ON(library, ncclGroupEnd); }
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclAllReduce, from, to, count, type, operation, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclReduce, from, to, count, type, operation, root, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclReduceScatter, from, to, count, type, operation, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclBroadcast, from, to, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclAllGather, from, to, count, type, comm, stream);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclSend, from, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  LYCEUM_PASS_ON(library, ncclRecv, to, count, type, peer, comm, stream);
}
