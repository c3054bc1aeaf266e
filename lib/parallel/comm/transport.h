#pragma once

namespace lyceum {

/// How tensors are sent between ranks.
/// - mpi: by MPI, between host memory.
/// - staged: tensors in GPU memory are copied to pinned host memory, sent by MPI and copied back. Sums have the same
///   bits as with mpi, and ranks may share a GPU. The start of an operation waits for the GPU, so communication does
///   not overlap GPU work.
/// - nccl: GPU to GPU by NCCL, in separate streams; requires one GPU per rank. Sums are in another order. They have
///   the same bits on all ranks and, on one machine, in every run, but differ from the sums of mpi, and differ between
///   all_reduce and reduce_scatter. bf16 sums are rounded at every step. max and min may lose a NaN.
enum class Transport { mpi, staged, nccl };

/// The order in which the NCCL operations of a process run on its GPU. It does not apply to sends and receives, which
/// are ordered only among messages with the same sender and receiver.
/// - concurrent: the operations of one group run in the order in which they were started, those of different groups at
///   the same time.
/// - serial: all operations run one after another, in the order in which they were started.
enum class NcclOrder { concurrent, serial };

/// Settings of Transport::nccl.
struct NcclOptions {
  NcclOrder order = NcclOrder::concurrent;
  /// The largest number of channels of a communicator. NCCL uses one thread block per channel, and has buffers for each
  /// channel. Communication between pairs of ranks (send, receive, all-to-all) rounds it up to a power of two. 0: NCCL
  /// chooses.
  int channels = 0;
};

}  // namespace lyceum
