#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/cuda_stream.h"
#include "kernels/activation.h"
#include "kernels/cuda/grouped_gemm.cuh"
#include "kernels/cuda/grouped_tiles.h"
#include "kernels/grouped_gemm.h"

namespace lyceum::grouped {

/// Maximum number of experts of a product: the block that computes the plan holds two numbers per expert in shared
/// memory.
inline constexpr std::size_t max_experts = 4096;

/// The context of a product's launches. `name` is the name of the kernel description, for error messages.
struct Launch {
  const CudaStream& stream;
  const char* name;
  Product product;
  std::optional<ActivationFunction> activation = {};
};

/// PickedRows::source, divided by PickedRows::divisor, as 32-bit indices for the kernels.
struct PickedIndices {
  std::shared_ptr<std::byte> memory;  // freed on destruction; later work of the stream may then reuse it
  const std::int32_t* row = nullptr;  // [sources]: row of the matrix; −1 for zeros
};
/// Computes the indices on the device. Sources outside the matrix of `rows` rows become −1, and the next
/// CudaStream::synchronise() throws.
PickedIndices pick(const CudaStream& stream, const char* name, std::span<const std::int64_t> source,
                   std::int64_t divisor, std::int64_t rows);

/// The gates of all rows, and scratch memory in which each tile stores its part of a gate's gradient. The parts are
/// added up later in a fixed order.
struct GatesOfRows {
  std::shared_ptr<std::byte> memory;  // as PickedIndices::memory
  const float* gate = nullptr;        // [rows]; 0 if a row has no gate
  float* d_gate = nullptr;            // [rows, across], initialised to zeros
  std::int32_t across = 0;            // tiles per row
};
/// Gathers the gates of all rows. A gate whose index is out of bounds becomes 0, and the next CudaStream::synchronise()
/// throws.
GatesOfRows gates_of_rows(const CudaStream& stream, const char* name, const RowGates<float>& gates,
                          std::int32_t across);
/// Writes gates.d_gate: the sum of the parts that the tiles stored in rows.d_gate.
void add_gate_gradients(const CudaStream& stream, const char* name, const GatesOfRows& rows,
                        const RowGates<float>& gates);

/// Number of products per Kernel, counted separately with and without an activation. Stored in the stream.
struct KernelCounts {
  std::array<std::int64_t, 6> products{}, with_activation{};
};
/// Counts one launch of a product with `kernel` in the stream's KernelCounts.
inline void count_product(const Launch& launch, Kernel kernel) {
  auto& [products, with_activation] = launch.stream.keep<KernelCounts>();
  ++(launch.activation ? with_activation : products)[static_cast<std::size_t>(kernel)];
}

/// Runs the product without tensor cores.
template <class T>
void run_plain(const Launch& launch, const Rows<T>& rows, std::span<const Weight> weights);

/// Runs the product with wgmma for the experts that support it, and mma.sync for the others. Returns false and launches
/// nothing if the build has no tensor core kernels, as in the host stand-in of tests. Throws an Error if `kernel`
/// requires wgmma and some expert cannot use it.
bool run_on_tensor_cores(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                         Kernel kernel);
/// Runs the product with mma.sync. Rows may have any alignment.
void run_mma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights);
/// Runs the product with wgmma. Every weight must be empty or satisfy wgmma_supports().
void run_wgmma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel);
/// Runs a product combined with an activation, with wgmma for all experts. If `picked` is not empty, rows.x must be the
/// matrix that the rows are picked from; if `gates` is not empty, results are multiplied by gates, whose gradients are
/// computed. Returns false and launches nothing if some expert's rows are not aligned to 16 bytes, if the GPU is not
/// sm_90, or if `kernel` does not support activations.
bool run_with_activation(const Launch& launch, Rows<bfloat16> rows, std::span<const Weight> weights,
                         const PickedRows<bfloat16>& picked, const RowGates<float>& gates, Kernel kernel);
/// run_wgmma() with an activation, for weights and rows whose alignment run_with_activation() has checked.
void run_wgmma_activation(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                          Kernel kernel);
void run_wgmma_activation_backward(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                                   Kernel kernel);
/// True if TMA can load the operands of this expert: rows begin at multiples of 16 bytes, and the weight is not empty.
bool wgmma_supports(Product product, const Rows<bfloat16>& rows, const Weight& weight);

}  // namespace lyceum::grouped
