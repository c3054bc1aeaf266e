#pragma once

namespace lyceum {

/// How tensors travel between ranks.
/// - mpi: by MPI, from and to the host's memory.
/// - staged: a GPU's memory is copied to pinned host memory, travels by MPI and is copied back. The same sums to the
/// last
///   bit as with mpi, and ranks may share a GPU; but an operation's start waits for the GPU, so nothing overlaps it.
/// - nccl: GPU to GPU, in separate streams; one rank per GPU. Sums are not in rank order: the same bits on all ranks
/// and
///   in every run on one machine, but others than mpi's, others for an all_reduce than for a reduce_scatter, and those
///   of bf16 are rounded at every step. A NaN may get lost under max and min.
enum class Transport { mpi, staged, nccl };

}  // namespace lyceum
