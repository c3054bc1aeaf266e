#pragma once

#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {

struct ReducedValues {
  void* data;
  std::int64_t size;  // elements
  DType type;         // f32, bf16, f64, i32, i64
};

/// Starts an all_reduce in place. The result is x_0 + x_1 + … in rank order, whatever the size: the same bits on every
/// rank and in every run.
///
/// By direct messages: values are cut into pieces, a piece into one slice a rank; every rank receives its slice from
/// all others, reduces it in rank order, and sends the result to all. While one piece is reduced, the one before it is
/// handed out. What is too small for slices is sent whole to everybody and reduced by each. It needs memory for one
/// piece only. MPI_Iallreduce of Open MPI 4.1, in place, copies whole vectors up and down a tree: up to six times
/// slower (64 MB, 8 ranks on 2 cores). A rank sends up to 2 · (ranks − 1) messages a piece.
///
/// In a large_group(), what is small (1 MB, all ranks' values together) is collected along a tree, reduced at its top,
/// and the result handed down.
std::unique_ptr<Messages> start_all_reduce(std::shared_ptr<Communicator> communicator, const Operation& operation,
                                           const ReducedValues& values, Reduction reduction);

}  // namespace lyceum
