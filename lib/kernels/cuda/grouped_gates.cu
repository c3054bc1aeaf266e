#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/allocator.h"
#include "kernels/checks.h"
#include "kernels/cuda/grouped_kernels.cuh"
#include "kernels/cuda/index_check.cuh"
#include "kernels/cuda/launch.cuh"

namespace lyceum::grouped {

namespace {

constexpr int gate_threads = 256;

/// Calls f(row, index of its gate) for every row of this thread that has a gate. A grid-stride loop, one thread per
/// row.
template <class F>
__device__ void each_gate(const RowGates<float>& gates, const IndexCheck& check, const F& f) {
  const auto rows = static_cast<std::int64_t>(gates.index.size());
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * gate_threads + threadIdx.x; r < rows;
       r += static_cast<std::int64_t>(gridDim.x) * gate_threads) {
    const std::int64_t index = gates.index[r];
    if (index >= 0 && check.passes(index)) f(r, index);
  }
}

__global__ void __launch_bounds__(gate_threads) gather_gates(RowGates<float> gates, float* of_row, IndexCheck check) {
  each_gate(gates, check, [&](std::int64_t row, std::int64_t index) { of_row[row] = gates.gate[index]; });
}

__global__ void __launch_bounds__(gate_threads)
    add_parts(RowGates<float> gates, const float* parts, std::int32_t across, IndexCheck check) {
  each_gate(gates, check, [&](std::int64_t row, std::int64_t index) {
    float sum = 0;
    for (std::int32_t i = 0; i < across; ++i) sum += parts[row * across + i];
    gates.d_gate[index] = sum;
  });
}

}  // namespace

GatesOfRows gates_of_rows(const CudaStream& stream, const char* name, const RowGates<float>& gates,
                          std::int32_t across) {
  const std::int64_t rows = std::ssize(gates.index);
  const std::size_t bytes =
      std::max<std::size_t>(gates.index.size(), 1) * (1 + static_cast<std::size_t>(across)) * sizeof(float);
  GatesOfRows made;
  made.memory = stream.memory().allocate(bytes, MemoryKind::buffers);
  check(cudaMemsetAsync(made.memory.get(), 0, bytes, stream.handle()), name);
  auto* const gate = reinterpret_cast<float*>(made.memory.get());
  made.gate = gate;
  made.d_gate = gate + rows;
  made.across = across;
  const IndexCheck inside(stream, name, "index of a gate", 0, std::ssize(gates.gate));
  start(stream, name, gather_gates, blocks_for(rows, gate_threads), gate_threads, gates, gate, inside);
  return made;
}

void add_gate_gradients(const CudaStream& stream, const char* name, const GatesOfRows& rows,
                        const RowGates<float>& gates) {
  require_length(name, "d_gate", gates.d_gate, std::ssize(gates.gate));
  check(cudaMemsetAsync(gates.d_gate.data(), 0, gates.d_gate.size_bytes(), stream.handle()), name);
  const IndexCheck inside(stream, name, "index of a gate", 0, std::ssize(gates.gate));
  start(stream, name, add_parts, blocks_for(std::ssize(gates.index), gate_threads), gate_threads, gates, rows.d_gate,
        rows.across, inside);
}

}  // namespace lyceum::grouped
