#pragma once

#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

struct ReducedValues {
  void* data;
  std::int64_t size;  // elements
  DType type;         // one of f32, bf16, f64, i32, i64

  std::int64_t bytes() const { return size * static_cast<std::int64_t>(size_of(type)); }
};

/// Starts an in-place all-reduce over MPI. The caller must keep the memory of `values` alive until the operation has
/// ended (Pending::State::keep()). Terms are added in the order of ReductionLevel for every size, so the bits are the
/// same on every rank and in every run. There are three algorithms:
///
/// 1. In a large_group(), if the values have at most 64 KiB: whole vectors are summed and distributed along a tree, see
///   TreeReduce.
/// 2. In smaller groups, if the values of all ranks together have at most 64 KiB: each rank sends its values to all
///   others and reduces the received ones.
/// 3. Otherwise the values are processed in chunks of 1 MiB, each divided into one slice per rank. Level by level
///   (ReductionLevel), ranks exchange partial sums until each has the sum of its slice. In the reverse order of levels
///   they send sums until each has all. While a chunk is reduced, the previous result is being sent. The scratch memory
///   is less than that of two chunks. A rank sends up to 2 · Σ (f_l − 1) messages per chunk, where f_l are the radices
///   of the levels: 2 · (ranks − 1) for up to 8 ranks, about 3 · log2(ranks) for more.
///
/// MPI_Iallreduce (Open MPI 4.1, in place) sends whole vectors up and down a tree; it is up to six times slower (64 MB,
/// 8 ranks on 2 cores).
std::unique_ptr<Messages> start_all_reduce(std::shared_ptr<Communicator> communicator, const Operation& operation,
                                           const ReducedValues& values, Reduction reduction);

/// Returns the number of messages that rank `rank` of `ranks` sends in this operation.
std::int64_t messages_of_all_reduce(int rank, int ranks, std::int64_t size, DType type);

}  // namespace lyceum
