#pragma once

#include "config/config.h"
#include "plan/memory.h"

namespace lyceum {

/// Returns the bytes of host memory that a rank on the CPU takes beyond RankMemory::total(), the peak of its allocator:
///   1. the program, its libraries, heap, stacks and the memory of MPI: a constant, more with several ranks; and
///      MemoryRoom::reserve, which the allocator leaves free,
///   2. the part of the allocator's peak that its pool may hold (Allocator::pool_parts),
///   3. products in bf16 that oneDNN compiles, if this machine multiplies bf16 natively,
///   4. while a checkpoint is written in the background, its copy of RankMemory::saved.
/// The constants are measured (docs/planning.md). Returns 0 if the configuration runs on a GPU. `reading`: true if the
/// model is not trained.
double process_bytes(const Config& config, int world, const RankMemory& memory, bool reading);

}  // namespace lyceum
