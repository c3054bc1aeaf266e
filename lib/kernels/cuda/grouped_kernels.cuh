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

/// The most experts that a plan's block holds in shared memory.
inline constexpr std::size_t max_experts = 4096;

/// What a product is launched with; `name` is the description's, for errors.
struct Launch {
  const CudaStream& stream;
  const char* name;
  Product product;
  std::optional<Activation> activation = {};
};

/// What a kernel reads PickedRows::source as.
struct PickedIndices {
  std::shared_ptr<std::byte> memory;  // later work of the stream may have it as soon as this is gone
  const std::int32_t* row = nullptr;  // [sources]: row of a matrix; −1 for none
};
/// Sources that lie outside of the matrix of `rows` rows become −1, and are noted for CudaStream::synchronise().
PickedIndices pick(const CudaStream& stream, const char* name, std::span<const std::int64_t> source,
                   std::int64_t divisor, std::int64_t rows);

/// Gates by row, and room for what tiles add to their gradients: one after the other, so that the order of the sum is
/// fixed.
struct GatesOfRows {
  std::shared_ptr<std::byte> memory;  // as PickedIndices::memory
  const float* gate = nullptr;        // [rows]; 0 where a row has none
  float* d_gate = nullptr;            // [rows, across], zeros
  std::int32_t across = 0;
};
/// Gates of which the index lies outside become 0, and are noted for CudaStream::synchronise().
GatesOfRows gates_of_rows(const CudaStream& stream, const char* name, const RowGates<float>& gates,
                          std::int32_t across);
/// Writes gates.d_gate from what the tiles wrote.
void add_gate_gradients(const CudaStream& stream, const char* name, const GatesOfRows& rows,
                        const RowGates<float>& gates);

/// Products by Kernel, those with an activation apart; a stream keeps them.
struct KernelCounts {
  std::array<std::int64_t, 6> products{}, with_activation{};
};
inline void count_product(const Launch& launch, Kernel kernel) {
  auto& [products, with_activation] = launch.stream.keep<KernelCounts>();
  ++(launch.activation ? with_activation : products)[static_cast<std::size_t>(kernel)];
}

template <class T>
void run_plain(const Launch& launch, const Rows<T>& rows, std::span<const Weight> weights);

/// By mma.sync and wgmma. Does nothing and returns false where there are no tensor cores.
bool run_on_tensor_cores(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                         Kernel kernel);
void run_mma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights);
/// Every weight's operands must satisfy wgmma_takes(), or the weight be empty.
void run_wgmma(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights, Kernel kernel);
/// A product with an activation, by wgmma for all experts, with the rows of x that are `picked`, if any: `rows` has the
/// matrix that these are in; and with `gates`, if any. Does nothing and returns false where some expert's rows are not
/// aligned, or there is no wgmma, or `kernel` has no activation.
bool run_with_activation(const Launch& launch, Rows<bfloat16> rows, std::span<const Weight> weights,
                         const PickedRows<bfloat16>& picked, const RowGates<float>& gates, Kernel kernel);
/// As run_wgmma(), for weights and rows that run_with_activation() has found to be aligned.
void run_wgmma_activation(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                          Kernel kernel);
void run_wgmma_activation_backward(const Launch& launch, const Rows<bfloat16>& rows, std::span<const Weight> weights,
                                   Kernel kernel);
/// Whether TMA can load the operands: rows that begin at multiples of 16 bytes.
bool wgmma_takes(Product product, const Rows<bfloat16>& rows, const Weight& weight);

}  // namespace lyceum::grouped
