#pragma once

#include "kernels/grouped_activation.h"
#include "kernels/grouped_gemm.h"

// Grouped products on a GPU. Segments, offsets, widths and matrices are in device memory; only the lists of weights
// (`weights`, `d_weights`) are read on the host. Nothing waits for the device, so offsets may be results of earlier
// kernels on the same stream that have not finished. If an expert's rows are not as wide as its weight, the expert is
// skipped, and the next CudaStream::synchronise() throws.
//
// bfloat16 uses tensor cores. On sm_90, experts whose operands have rows of a multiple of 16 bytes (widths that are
// multiples of 8) are computed with TMA and wgmma. All other experts, and all experts on other GPUs, are computed with
// mma.sync, which accepts rows of any alignment. float and double use plain kernels, for tests and gradient checks.
//
// Picked rows (PickedRows) are copied to shared memory with cp.async, directly from the matrix that they are picked
// from. The wgmma kernels place them in the layout that TMA would have produced, and load the other operand with TMA.
//
// If a product is combined with an activation, the wgmma kernels apply the activation to the sums in registers,
// provided that they can compute all experts of the bank and every row of results begins at a multiple of 16 bytes.
// Otherwise the activation is a second kernel.

namespace lyceum::grouped {

/// The kernel that multiplies bfloat16. Training uses `automatic`; the others are for tests and benchmarks and apply to
/// all experts.
/// - plain: no tensor cores.
/// - mma_sync: mma.sync, tiles of 128 x 128.
/// - cooperative: wgmma, tiles of 128 x 256, each computed by both warpgroups. An activation is a second kernel.
/// - ping_pong: wgmma, tiles of 128 x 192, computed by the two warpgroups in turns.
/// - clustered: wgmma in clusters of two blocks that load operand b together. Tiles are those of cooperative, for
///   activations and weight gradients those of ping_pong. Weight gradients with picked rows of x use `ping_pong`.
/// The last three throw an Error if an expert's rows are not aligned to 16 bytes or the GPU is not sm_90.
enum class Kernel { automatic, plain, mma_sync, cooperative, ping_pong, clustered };

/// Run a grouped product with the given kernel. They throw an Error if shapes do not fit or the kernel cannot be used.
template <class T>
void run(const CudaStream& stream, const GroupedGemm<T>& grouped, Kernel kernel);
template <class T>
void run(const CudaStream& stream, const GroupedWeightGrad<T>& grouped, Kernel kernel);
template <class T>
void run(const CudaStream& stream, const GemmThenActivation<T>& work, Kernel kernel);
template <class T>
void run(const CudaStream& stream, const GemmThenActivationBackward<T>& work, Kernel kernel);

}  // namespace lyceum::grouped
