#pragma once

#include "kernels/grouped_activation.h"
#include "kernels/grouped_gemm.h"

// Grouped products on a GPU. Segments, offsets, widths and matrices are in device memory; only the lists of weights
// (`weights`, `d_weights`) are read on the host. Nothing waits for the device, so offsets may be results of kernels
// under way on the same stream. An expert whose rows are not as wide as its weight is skipped and noted for
// CudaStream::synchronise().
//
// bfloat16 runs on tensor cores. On sm_90 the experts whose operands have rows of a multiple of 16 bytes (widths that
// are multiples of 8) run by TMA and wgmma; the others, and all on other devices, by mma.sync, which takes rows of any
// alignment. float and double run on plain cores, for comparison and finite differences.
//
// Picked rows are copied into shared memory from where they lie, by cp.async; by wgmma's kernels into the places where
// TMA would have put them, next to the other operand, which TMA copies.
//
// An activation beside a product is computed by wgmma's kernels where the sums are, if they take all experts of the
// bank and every result begins at a multiple of 16 bytes; else by a kernel of its own.

namespace lyceum::grouped {

/// Which kernel multiplies bfloat16. `automatic` is what training uses; the others are for tests and benchmarks: plain
/// cores; mma.sync for all experts; wgmma in tiles of 128 x 256 by both warpgroups, or 128 x 192 in turns, or the
/// former by clusters of two blocks that load weights together (weight gradients always the first; activations apart
/// from the third), which throw where an expert's rows are not aligned or the device is no sm_90.
enum class Kernel { automatic, plain, mma_sync, cooperative, ping_pong, clustered };

template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped, Kernel kernel);
template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped, Kernel kernel);
template <class T>
void run(const CudaStream& stream, const GemmThenActivation<T>& work, Kernel kernel);
template <class T>
void run(const CudaStream& stream, const GemmThenActivationBackward<T>& work, Kernel kernel);

}  // namespace lyceum::grouped
