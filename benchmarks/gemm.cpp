// Measures GFLOP/s of dense and grouped matrix products at the shapes of DeepSeekMoE-small, and their share of oneDNN's
// best 512^3 rate of the same precision in the same run.
// Usage: bench_gemm [threads]

#include "kernels/gemm.h"

#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "best_rate.h"
#include "core/random.h"
#include "kernels/grouped_gemm.h"
#include "timing.h"

namespace lyceum {
namespace {

constexpr std::size_t rotated = 3;  // sets of operands

template <class T>
Tensor random_tensor(const CpuStream& stream, std::int64_t size) {
  Tensor tensor = Tensor::empty(stream, dtype_of<T>, {size});
  const Philox random(1, "benchmark");
  for (std::int64_t i = 0; i < size; ++i) {
    tensor.data<T>()[i] = T(static_cast<float>(2 * random.uniform(static_cast<std::uint64_t>(i % 65536)) - 1));
  }
  return tensor;
}

void print_line(const std::string& name, double flops, const Timing& timing, double best) {
  fmt::print("  {:<44} {:>9.3f} {:>7.0f} {:>9.1f} {:>6.0f}%\n", name, 1e3 * timing.median, 100 * timing.spread,
             flops / timing.median * 1e-9, 100 * flops / timing.median / best);
}

template <class T, class Out>
void dense(const CpuStream& stream, const std::string& what, std::int64_t m, std::int64_t k, std::int64_t n,
           bool transpose_a, bool transpose_b, bool accumulate, double best) {
  std::vector<Tensor> a, b, c;
  for (std::size_t i = 0; i < rotated; ++i) {
    a.push_back(random_tensor<T>(stream, m * k));
    b.push_back(random_tensor<T>(stream, k * n));
    c.push_back(Tensor::zeros(stream, dtype_of<Out>, {m * n}));
  }
  const Timing timing = measure([&](std::size_t round) {
    const std::size_t i = round % rotated;
    run(stream, Gemm<T, Out>{.a = {a[i].data<T>(), transpose_a ? k : m, transpose_a ? m : k},
                             .b = {b[i].data<T>(), transpose_b ? n : k, transpose_b ? k : n},
                             .c = {c[i].data<Out>(), m, n},
                             .transpose_a = transpose_a,
                             .transpose_b = transpose_b,
                             .accumulate = accumulate});
  });
  print_line(fmt::format("{:<12} {:>5} x {:>5} x {:>5}", what, m, k, n), 2.0 * static_cast<double>(m * k * n), timing,
             best);
}

/// Measures the three products of a linear layer [out, in] on `rows` rows: forward, dgrad, and weight gradient.
template <class T>
void linear(const CpuStream& stream, const std::string& what, std::int64_t rows, std::int64_t in, std::int64_t out,
            double best) {
  dense<T, T>(stream, what + " fwd", rows, in, out, false, true, false, best);
  dense<T, T>(stream, what + " dgrad", rows, out, in, false, false, false, best);
  dense<T, Accumulator<T>>(stream, what + " wgrad", out, rows, in, true, false, true, best);
}

template <class T>
void grouped(const CpuStream& stream, const std::string& what, const std::vector<std::int64_t>& rows,
             const std::vector<std::int64_t>& in, const std::vector<std::int64_t>& out, double best) {
  const SegmentTable table(stream, rows);
  const Segments segments = table.view();
  const SegmentLayout x_layout(stream, table, in), y_layout(stream, table, out);
  const Tensor x = random_tensor<T>(stream, x_layout.size()), dx = random_tensor<T>(stream, x_layout.size());
  const Tensor y = random_tensor<T>(stream, y_layout.size()), dy = random_tensor<T>(stream, y_layout.size());
  std::int64_t elements = 0;
  double flops = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    elements += in[e] * out[e];
    flops += 2.0 * static_cast<double>(rows[e] * in[e] * out[e]);
  }
  const Tensor weight = random_tensor<T>(stream, elements);
  const Tensor gradient = Tensor::zeros(stream, dtype_of<Accumulator<T>>, {elements});
  std::vector<Matrix<const T>> weights;
  std::vector<Matrix<Accumulator<T>>> gradients;
  std::int64_t offset = 0;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    weights.emplace_back(weight.data<T>() + offset, out[e], in[e]);
    gradients.emplace_back(gradient.data<Accumulator<T>>() + offset, out[e], in[e]);
    offset += in[e] * out[e];
  }
  const auto input = [](const SegmentLayout& layout, const Tensor& tensor) {
    return layout.over(static_cast<const T*>(tensor.data<T>()));
  };
  const auto timed = [&](const char* pass, const auto& description) {
    print_line(what + " " + pass, flops, measure([&](std::size_t) { run(stream, description); }), best);
  };
  timed("fwd", GroupedGemm<T>{segments, input(x_layout, x), weights, y_layout.over(y.data<T>()), true});
  timed("dgrad", GroupedGemm<T>{segments, input(y_layout, dy), weights, x_layout.over(dx.data<T>()), false});
  timed("wgrad", GroupedWeightGrad<T>{segments, input(y_layout, dy), input(x_layout, x), gradients});
}

template <class T>
void all(const CpuStream& stream, const std::string& type, dnnl::memory::data_type dnnl_type) {
  const double best = best_gemm_rate(stream.threads(), dnnl_type);
  fmt::print("{}, {} threads; oneDNN 512^3: {:.1f} GFLOP/s\n", type, stream.threads(), best * 1e-9);
  fmt::print("  {:<44} {:>9} {:>7} {:>9} {:>7}\n", "", "ms", "±%", "GFLOP/s", "share");
  dense<T, T>(stream, "cube", 512, 512, 512, false, true, false, best);
  dense<T, T>(stream, "cube", 2048, 2048, 2048, false, true, false, best);
  linear<T>(stream, "qkv", 8192, 512, 1536, best);
  linear<T>(stream, "head", 8192, 512, 8192, best);
  linear<T>(stream, "few rows", 96, 512, 682, best);
  const std::size_t experts = 63;
  const std::vector<std::int64_t> hidden(experts, 512), width(experts, 341), both(experts, 682);
  const std::vector<std::int64_t> even(experts, 910), few(experts, 33);
  std::vector<std::int64_t> skewed, sizes;
  for (std::size_t e = 0; e < experts; ++e) {
    skewed.push_back(static_cast<std::int64_t>(e * e * 910 / 1302));
    sizes.push_back(static_cast<std::int64_t>(64 + 9 * e));
  }
  grouped<T>(stream, "63 experts, 910 rows, 512 to 682", even, hidden, both, best);
  grouped<T>(stream, "63 experts, 910 rows, 341 to 512", even, width, hidden, best);
  grouped<T>(stream, "63 experts, 0-2686 rows, 512 to 64-622", skewed, hidden, sizes, best);
  grouped<T>(stream, "63 experts, 33 rows, 512 to 682", few, hidden, both, best);
  fmt::print("\n");
}

}  // namespace
}  // namespace lyceum

int main(int argc, char** argv) {
  const lyceum::CpuStream stream(argc > 1 ? std::atoi(argv[1]) : 0);
  lyceum::all<float>(stream, "f32", dnnl::memory::data_type::f32);
  lyceum::all<lyceum::bfloat16>(stream, "bf16", dnnl::memory::data_type::bf16);
}
