#pragma once

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "timing.h"

namespace lyceum {

/// Returns the FLOP/s of oneDNN's 512 x 512 x 512 matrix products with weights in the layout that oneDNN prefers, when
/// each of `threads` threads runs its own products. Benchmarks use it as the reference rate. `type` is f32 or bf16.
/// Returns NaN if oneDNN has no such product for this CPU.
inline double best_gemm_rate(int threads, dnnl::memory::data_type type) {
  using dnnl::memory;
  constexpr dnnl::memory::dim size = 512;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc plain({size, size}, type, memory::format_tag::ab);
  const memory::desc any({size, size}, type, memory::format_tag::any);
  const int outside = omp_get_max_threads();
  omp_set_num_threads(1);
  // Empty if there is none.
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(plain, any, plain), engine, true);
  omp_set_num_threads(outside);
  if (!description) return std::numeric_limits<double>::quiet_NaN();
  const dnnl::matmul product(description);
  const auto filled = [&](const memory::desc& layout) {
    memory values(memory::desc({size, size}, memory::data_type::f32, memory::format_tag::ab), engine);
    auto* numbers = static_cast<float*>(values.get_data_handle());
    for (dnnl::memory::dim i = 0; i < size * size; ++i)
      numbers[i] = static_cast<float>(i * 7919 % 1009) / 504.5f - 1.0f;
    memory result(layout, engine);
    dnnl::stream stream(engine);
    dnnl::reorder(values, result).execute(stream, values, result);
    stream.wait();
    return result;
  };
  constexpr int rotated = 4;
  std::vector<memory> a, b, c;
  for (int i = 0; i < threads * rotated; ++i) {
    a.push_back(filled(plain));
    b.push_back(filled(description.weights_desc()));
    c.emplace_back(plain, engine);
  }
  const Timing timing = measure([&](std::size_t round) {
#pragma omp parallel num_threads(threads)
    {
      dnnl::stream stream(engine);
      for (std::size_t i = 0; i < rotated; ++i) {
        const std::size_t at = static_cast<std::size_t>(omp_get_thread_num() * rotated) + (i + round) % rotated;
        product.execute(stream, {{DNNL_ARG_SRC, a[at]}, {DNNL_ARG_WEIGHTS, b[at]}, {DNNL_ARG_DST, c[at]}});
      }
    }
  });
  return 2.0 * size * size * size * threads * rotated / timing.median;
}

}  // namespace lyceum
