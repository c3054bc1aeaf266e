#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/grouped_gemm.h"

// Grouped products on a GPU. Segments, offsets and matrices are in device memory; only the lists of weights (`weights`,
// `d_weights`) are read on the host. Nothing here waits for the device, so offsets may be results of kernels under way
// on the same stream. All launches can be captured in a CUDA graph. Widths come from the weights; `width` of the
// segmented matrices, which agrees with them, is not read.
//
// bfloat16 runs on tensor cores. On sm_90 the experts whose operands have rows of a multiple of 16 bytes (widths that
// are multiples of 8) run by TMA and wgmma; the others, and all on other devices, by mma.sync, which takes rows of any
// alignment. float and double run on plain cores, for comparison and finite differences.

namespace lyceum::grouped {

/// Which kernel multiplies bfloat16. `automatic` is what training uses; the others are for tests and benchmarks:
/// mma.sync for all experts; wgmma in tiles of 128 x 256 by both warpgroups, or 128 x 192 in turns (weight gradients
/// always the former), which throw where an expert's rows are not aligned or the device is no sm_90.
enum class Kernel { automatic, mma_sync, cooperative, ping_pong };

/// Bytes of device memory that a launch over this many experts needs for its plan, 256-byte aligned. It may be used
/// again as soon as the launch is issued, by work on the same stream.
std::size_t workspace_bytes(std::int64_t experts);

template <class T>
void launch(cudaStream_t stream, void* workspace, const GroupedGemm<T>& grouped, Kernel kernel = Kernel::automatic);
template <class T>
void launch(cudaStream_t stream, void* workspace, const GroupedWeightGrad<T>& grouped,
            Kernel kernel = Kernel::automatic);

}  // namespace lyceum::grouped
